"""As a lender: offers homes to connect their pods here straight with those at other lenders, and does so if all agree.

Home asks (DirectAsk). What is agreed on is in the status of the NetworkConfig of the other lender, from which the
fabric makes rules; the status of its TunnelEndpoint says when they are there, and only then home is answered that this
end is set up. The two lenders tell each other by the same DirectAgree and DirectEnd what they agreed on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
from twisted.logger import Logger

from liqod.flow.controller import After, Source, soonest, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import NotFound
from liqod.kube.resources import NETWORKCONFIGS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import to_dict
from liqod.model.records.network import DirectGrant, NetworkConfig, TunnelEndpoint
from liqod.model.records.offer import Refusal
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.peering.changes import Queue, mapped
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.lending.direct_terms import CONFIRM_WITHIN, PairFacts, Terms, decide, offer_to
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import DirectAgree, DirectAsk, DirectEnd, DirectOffer

MAX_ASKED: Final = 64
"""Requests of one home that wait at most; another one is refused."""
SETTLE: Final = 0.02
"""Seconds for which events of a peer are collected into one step."""
ENDED: Final = -1
"""The number of what stands for the end of a request; no request has it."""


@attrs.define
class _Home:
    """What one home asked for, by the other lender, and what it was sent: the offer, and answers to which requests."""

    asks: dict[ClusterID, DirectAsk] = attrs.Factory(dict)
    asked_at: dict[ClusterID, float] = attrs.Factory(dict)
    offered: tuple[PeerConnection, DirectOffer] | None = None
    answered: dict[ClusterID, tuple[PeerConnection, int]] = attrs.Factory(dict)


class DirectLending(PeerController):
    """Direct connections of homes that borrow here, with our peers that lend to them too; keys are homes."""

    name = "direct-lending"
    queue = Queue.DIRECT
    workers = 1  # two homes' grants are in one list of one record

    _log = Logger()

    def __init__(
        self,
        context: PeeringContext,
        records: ForeignClusters,
        *,
        own: ClusterID,
        willing: bool,
        configs: Informer[NetworkConfig],
        tunnels: Informer[TunnelEndpoint],
    ) -> None:
        super().__init__(context)
        self._records = records
        self._own = own
        self._willing = willing
        self._configs = MutationCache(configs, context.clock)
        self._tunnels = tunnels
        self._homes: dict[ClusterID, _Home] = {}
        self._words: dict[ClusterID, tuple[PeerConnection, ClusterID | None]] = {}
        self._said: dict[tuple[ClusterID, ClusterID], PeerConnection] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of peers, the exchanges with them, and their tunnels."""
        yield from super().sources()
        # A peer is a home, and the other lender of other homes.
        yield mapped(self._changes.of(Queue.DIRECT), self._homes_of)
        yield watch(self._configs.informer, self._config_changed)
        yield watch(self._tunnels, self._tunnel_changed)

    def _config_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[ClusterID]:
        if new is None:
            self._configs.forget(key)
        # The peer as a home, and the homes to which it is the other lender.
        yield ClusterID(key.name)
        yield from self._homes_of(ClusterID(key.name), old)

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[ClusterID]:
        before, after = (None if one is None else (one.status.phase, one.status.direct) for one in (old, new))
        return self._homes_of(ClusterID(key.name)) if before != after else ()

    def _homes_of(self, other: ClusterID, before: NetworkConfig | None = None) -> list[ClusterID]:
        """Return the homes that asked to be connected with a lender, or are."""
        records = (before, self._configs.get(Key("", other)))
        granted = [ClusterID(grant.home) for one in records if one is not None for grant in one.status.direct]
        return list(dict.fromkeys([*granted, *(home for home, known in self._homes.items() if other in known.asks)]))

    # What peers send.

    def ask_received(self, peer: Peer, connection: PeerConnection, event: DirectAsk) -> None:
        """Note a request of a home; the newest one about a lender replaces those before it."""
        if event.home != peer.id:
            self._answer(connection, event, Refusal("NotYours", "a home asks for itself alone"))
            return
        known, other = self._homes.setdefault(peer.id, _Home()), ClusterID(event.peer)
        if other not in known.asks and len(known.asks) >= MAX_ASKED:
            self._answer(connection, event, Refusal("TooManyRequests", f"{MAX_ASKED} requests of yours wait"))
            return
        known.asks[other] = event
        known.asked_at[other] = self._clock.seconds()
        known.answered.pop(other, None)
        self.enqueue(peer.id, SETTLE)

    def home_ended(self, peer: Peer, event: DirectEnd) -> None:
        """Note that a home wants a direct connection no more."""
        known, other = self._homes.setdefault(peer.id, _Home()), ClusterID(event.peer)
        if other not in known.asks and len(known.asks) >= MAX_ASKED:
            oldest = next(iter(known.asks))
            del known.asks[oldest]
            known.asked_at.pop(oldest, None)
        # Judged as a request that is refused: the record is all that it takes from there.
        known.asks[other] = DirectAsk(event.home, event.peer, ENDED, [], "", [], 0)
        self.enqueue(peer.id, SETTLE)

    def lender_said(self, peer: Peer, connection: PeerConnection, event: DirectAgree | DirectEnd) -> None:
        """Note for which home another lender agreed to connect with us, or that it ended that."""
        before, home = self._words.get(peer.id), ClusterID(event.home)
        if isinstance(event, DirectAgree) and not event.reason:
            self._words[peer.id] = connection, home
        elif before is None or before[1] in (None, home):
            self._words[peer.id] = connection, None
        for one in self._homes_of(peer.id):
            self.enqueue(one, SETTLE)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone, and end what it had as a home."""
        super().forget(peer)
        self._homes.pop(peer, None)
        self._words.pop(peer, None)
        self._said = {pair: session for pair, session in self._said.items() if pair[0] != peer}
        self.enqueue(peer)

    # The step.

    async def reconcile(self, home: ClusterID) -> After | None:
        """Offer a home what this cluster has, and settle each pair that it asked for or that is on record."""
        peer = self._peers.get(home)
        session = peer.session if peer is not None else None
        known = self._homes.get(home)
        self._offer(home, peer, session)
        pairs = list(known.asks) if known is not None else []
        pairs += [ClusterID(one.metadata.name) for one in self._configs.items() if _has(one, home)]
        return soonest(*[await self._settle(home, other, session) for other in dict.fromkeys(pairs)])

    def _offer(self, home: ClusterID, peer: Peer | None, session: PeerConnection | None) -> None:
        if peer is None or session is None:
            return
        willing = self._willing and self._borrows(home) is True
        offer = offer_to(home, self._configs.get(Key("", home)), willing=willing)
        known = self._homes.get(home)
        none = offer_to(home, None, willing=False)
        before = known.offered if known is not None and known.offered is not None else (session, none)
        # Home keeps an offer from session to session; where it has none there is nothing to take back.
        is_known = before[1] == offer and (before[0] is session or offer == none)
        if is_known or session.send(offer):
            self._homes.setdefault(home, _Home()).offered = session, offer

    def _borrows(self, home: ClusterID) -> bool | None:
        """Return whether a cluster borrows here; None while that is not known."""
        record, peer = self._records.get(home), self._peers.get(home)
        if record is None or is_trust_withdrawn(record):
            return False
        if peer is None or peer.lent is None:
            return None
        return peer.lent.verdict == "Accepted"

    async def _settle(self, home: ClusterID, other: ClusterID, session: PeerConnection | None) -> After | None:
        known = self._homes.get(home)
        ask = known.asks.get(other) if known is not None else None
        waited = CONFIRM_WITHIN
        if known is not None and ask is not None:
            waited = self._clock.seconds() - known.asked_at.get(other, 0.0)
        config = self._configs.get(Key("", other))
        facts = PairFacts(
            own=self._own,
            home=home,
            other=other,
            willing=self._willing,
            borrows=self._borrows(home),
            networks=self._configs.get(Key("", home)),
            config=config,
            tunnel=self._tunnels.get(Key("", other)),
            said=self._said_by(other, home),
            waited=waited,
        )
        ended = ask is not None and ask.request == ENDED
        terms = Terms(refusal=Refusal("Ended", "home ended it")) if ended else decide(facts, ask)
        if terms.grant != facts.grant:
            if (wait := self.begin_write(home)) is not None:
                return wait
            if config is not None:
                await self._write(config, home, terms.grant)
        self._tell_lender(home, other, agreed=terms.grant is not None)
        if known is None or ask is None:
            if terms.refusal is not None and session is not None:
                session.send(DirectEnd(home, other, terms.refusal.reason, plain(terms.refusal.message)))
            return None
        if terms.refusal is not None:
            self._refuse(known, ask, terms.refusal, session)
        elif terms.agreed and session is not None:
            self._agree(known, ask, session)
        is_open = terms.grant is not None and not terms.grant.confirmed
        return After(max(0.1, CONFIRM_WITHIN - waited)) if is_open else None

    def _refuse(self, known: _Home, ask: DirectAsk, refusal: Refusal, session: PeerConnection | None) -> None:
        """Forget a request, and say why; once it was agreed to, that it ended."""
        other = ClusterID(ask.peer)
        if known.asks.get(other) is not ask:
            return  # a new request came meanwhile, and enqueued this home
        del known.asks[other]
        known.asked_at.pop(other, None)
        was_answered = known.answered.pop(other, None)
        if session is None or ask.request == ENDED:
            return
        if was_answered is not None and was_answered == (session, ask.request):
            session.send(DirectEnd(ask.home, other, refusal.reason, plain(refusal.message)))
        else:
            self._answer(session, ask, refusal)

    def _agree(self, known: _Home, ask: DirectAsk, session: PeerConnection) -> None:
        """Answer a request that is agreed to, once in a session."""
        other, answer = ClusterID(ask.peer), (session, ask.request)
        if known.answered.get(other) != answer and self._answer(session, ask, None):
            known.answered[other] = answer

    def _said_by(self, other: ClusterID, home: ClusterID) -> bool | None:
        peer, word = self._peers.get(other), self._words.get(other)
        if peer is None or peer.session is None or word is None or word[0] is not peer.session:
            return None
        return word[1] == home

    def _tell_lender(self, home: ClusterID, other: ClusterID, *, agreed: bool) -> None:
        """Tell the other lender what we agreed on, once in a session, and when that ends."""
        peer = self._peers.get(other)
        session = peer.session if peer is not None else None
        before = self._said.get((other, home))
        if session is None:
            return
        if agreed and before is not session:
            if session.send(DirectAgree(home, other, 0)):
                self._said[other, home] = session
        elif not agreed and before is not None:
            del self._said[other, home]
            if before is session:
                session.send(DirectEnd(home, other))

    async def _write(self, config: NetworkConfig, home: ClusterID, grant: DirectGrant | None) -> None:
        kept = [one for one in config.status.direct if one.home != home]
        granted = [*kept, *(() if grant is None else (grant,))]
        patch = {"status": {"direct": to_dict(granted) or None}}
        try:
            written = await self._client.patch(
                NETWORKCONFIGS, config.metadata.name, patch, subresource="status", view=NetworkConfig
            )
        except NotFound:
            return  # the watch enqueues the home when the record is gone
        self._configs.wrote(config.key, config, written)
        state = "closed" if grant is None else "open" if grant.confirmed else "agreed here"
        self._log.info(
            "the direct way of {peer}, from its pods here to those at {cluster_id}, is {state}",
            peer=home,
            cluster_id=config.metadata.name,
            state=state,
        )

    def _answer(self, session: PeerConnection, ask: DirectAsk, refusal: Refusal | None) -> bool:
        reason, message = ("", "") if refusal is None else (refusal.reason, plain(refusal.message))
        return session.send(DirectAgree(ask.home, ask.peer, ask.request, reason, message))


def _has(config: NetworkConfig, home: ClusterID) -> bool:
    return any(one.home == home for one in config.status.direct)
