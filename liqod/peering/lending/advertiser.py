"""Sends each peer its offer (Advertise), renews it, and withdraws it.

Level-triggered per peer: at most one Advertise is unanswered, and after the answer the next offer is composed from the
newest capacity, so that offers never queue up. An offer is sent again when it changed enough (at most once a second),
and every third of its TTL. An offer is on record before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from liqod.config.schema import SharingSettings
from liqod.flow.controller import After, Source, observe
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer import Offer
from liqod.model.records.views import LentSlice, PeerSharing
from liqod.model.timestamps import parse_rfc3339
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.lending import advert, slice_decider
from liqod.peering.lending.capacity import FreeCapacity
from liqod.peering.lending.cluster_info import ClusterInfo
from liqod.peering.ports import Tenants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import Advertise, Verdict, Withdraw

UNPEERED: Final = "Unpeered"
"""The reason of a Withdraw that ends the whole peering."""
ANSWER: Final = 30.0
"""Seconds without a verdict after which an offer is sent again."""
PACE: Final = 1.0
"""Minimum seconds between two offers to one peer."""


@attrs.define
class _Sent:
    """The last offer sent to a peer: ``through`` is the session, ``answered`` whether the peer sent a verdict."""

    offer: Offer | None = None
    seq: int = 0
    at: float = -1e9
    through: PeerConnection | None = None
    answered: bool = True


class Advertiser(PeerController):
    """Sends offers to peers, and withdraws them."""

    name = "offers"
    queue = Queue.OUR_OFFER

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        capacity: FreeCapacity,
        cluster_info: ClusterInfo,
        sharing: SharingSettings,
        tenants: Tenants,
        epoch: int,
        directions: DirectionPolicy,
    ) -> None:
        super().__init__(context)
        self.epoch = epoch
        self._records = records
        self._capacity = capacity
        self._cluster_info = cluster_info
        self._sharing = sharing
        self._limits = quantity.parse_all(sharing.limits)
        self._ttl = max(1, int(sharing.ttl))
        self._tenants = tenants
        self._directions = directions
        self._sent: dict[ClusterID, _Sent] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of peers, and all connected peers when what can be offered may have changed."""
        yield from super().sources()
        yield observe(self._capacity.revision, self._connected)
        yield observe(self._cluster_info.state, self._connected)

    def _connected(self, _: object) -> Iterable[ClusterID]:
        return [peer.id for peer in self._peers.values() if peer.session is not None]

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._sent.pop(peer, None)

    def verdict_received(self, peer: Peer, verdict: Verdict) -> bool:
        """Store the verdict on our offer; returns False when it is about another offer."""
        sent = self._sent.get(peer.id)
        if sent is None or verdict.epoch != self.epoch or verdict.seq != sent.seq:
            return False
        sent.answered = True
        peer.lending = peer.lending.answered(verdict.decision, verdict.reason)
        self.enqueue(peer.id)
        return True

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Send an offer or a withdrawal that is due; returns when to reconcile again, None for the next event."""
        peer = self._peers.get(peer_id)
        connection = peer.session if peer is not None else None
        record = self._records.get(peer_id)
        # An offer must be on record before it is sent: without a record this waits for one.
        if peer is None or connection is None or record is None:
            return None
        if self._directions.of(record).lends:
            peer.lending = attrs.evolve(peer.lending, withdrawal=None)
        else:
            self._withdraw(peer, connection)
            return None
        if not (self._capacity.known and self._cluster_info.known):
            return None
        now = self._clock.seconds()
        sent = self._sent.setdefault(peer_id, self._from_record(peer))
        if sent.through is connection:
            if not sent.answered and now < sent.at + ANSWER:
                return After(sent.at + ANSWER - now)
            if now < sent.at + PACE:
                return After(sent.at + PACE - now)
        if not connection.writable:
            return After(PACE)
        offer = self._offer(peer_id)
        news = advert.worth_sending(sent.offer, offer, self._sharing.threshold)
        due = sent.at + self._ttl / 3
        if sent.through is connection and not news and sent.answered and now < due:
            return After(due - now)
        return await self._send(peer, connection, sent, offer if news or sent.offer is None else sent.offer)

    async def _send(self, peer: Peer, connection: PeerConnection, sent: _Sent, offer: Offer) -> After | None:
        if offer != sent.offer or sent.seq == 0:
            sent.seq += 1
        peer.lending = peer.lending.offered(offer.resources, self.epoch, sent.seq)
        await self._records.sync(peer, urgent=True)
        if peer.session is not connection:
            return None
        sent.offer, sent.at, sent.through, sent.answered = offer, self._clock.seconds(), connection, False
        if not connection.send(Advertise(self.epoch, sent.seq, self._ttl, offer)):
            return None
        return After(min(ANSWER, self._ttl / 3))

    def _withdraw(self, peer: Peer, connection: PeerConnection) -> None:
        """Withdraw the offer, once for each session and reason until the peer acknowledges."""
        self._sent.pop(peer.id, None)
        lent = peer.lent
        record = self._records.get(peer.id)
        ends = record is not None and record.metadata.deleting
        reason = UNPEERED if ends else "PeeringDisabled"
        news = lent is not None and lent.verdict != "Withdrawn"
        if lent is not None and news:
            peer.lending = peer.lending.retracted(reason)
            self._records.enqueue(peer.id)
        if not (news or ends or (lent is not None and lent.tenant_namespace)):
            return
        if peer.lending.is_withdrawn(connection, reason):
            return
        if connection.send(Withdraw(self.epoch, "lender", reason)):
            peer.lending = peer.lending.withdrawal_sent(connection, reason)

    def _offer(self, peer: ClusterID) -> Offer:
        record = self._records.get(peer)
        own = record.spec.sharing if record is not None else PeerSharing()
        percentage, limits = advert.terms(self._sharing.percentage, self._limits, own.percentage, own.limits)
        free = advert.without(self._capacity.free(), self._promised(peer))
        granted = slice_decider.total(self._slices(peer))
        offer = self._compose(advert.share(free, self._tenants.used_by(peer), percentage, limits, granted))
        order = record.spec.reclaim if record is not None else None
        return offer if order is None else advert.reclaimed(offer, parse_rfc3339(order.by))

    def _slices(self, peer: ClusterID) -> Sequence[LentSlice]:
        known = self._peers.get(peer)
        return known.lent.slices if known is not None and known.lent is not None else ()

    def _promised(self, peer: ClusterID) -> Resources:
        """Return what the slices of all others have, and their pods do not use yet."""
        others = ((one, self._slices(one)) for one in self._peers if one != peer)
        return quantity.add(
            slice_decider.unused(slices, self._tenants.used_by(other)) for other, slices in others if slices
        )

    def _compose(self, resources: Resources) -> Offer:
        about = self._cluster_info.about()
        return advert.compose(
            resources,
            self._sharing.labels,
            self._sharing.prices,
            version=about.version,
            storage_classes=about.storage_classes,
            ingress_classes=about.ingress_classes,
            load_balancer_classes=self._sharing.load_balancer_classes,
            gateways=about.gateways,
        )

    def _from_record(self, peer: Peer) -> _Sent:
        """Return what this daemon sent before a restart: an offer that still holds is sent again unchanged."""
        lent = peer.lent
        if lent is None or not lent.resources or lent.verdict == "Withdrawn":
            return _Sent()
        try:
            return _Sent(self._compose(quantity.parse_all(lent.resources)))
        except ValueError:
            return _Sent()
