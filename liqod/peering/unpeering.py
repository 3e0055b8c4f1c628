"""The end of a peering, from the deletion of its ForeignCluster until nothing is left.

Withdraw, cordon, drain, node away, acknowledged, each by the part whose matter it is; here is only looked at what is
left, and what comes last is done: the peer's records, its namespace, the finalizer. This cluster's own work is waited
for, the peer as long as the order says; one that was not told has a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.workqueue import WorkQueue
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NAMESPACES
from liqod.model.ids import ClusterID
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, advertisement_name, tenant_namespace
from liqod.model.objects.meta import Object
from liqod.model.records.unpeering import FINALIZER, JOINED, ORDER, Kind, Order, Tombstone, is_trust_withdrawn, order_of
from liqod.model.records.views import ForeignCluster
from liqod.model.timestamps import rfc3339
from liqod.peering.lending.advertiser import UNPEERED
from liqod.peering.records.foreignclusters import Records
from liqod.peering.records.leftovers import Traces
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.session.lifecycle import Acknowledged, Unpeered, WaitingFor, Withdrawing, owed_acknowledgement
from liqod.peering.session.peer import Peer
from liqod.peering.trust.pairing import Tokens
from liqod.peering.trust.withdrawals import Withdrawals
from liqod.wire.events import Bye, Withdrawn

LOOK: Final = 0.5
"""Seconds between two looks at what no watch tells."""
LOCAL: Final = 120.0
"""Seconds after which the end goes on although something of this cluster is left: its own parts need 40."""


class Endings:
    """Ends peerings; ``process`` is the work on one peer."""

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        peers: Mapping[ClusterID, Peer],
        records: Records,
        tombstones: Tombstones,
        traces: Traces,
        *,
        tokens: Tokens,
        withdrawals: Withdrawals,
    ) -> None:
        self.queue: WorkQueue[ClusterID] = WorkQueue(clock, "endings")
        self._client = client
        self._clock = clock
        self._peers = peers
        self._records = records
        self._tombstones = tombstones
        self._traces = traces
        self._tokens = tokens
        self._withdrawals = withdrawals

    async def _follow(self, peer: Peer, record: ForeignCluster, kind: Kind) -> None:
        """End a peering because the peer does."""
        patch = {"metadata": {"annotations": {ORDER: Order(kind).render()}}}
        try:
            await self._client.patch(FOREIGNCLUSTERS, peer.id, patch, view=None)
        except NotFound:
            return
        await self._client.delete(FOREIGNCLUSTERS, peer.id, uid=record.metadata.uid)

    def acknowledge(self, peer: Peer) -> None:
        """Tell a lender that took back what it lent us that nothing of it is in use any more, once that is so."""
        owed = owed_acknowledgement(peer.state)
        if owed is None or peer.session is None:
            return
        if self._traces.is_clear(peer.id, self._records.offer_of(peer.id)):
            if peer.session.send(Withdrawn(owed, "lender")):
                peer.advance(Acknowledged())
            self.queue.add(peer.id)

    async def process(self, peer_id: ClusterID) -> float | None:
        """Take the next step; returns when to look again, None when something will tell or it is over."""
        peer, record = self._peers.get(peer_id), self._records.get(peer_id)
        if peer is None or record is None:
            return None
        if not record.metadata.deleting:
            if isinstance(peer.state, Unpeered):
                await self._follow(peer, record, peer.state.kind)
            return None
        if FINALIZER not in record.metadata.finalizers or not isinstance(peer.state, Withdrawing):
            return None
        passed = self._clock.seconds() - peer.state.since
        order = order_of(record.metadata.annotations)
        self.acknowledge(peer)
        left = self._own_work(peer, peer.state)
        # A lender must never leave rights behind: a borrower whose peering ended could go on using them.
        if left and (passed < LOCAL or peer.state.dismissal_owed):
            return self._wait(peer, f"waiting for {', '.join(left)}", LOOK)
        if left:
            self._log.warn("the peering with {peer} ends although {left} is left", peer=peer_id, left=", ".join(left))
        told = not self._must_know(peer, peer.state, record)
        rest = order.wait(connected=peer.session is not None) - passed
        if not told and not peer.state.finished and rest > 0:
            return self._wait(peer, "waiting for the peer to hand back what it uses", min(rest, 5.0))
        if not told and order.kind in ("asked", "dead"):
            await self._bury(peer_id, record, "us")
        elif JOINED in record.metadata.annotations:
            await self._bury(peer_id, record, "us" if order.kind in ("asked", "dead") else "peer", told=True)
        return await self._finish(peer, record, passed)

    def _wait(self, peer: Peer, sentence: str, seconds: float) -> float:
        if isinstance(peer.state, Withdrawing) and peer.state.waiting_for != sentence:
            peer.advance(WaitingFor(sentence))
            self._records.poke(peer.id)
        return seconds

    def _own_work(self, peer: Peer, state: Withdrawing) -> list[str]:
        """Return what this cluster itself still has to do, the peer's part of it being bounded in time as well."""
        left = self._traces.of(peer.id)
        if peer.credential:
            left.append("the credential")
        if peer.admitting or state.dismissal_owed:
            left.append("what the peer runs here")
        return left

    def _must_know(self, peer: Peer, state: Withdrawing, record: ForeignCluster) -> bool:
        """Whether the peer still relies on the peering, as far as is known here."""
        if not record.spec.fingerprint or state.finished or not state.ever_connected:
            return False
        return not (peer.acknowledged and state.unpeered_by_peer and state.owed is None)

    async def _bury(self, peer_id: ClusterID, record: ForeignCluster, by: str, *, told: bool = False) -> None:
        now = rfc3339(wall_clock(self._clock)())
        tombstone = Tombstone(
            fingerprint=record.spec.fingerprint,
            at=now,
            by="us" if by == "us" else "peer",
            told=now if told else "",
            joined=JOINED in record.metadata.annotations,
        )
        known = self._tombstones.get(peer_id)
        if known is not None and known.distrusted:
            return  # says more, and stays longer
        if known is None or msgspec.structs.replace(known, at=now, told=tombstone.told) != tombstone:
            await self._tombstones.put(peer_id, tombstone)

    async def _finish(self, peer: Peer, record: ForeignCluster, passed: float) -> float | None:
        if is_trust_withdrawn(record) and not self._withdrawals.is_remembered(peer.id):
            self._withdrawals.queue.add(peer.id)
            return self._wait(peer, "waiting until it is noted that the key is not trusted any more", LOOK)
        if record.spec.fingerprint:
            await self._tokens.revoke(record.spec.fingerprint)
        if peer.session is not None:
            peer.session.end(Bye(UNPEERED, "this cluster ended the peering"))
        peer.received = None
        await self._client.delete(ADVERTISEMENTS, advertisement_name(peer.id))
        if not await self._namespace_is_gone(peer.id) and passed < LOCAL:
            return self._wait(peer, f"waiting for namespace {tenant_namespace(peer.id)} to go", LOOK)
        if not await self._records.release(record):
            return LOOK
        self._log.info("the peering with {peer} is over", peer=peer.id)
        return None

    async def _namespace_is_gone(self, peer: ClusterID) -> bool:
        name = tenant_namespace(peer)
        try:
            found = await self._client.get(NAMESPACES, name, view=Object)
        except NotFound:
            return True
        labels = found.metadata.labels
        if labels.get(REMOTE_CLUSTER_LABEL) != peer or TENANT_NAMESPACE_LABEL not in labels:
            return True  # somebody else's
        if not found.metadata.deleting:
            await self._client.delete(NAMESPACES, name, uid=found.metadata.uid)
        return False
