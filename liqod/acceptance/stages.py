"""The stages of acceptance, each a pure function of a case.

A stage returns a verdict, or None for the next stage to decide. What needs I/O was gathered before and is in the
``OfferCase``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, Literal

import attrs

from liqod.acceptance.verdict import Accept, Defer, Refuse, Verdict
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity
from liqod.model.objects.label_selector import LabelRequirement
from liqod.model.objects.quantity import Resources
from liqod.model.records import hours
from liqod.model.records.hours import Window
from liqod.model.records.views import Decision

Policy = Literal["Manual", "AutoAcceptAll", "AutoAcceptMax"]


@attrs.frozen(kw_only=True)
class OfferCase:
    """One offer and what is known about it.

    ``first_seen`` is sortable text (RFC 3339). ``seated``: it was accepted before and has been neither refused nor
    withdrawn since; no policy evicts such an offer. ``problem`` is the error of ``check``, ``withdrawn`` the
    provider's reason for a withdrawal; both are empty if there is none. ``resources``, ``prices`` and ``labels`` are
    the offer's, ``taken`` is the sum of all accepted offers, and ``now`` is in seconds since 1970.
    """

    peer: ClusterID
    first_seen: str = ""
    seated: bool = False
    decision: Decision = "Auto"
    enabled: bool = True
    trusted: bool = True
    problem: str = ""
    withdrawn: str = ""
    expired: bool = False
    resources: Resources = attrs.field(factory=dict)
    prices: Resources = attrs.field(factory=dict)
    labels: Mapping[str, str] = attrs.field(factory=dict)
    taken: Resources = attrs.field(factory=dict)
    now: float = 0.0


@attrs.frozen
class AcceptanceRules:
    """The policy, the maximum of ``AutoAcceptMax``, and the requirements of new offers.

    ``quota``: how much all accepted offers may lend together; ``ceilings``: the highest prices; ``selector``: matched
    with the offer's labels; ``windows``: when offers may be accepted.
    They apply to new offers only: what is accepted stays accepted, and what the user decided is not evaluated.
    """

    policy: Policy = "AutoAcceptMax"
    maximum: int = 5
    quota: Resources = attrs.field(factory=dict, kw_only=True)
    ceilings: Resources = attrs.field(factory=dict, kw_only=True)
    selector: tuple[LabelRequirement, ...] = attrs.field(default=(), kw_only=True)
    windows: tuple[Window, ...] = attrs.field(default=(), kw_only=True)


_NONE: Final = Fraction(0)
Stage = Callable[[OfferCase, AcceptanceRules, int], Verdict | None]
"""(case, rules, number of accepted offers) -> the verdict, or None for the next stage to decide."""


def sound(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an invalid offer, also one that the user would accept."""
    return Refuse("InvalidOffer", case.problem) if case.problem else None


def offered(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an offer that the provider withdrew; its next offer is evaluated as a new one."""
    if not case.withdrawn:
        return None
    return Refuse("Withdrawn", f"the provider took its offer back: {case.withdrawn}; a new offer is looked at afresh")


def identified(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an offer of a peer that is no longer trusted."""
    if case.trusted:
        return None
    return Refuse(
        "NotTrusted",
        f"no key is pinned for {case.peer} any more: compare its words and say 'liqodctl trust {case.peer}'",
    )


def wanted(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse when outgoing peering with the provider is disabled."""
    if case.enabled:
        return None
    return Refuse(
        "PeeringDisabled",
        f"borrowing from {case.peer} is switched off: set outgoingPeering of its ForeignCluster to Yes to allow it",
    )


def asked(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Apply the user's own decision before any policy."""
    if case.decision == "Refuse":
        return Refuse("RefusedByUser", "spec.decision of the Advertisement says Refuse")
    if case.decision == "Accept":
        return Accept("AcceptedByUser", "spec.decision of the Advertisement says Accept")
    return None


def kept(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Accept what was accepted before: a stricter policy or a lower maximum evicts no offer."""
    return Accept("Accepted", "the offer was accepted before and stays so") if case.seated else None


def fresh(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Defer a new offer whose time to live is over."""
    if not case.expired:
        return None
    return Defer("Expired", "the offer outlived its time to live; it is decided when the provider renews it")


def matching(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an offer whose labels do not match the selector."""
    lacking = [term.key for term in rules.selector if not term.matches(case.labels)]
    if not lacking:
        return None
    return Refuse("LabelsDoNotMatch", f"acceptance.selector is not fulfilled by its labels: {', '.join(lacking)}")


def affordable(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an offer with a price above the ceiling; a resource without a price is free."""
    for name, ceiling in sorted(rules.ceilings.items()):
        price = case.prices.get(name, _NONE)
        if name in case.resources and price > ceiling:
            asked, most = (quantity.render(value, resource="price") for value in (price, ceiling))
            return Refuse("TooExpensive", f"{name} costs {asked}, and acceptance.price-ceiling allows {most}")
    return None


def within_quota(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Refuse an offer that would exceed the quota of what is borrowed."""
    for name, most in sorted(rules.quota.items()):
        total = case.taken.get(name, _NONE) + case.resources.get(name, _NONE)
        if case.resources.get(name, _NONE) > 0 and total > most:
            would, may = (quantity.render(value, resource=name) for value in (total, most))
            return Refuse(
                "BorrowingQuotaExceeded",
                f"{name} {would} would be offered to us in all, and acceptance.quota allows {may}; looked at again "
                f"when there is room, or say 'liqodctl accept {case.peer}'",
            )
    return None


def in_hours(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Defer an offer outside the hours in which offers are accepted."""
    if hours.is_open(rules.windows, case.now):
        return None
    return Defer("OutsideHours", "offers are accepted in acceptance.hours only; it is decided when they begin")


def by_policy(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Verdict | None:
    """Apply the acceptance policy; it always returns a verdict."""
    if rules.policy == "AutoAcceptAll":
        return Accept("Accepted", "the policy AutoAcceptAll accepts every valid offer")
    if rules.policy == "Manual":
        return Defer(
            "DecisionPending",
            f"the policy is Manual: say 'liqodctl accept {case.peer}' or 'liqodctl refuse {case.peer}'",
        )
    if accepted < rules.maximum:
        return Accept("Accepted", f"accepted by AutoAcceptMax as number {accepted + 1} of {rules.maximum}")
    return Refuse(
        "NoRoom",
        f"{accepted} offers are accepted and AutoAcceptMax allows {rules.maximum}; looked at again when there is room, "
        f"or say 'liqodctl accept {case.peer}'",
    )


STAGES: Final[tuple[Stage, ...]] = (sound, offered, identified, wanted, asked, kept, fresh)
"""The stages for every offer, in this order."""

DEMANDS: Final[tuple[Stage, ...]] = (matching, affordable, within_quota, in_hours)
"""The stages for what the settings require of a new offer."""

ALL_STAGES: Final[tuple[Stage, ...]] = (*STAGES, *DEMANDS, by_policy)
"""All stages in order; the last one always returns a verdict."""
