"""The stages an offer passes, each a pure function of what is known about it.

A stage returns a verdict when the matter ends with it, or None when it has nothing against the offer. What needs I/O
was gathered before and stands in the ``Case``; nothing here waits, reads a clock or remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import attrs

from liqod.acceptance.verdict import Accept, Defer, Refuse, Verdict
from liqod.model.ids import ClusterID
from liqod.model.records import Decision

Policy = Literal["Manual", "AutoAcceptAll", "AutoAcceptMax"]


@attrs.frozen
class Case:
    """One offer and what is known about it.

    ``first_seen`` is sortable text (RFC 3339). ``seated`` tells that it was accepted before and has been neither
    refused nor withdrawn since: such an offer is never evicted by a policy. ``problem`` is what ``check`` found wrong,
    ``withdrawn`` the reason the provider gave for taking the offer back; both are empty when there is nothing of the
    kind.
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


@attrs.frozen
class Rules:
    """The policy, and the number of offers that ``AutoAcceptMax`` takes."""

    policy: Policy = "AutoAcceptMax"
    maximum: int = 5


Stage = Callable[[Case, Rules, int], Verdict | None]
"""(case, rules, how many are accepted now) -> the verdict that ends the matter, or None to go on."""


def sound(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Refuse what is not a valid offer: nobody can ask for it to be accepted."""
    return Refuse("InvalidOffer", case.problem) if case.problem else None


def offered(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Refuse what the provider took back; its next offer is a new matter."""
    if not case.withdrawn:
        return None
    return Refuse("Withdrawn", f"the provider took its offer back: {case.withdrawn}; a new offer is looked at afresh")


def identified(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Hold back an offer of a peer that is no longer trusted."""
    if case.trusted:
        return None
    return Refuse(
        "NotTrusted",
        f"no key is pinned for {case.peer} any more: compare its words and say 'liqodctl trust {case.peer}'",
    )


def wanted(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Refuse where this cluster does not want to borrow from the provider."""
    if case.enabled:
        return None
    return Refuse(
        "PeeringDisabled",
        f"borrowing from {case.peer} is switched off: set outgoingPeering of its ForeignCluster to Yes to allow it",
    )


def asked(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Obey the user's own decision, either way, before any policy."""
    if case.decision == "Refuse":
        return Refuse("RefusedByUser", "spec.decision of the Advertisement says Refuse")
    if case.decision == "Accept":
        return Accept("AcceptedByUser", "spec.decision of the Advertisement says Accept")
    return None


def kept(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Keep what was accepted before: a stricter policy or a lower maximum evicts nobody."""
    return Accept("Accepted", "the offer was accepted before and stays so") if case.seated else None


def fresh(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Accept nothing anew that outlived its time to live."""
    if not case.expired:
        return None
    return Defer("Expired", "the offer outlived its time to live; it is decided when the provider renews it")


def by_policy(case: Case, rules: Rules, accepted: int) -> Verdict | None:
    """Let the acceptance policy decide; it always ends the matter."""
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


STAGES: Final[tuple[Stage, ...]] = (sound, offered, identified, wanted, asked, kept, fresh, by_policy)
