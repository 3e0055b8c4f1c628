"""Decides, as a home, which pairs of lenders are to connect our pods directly, and what becomes of each. Pure.

A pair is asked when both lenders offered it, both have pods of ours to connect, and the time since the last failure is
over. It is direct when both said that their end is set up, until one of them, or this cluster, ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.model.ids import ClusterID
from liqod.model.objects.meta import MAX_MESSAGE
from liqod.model.records.network import ASKED, BY_HOME, DIRECT, MAX_OTHERS, DirectState
from liqod.wire.events import DirectOffer

Pair = tuple[ClusterID, ClusterID]
"""Two lenders, the lesser ID first."""
Reason = tuple[str, str]
"""A reason in one word, and the sentence for people."""
ANSWER_WITHIN: Final = 90.0
"""Seconds in which both lenders say that their ends are set up; each waits a minute for the other one."""


@attrs.frozen(kw_only=True)
class PairState:
    """How a pair is connected, and why; times are seconds of the reactor's clock.

    ``request`` is the number of the last request, of ``asked_at``, to which the lenders in ``agreed`` said yes.
    ``failures`` in a row have been since it was direct, and ``not_before`` is when it may be asked again.
    """

    phase: str = BY_HOME
    reason: str = "NotAsked"
    message: str = "nothing was asked of the lenders yet"
    request: int = 0
    asked_at: float = 0.0
    agreed: frozenset[ClusterID] = frozenset()
    failures: int = 0
    not_before: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the lenders have, or may have, something of it."""
        return self.phase != BY_HOME


@attrs.frozen(kw_only=True)
class Lender:
    """What is known of a lender: whether its offer of resources is on record, whether pods of ours may be there.

    ``offer`` is its DirectOffer, None before the first one; without endpoints it took that back.
    """

    lends: bool
    is_used: bool
    has_session: bool
    offer: DirectOffer | None = None

    @property
    def offers(self) -> bool:
        """Whether it may be connected directly."""
        return self.offer is not None and bool(self.offer.endpoints)


def pair_of(one: ClusterID, two: ClusterID) -> Pair:
    """Return two lenders as a pair."""
    return (one, two) if one < two else (two, one)


def pairs_with(lender: ClusterID, lenders: Mapping[ClusterID, Lender], known: Iterable[Pair]) -> list[Pair]:
    """Return the pairs of a lender to look at: those that are known, and those of which both offered it.

    They are MAX_OTHERS at most; of more lenders the first ones by ID are connected.
    """
    found = [pair for pair in known if lender in pair]
    if lender in lenders and lenders[lender].offers:
        found += [pair_of(lender, other) for other, one in sorted(lenders.items()) if other != lender and one.offers]
    return list(dict.fromkeys(found))[:MAX_OTHERS]


def objection(one: Lender, two: Lender, *, willing: bool) -> Reason | None:
    """Return why a pair is not to be direct, also where it is; None if it may be.

    What is not known, as while a lender is away, is no reason to end anything.
    """
    if not willing:
        return "DirectOff", 'direct = "always" under [network] is not set here'
    if not (one.lends and two.lends):
        return "NotALender", "one of the two lends nothing to this cluster"
    if any(lender.offer is not None and not lender.offers for lender in (one, two)):
        return "NotOffered", "one of the two lenders offers no direct connections"
    return None


def hindrance(one: Lender, two: Lender) -> Reason | None:
    """Return why a pair is not asked now, though nothing is against it; None if it is."""
    if not (one.is_used and two.is_used):
        return "NoNamespaces", "no namespace is offloaded to both lenders"
    if not (one.offers and two.offers):
        return "NotOffered", "one of the two lenders has not offered direct connections"
    if not (one.has_session and two.has_session):
        return "NoSession", "one of the two lenders is away"
    return None


def asked(state: PairState, now: float) -> PairState:
    """Return the state after both lenders were asked."""
    return attrs.evolve(
        state,
        phase=ASKED,
        reason="Asked",
        message="both lenders were asked",
        request=state.request + 1,
        asked_at=now,
        agreed=frozenset(),
    )


def agreed(state: PairState, pair: Pair, by: ClusterID, request: int) -> PairState:
    """Return the state after a lender said that its end is set up; an answer to an earlier request changes nothing."""
    if state.phase != ASKED or request != state.request or by not in pair:
        return state
    both = state.agreed | {by}
    if len(both) < len(pair):
        return attrs.evolve(state, agreed=both)
    message = "both lenders have set up their ends, and packets cross between them"
    return attrs.evolve(state, phase=DIRECT, reason="BothAgreed", message=message, agreed=both, failures=0)


def ended(state: PairState, why: Reason, *, not_before: float) -> PairState:
    """Return the state after somebody refused or ended it, or did not answer: our pods talk by way of home again."""
    reason, message = why
    return attrs.evolve(
        state,
        phase=BY_HOME,
        reason=reason,
        message=message,
        agreed=frozenset(),
        failures=state.failures + 1,
        not_before=not_before,
    )


def recalled(record: DirectState) -> PairState:
    """Return the state of a pair by the record of one of its lenders; what was only asked for is asked again."""
    if record.phase == ASKED:
        return PairState()
    phase = DIRECT if record.phase == DIRECT else BY_HOME
    return PairState(phase=phase, reason=record.reason, message=record.message)


def shown(lender: ClusterID, pairs: Mapping[Pair, PairState]) -> list[DirectState]:
    """Return what the record of a lender is to say of its pairs."""
    return [
        DirectState(
            peer=two if lender == one else one,
            phase=state.phase,
            reason=state.reason,
            message=state.message[:MAX_MESSAGE],
        )
        for (one, two), state in sorted(pairs.items(), key=lambda item: item[0])
        if lender in (one, two)
    ][:MAX_OTHERS]
