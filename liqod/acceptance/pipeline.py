"""Decides offers by the stages: one offer, and all of them together.

``rule_all`` is the whole decision: the number of accepted offers is computed from the cases each time rather than
counted up and down, so that it is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, assert_never

import attrs

from liqod.acceptance.stages import ALL_STAGES, AcceptanceRules, OfferCase, Stage
from liqod.acceptance.verdict import Accept, Defer, Refuse, Verdict
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity

Phase = Literal["Pending", "Accepted", "Refused", "Withdrawn", "Expired"]


@attrs.frozen
class Judgement:
    """A verdict, and the names of the stages that were evaluated; the last one returned it."""

    verdict: Verdict
    trace: tuple[str, ...]


@attrs.frozen
class Ruling:
    """The result for one offer: its phase with reason and message, and whether it counts as accepted (``seated``)."""

    peer: ClusterID
    phase: Phase
    reason: str
    message: str
    seated: bool = attrs.field(kw_only=True)
    trace: tuple[str, ...] = attrs.field(default=(), kw_only=True)


def judge(case: OfferCase, rules: AcceptanceRules, accepted: int, stages: Sequence[Stage] | None = None) -> Judgement:
    """Evaluate the stages in order until one returns a verdict, as the last of ``ALL_STAGES`` always does."""
    trace: list[str] = []
    for stage in ALL_STAGES if stages is None else stages:
        trace.append(stage.__name__)
        verdict = stage(case, rules, accepted)
        if verdict is not None:
            return Judgement(verdict, tuple(trace))
    # Not reached with all stages.
    return Judgement(Defer("Undecided", "no stage decided the offer"), tuple(trace))


def rule(case: OfferCase, rules: AcceptanceRules, accepted: int) -> Ruling:
    """Turn the verdict on one case into the phase that is recorded.

    An accepted offer whose TTL is over is Expired and still counts: a peer that is unreachable loses nothing.
    """
    judgement = judge(case, rules, accepted)
    verdict = judgement.verdict
    phase: Phase
    match verdict:
        case Accept(reason, message):
            if case.expired:
                phase, reason = "Expired", "OfferExpired"
                message = "the provider did not renew its offer in time; nothing is removed, it counts once renewed"
            else:
                phase = "Accepted"
            seated = True
        case Refuse(reason, message):
            phase, seated = ("Withdrawn" if reason == "Withdrawn" else "Refused"), False
        case Defer(reason, message):
            phase, seated = ("Expired" if reason == "Expired" else "Pending"), False
        case _:
            assert_never(verdict)
    return Ruling(case.peer, phase, reason, message, seated=seated, trace=judgement.trace)


def rule_all(cases: Iterable[OfferCase], rules: AcceptanceRules) -> dict[ClusterID, Ruling]:
    """Decide every offer: those accepted before or decided by the user first, then the rest in first-seen order."""
    ordered = sorted(cases, key=lambda case: (case.first_seen, case.peer))
    rulings: dict[ClusterID, Ruling] = {}
    accepted = 0
    taken: dict[str, Fraction] = {}
    for settled in (True, False):
        for case in ordered:
            if (case.seated or case.decision != "Auto") is settled:
                ruling = rule(attrs.evolve(case, taken=taken), rules, accepted)
                rulings[case.peer] = ruling
                accepted += ruling.seated
                if ruling.seated:
                    taken = quantity.add([taken, case.resources])
    return rulings
