"""As a home: asks pairs of lenders to connect our pods with each other directly, and follows what they say.

What came of it is in the status of each lender's NetworkConfig (``others``); reflection tells a lender only of those
pods at the other one directly that it reaches so. A lender that loses the tunnel goes back to the way by home by
itself, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.controller import After, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import NotFound
from liqod.kube.resources import NETWORKCONFIGS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import to_dict
from liqod.model.records.network import ASKED, DIRECT, NetworkConfig
from liqod.model.records.views import NamespaceNattingTable
from liqod.peering.borrowing.direct_pairs import (
    ANSWER_WITHIN,
    Lender,
    Pair,
    PairState,
    Reason,
    agreed,
    asked,
    ended,
    hindrance,
    objection,
    pair_of,
    pairs_with,
    recalled,
    shown,
)
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import DirectAgree, DirectAsk, DirectEnd, DirectOffer

SETTLE: Final = 0.02
"""Seconds for which events of a lender are collected into one step."""
AGAIN: Final = Backoff(initial=30.0, cap=3600.0)
"""When a pair is asked again that refused, did not answer, or ended it."""


class DirectBorrowing(PeerController):
    """The pairs of our lenders; keys are lenders."""

    name = "direct-borrowing"
    queue = Queue.DIRECT
    workers = 1  # a pair is of two lenders

    _log = Logger()

    def __init__(
        self,
        context: PeeringContext,
        records: ForeignClusters,
        *,
        own: ClusterID,
        willing: bool,
        configs: Informer[NetworkConfig],
        tables: Informer[NamespaceNattingTable],
        again: Backoff = AGAIN,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._own = own
        self._willing = willing
        self._configs = MutationCache(configs, context.clock)
        self._tables = tables
        self._again = again
        self._offers: dict[ClusterID, DirectOffer] = {}
        self._pairs: dict[Pair, PairState] = {}
        self._unsaid: dict[ClusterID, set[ClusterID]] = {}
        self._asked_in: dict[tuple[Pair, ClusterID], PeerConnection] = {}
        self._ended_in: dict[ClusterID, PeerConnection] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of lenders, the exchanges with them, and which namespaces they have of ours."""
        yield from super().sources()
        yield watch(self._configs.informer, self._config_changed)
        yield watch(self._tables, lambda key, old, new: (ClusterID(key.name),))

    def _config_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[ClusterID]:
        if new is None:
            self._configs.forget(key)
        changed = (old and old.status.others) != (new and new.status.others)
        return (ClusterID(key.name),) if changed or old is None else ()

    # What lenders send.

    def offer_received(self, peer: Peer, event: DirectOffer) -> None:
        """Note what a lender offers; the newest offer holds, also while the lender is away."""
        if not self._willing:
            return
        self._offers[peer.id] = event
        self.enqueue(peer.id, SETTLE)

    def answer_received(self, peer: Peer, event: DirectAgree) -> None:
        """Note a lender's answer to our request."""
        other = ClusterID(event.peer)
        pair = pair_of(peer.id, other)
        state = self._pairs.get(pair)
        if state is None or not state.is_open or event.request != state.request:
            return
        if event.reason:
            self._end(pair, (event.reason, f"{peer.id} says: {event.message}"), besides=peer.id)
        else:
            self._pairs[pair] = agreed(state, pair, peer.id, event.request)
        self._enqueue_both(pair)

    def end_received(self, peer: Peer, event: DirectEnd) -> None:
        """Note that a lender ended a direct connection."""
        pair = pair_of(peer.id, ClusterID(event.peer))
        state = self._pairs.get(pair)
        if state is not None and state.is_open:
            why = event.reason or "EndedByLender", f"{peer.id} ended it: {event.message or 'without a reason'}"
            self._end(pair, why, besides=peer.id)
            self._enqueue_both(pair)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a lender whose record is gone; its pairs end, and the others are to know it."""
        super().forget(peer)
        self._offers.pop(peer, None)
        self._unsaid.pop(peer, None)
        self._ended_in.pop(peer, None)
        for pair in [pair for pair in self._pairs if peer in pair]:
            other = pair[1] if pair[0] == peer else pair[0]
            if self._pairs.pop(pair).is_open:
                self._unsaid.setdefault(other, set()).add(peer)
            self._asked_in = {key: session for key, session in self._asked_in.items() if key[0] != pair}
            self.enqueue(other)

    def _enqueue_both(self, pair: Pair) -> None:
        for lender in pair:
            self.enqueue(lender, SETTLE)

    def _end(self, pair: Pair, why: Reason, *, besides: ClusterID | None = None) -> None:
        """Go back to the way by home, and have the lenders know it, except the one that said so."""
        state = self._pairs[pair]
        not_before = self._clock.seconds() + self._again.delay(state.failures)
        if state.phase == DIRECT:
            self._log.info(
                "our pods at {peer} and at {cluster_id} talk by way of this cluster: {detail} ({reason})",
                peer=pair[0],
                cluster_id=pair[1],
                detail=why[1],
                reason=why[0],
            )
        self._pairs[pair] = ended(state, why, not_before=not_before)
        for lender, other in (pair, pair[::-1]):
            self._asked_in.pop((pair, lender), None)
            if lender != besides:
                self._unsaid.setdefault(lender, set()).add(other)

    # The step.

    async def reconcile(self, lender: ClusterID) -> After | None:
        """Settle the pairs of a lender, tell it what ended, and record how it is connected with the others."""
        config = self._configs.get(Key("", lender))
        if config is not None:
            self._recall(lender, config)
        named = {lender, *self._offers, *(one for pair in self._pairs for one in pair)}
        lenders = {one: self._lender(one) for one in named}
        self._say_ends(lender)
        later: list[float] = []
        for pair in pairs_with(lender, lenders, list(self._pairs)):
            later += self._settle(pair, lenders[pair[0]], lenders[pair[1]])
        if config is not None:
            self._end_what_is_on_record(lender, config)
        self._say_ends(lender)
        if config is not None and (wait := await self._record(lender, config)) is not None:
            later.append(wait)
        return After(min(later)) if later else None

    def _recall(self, lender: ClusterID, config: NetworkConfig) -> None:
        """Take over what an earlier daemon recorded."""
        for one in config.status.others:
            pair = pair_of(lender, ClusterID(one.peer))
            if pair not in self._pairs and self._records.get(ClusterID(one.peer)) is not None:
                self._pairs[pair] = recalled(one)

    def _end_what_is_on_record(self, lender: ClusterID, config: NetworkConfig) -> None:
        """Once in a session, have a lender know which pairs of the record are not open.

        An earlier daemon may have asked for them, or ended them, without having said that they end.
        """
        peer = self._peers.get(lender)
        if peer is None or peer.session is None or self._ended_in.get(lender) is peer.session:
            return
        self._ended_in[lender] = peer.session
        for other in (ClusterID(one.peer) for one in config.status.others):
            if not self._pairs.get(pair_of(lender, other), PairState()).is_open:
                self._unsaid.setdefault(lender, set()).add(other)

    def _lender(self, lender: ClusterID) -> Lender:
        peer, table = self._peers.get(lender), self._tables.get(Key("", lender))
        return Lender(
            lends=self._records.offer_of(lender) is not None,
            is_used=table is not None and bool(table.spec.natting_table),
            has_session=peer is not None and peer.session is not None,
            offer=self._offers.get(lender),
        )

    def _settle(self, pair: Pair, one: Lender, two: Lender) -> list[float]:
        """Take the next step for a pair; return in how many seconds to look again, if at all."""
        state, now = self._pairs.get(pair, PairState()), self._clock.seconds()
        self._pairs[pair] = state
        if (why := objection(one, two, willing=self._willing)) is not None:
            if state.is_open:
                self._end(pair, why)
                self._enqueue_both(pair)
            else:
                self._pairs[pair] = attrs.evolve(state, reason=why[0], message=why[1])
            return []
        if state.phase == DIRECT:
            self._ask_again(pair, state, (one, two))
            return []
        if state.phase == ASKED:
            if (left := state.asked_at + ANSWER_WITHIN - now) > 0:
                return [left]
            self._end(pair, ("NoAnswer", "a lender did not say in time that its end is set up"))
            self._enqueue_both(pair)
            return []
        if state.not_before > now:
            return [state.not_before - now]
        if (why := hindrance(one, two)) is not None:
            self._pairs[pair] = attrs.evolve(state, reason=why[0], message=why[1])
            return []
        self._pairs[pair] = state = asked(state, now)
        offers = [lender.offer for lender in (one, two) if lender.offer is not None]
        sent = [self._ask(pair, lender, state, offer) for lender, offer in zip(pair, offers[::-1], strict=True)]
        self._enqueue_both(pair)
        if not all(sent):
            self._end(pair, ("NoSession", "a lender could not be asked"))
        return [ANSWER_WITHIN]

    def _ask_again(self, pair: Pair, state: PairState, lenders: tuple[Lender, Lender]) -> None:
        """Ask a lender of a direct pair in each new session: it may have ended it while there was none."""
        for lender, other in zip(pair, lenders[::-1], strict=True):
            peer = self._peers.get(lender)
            session = peer.session if peer is not None else None
            if session is not None and other.offer is not None and self._asked_in.get((pair, lender)) is not session:
                self._ask(pair, lender, state, other.offer)

    def _ask(self, pair: Pair, lender: ClusterID, state: PairState, offer: DirectOffer) -> bool:
        """Ask a lender to connect with the other one, which made this offer."""
        peer = self._peers.get(lender)
        if peer is None or peer.session is None:
            return False
        other = pair[1] if lender == pair[0] else pair[0]
        ask = DirectAsk(self._own, other, state.request, offer.endpoints, offer.public_key, offer.pod_cidrs, offer.mtu)
        self._unsaid.get(lender, set()).discard(other)
        self._asked_in[pair, lender] = peer.session
        return peer.session.send(ask)

    def _say_ends(self, lender: ClusterID) -> None:
        peer = self._peers.get(lender)
        if peer is None or peer.session is None:
            return
        for other in sorted(self._unsaid.pop(lender, ())):
            state = self._pairs.get(pair_of(lender, other), PairState())
            peer.session.send(DirectEnd(self._own, other, state.reason, plain(state.message)))

    async def _record(self, lender: ClusterID, config: NetworkConfig) -> float | None:
        """Write how a lender is connected with the others; return when that is allowed, if it is not yet."""
        others = shown(lender, self._pairs)
        if others == config.status.others:
            return None
        if (wait := self.begin_write(lender)) is not None:
            return wait.seconds
        patch = {"status": {"others": to_dict(others) or None}}
        try:
            written = await self._client.patch(
                NETWORKCONFIGS, config.metadata.name, patch, subresource="status", view=NetworkConfig
            )
        except NotFound:
            return None  # the watch enqueues the lender when the record exists
        self._configs.wrote(config.key, config, written)
        return None
