"""The fold over the stages, for one offer and for all of them at once.

``rule_all`` is the whole of the decision: the accepted count is computed from the cases themselves every time, so
nothing is ever counted up and down, and running it twice says the same twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, assert_never

import attrs

from liqod.acceptance.stages import Case, Rules, Stage, stages_of
from liqod.acceptance.verdict import Accept, Defer, Refuse, Verdict
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity

Phase = Literal["Pending", "Accepted", "Refused", "Withdrawn", "Expired"]


@attrs.frozen
class Judgement:
    """A verdict, and the names of the stages that were passed on the way; the last is the one that ended it."""

    verdict: Verdict
    trace: tuple[str, ...]


@attrs.frozen
class Ruling:
    """What becomes of one offer: its phase with reason and sentence, and whether it holds an accepted place."""

    peer: ClusterID
    phase: Phase
    reason: str
    message: str
    seated: bool
    trace: tuple[str, ...] = ()


def judge(case: Case, rules: Rules, accepted: int, stages: Sequence[Stage] | None = None) -> Judgement:
    """Pass a case through the stages; the first that returns a verdict ends it, and the last always does."""
    trace: list[str] = []
    for stage in stages_of(rules) if stages is None else stages:
        trace.append(stage.__name__)
        verdict = stage(case, rules, accepted)
        if verdict is not None:
            return Judgement(verdict, tuple(trace))
    return Judgement(Defer("Undecided", "no stage decided the offer"), tuple(trace))


def rule(case: Case, rules: Rules, accepted: int) -> Ruling:
    """Turn the verdict on one case into the phase that is recorded.

    An accepted offer that outlived its TTL is Expired and keeps its place: losing sight of a peer gives nothing away.
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
    return Ruling(case.peer, phase, reason, message, seated, judgement.trace)


def rule_all(cases: Iterable[Case], rules: Rules) -> dict[ClusterID, Ruling]:
    """Decide every offer: those that hold a place or that the user decided first, then the rest in first-seen order."""
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
