"""Ends a peering: from the deletion of its ForeignCluster until nothing is left.

Other controllers withdraw, cordon, drain, and delete the node; this one checks what is left, and takes the last steps:
the peer's records, its namespace, the finalizer. It waits for this cluster's own work, and for the peer as long as the
order allows; a peer that could not be notified gets a tombstone.
"""

from __future__ import annotations

from typing import Final

import msgspec
from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After
from liqod.kube.errors import NotFound
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NAMESPACES
from liqod.model.ids import ClusterID
from liqod.model.names import advertisement_name, tenant_namespace
from liqod.model.objects.granted_namespace import is_tenant_namespace
from liqod.model.objects.meta import Object
from liqod.model.records.unpeering import (
    FINALIZER,
    ORDER,
    PINNED_BY_SETTINGS,
    Kind,
    Tombstone,
    UnpeeringOrder,
    is_trust_withdrawn,
    order_of,
)
from liqod.model.records.views import ForeignCluster
from liqod.model.timestamps import rfc3339
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.lending.advertiser import UNPEERED
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.session.lifecycle import Acknowledged, Unpeered, WaitingFor, Withdrawing, owed_acknowledgement
from liqod.peering.session.peer import Peer
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.records import TrustRecords
from liqod.wire.events import Bye, Withdrawn

POLL: Final = 0.5
"""Seconds between two checks of state that is not watched, at first; ordinarily an end takes 40 s."""
MAX_POLL: Final = 30.0
"""The same for an end that takes long."""


class UnpeeringController(PeerController):
    """Ends peerings, one step of one peer at a time."""

    name = "unpeering"
    queue = Queue.UNPEERING

    _log = Logger()

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        leftovers: Leftovers,
        trust: TrustRecords,
        distrust: DistrustRecorder,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._tombstones = trust.tombstones
        self._leftovers = leftovers
        self._tokens = trust.tokens
        self._distrust = distrust

    async def _delete_record(self, peer: Peer, record: ForeignCluster, kind: Kind) -> None:
        """Delete our record because the peer ended the peering."""
        # The annotation first: the object stays until its finalizer is removed, and is read with the order by then.
        patch = {"metadata": {"annotations": {ORDER: UnpeeringOrder(kind).render()}}}
        try:
            await self._client.patch(FOREIGNCLUSTERS, peer.id, patch, view=None)
        except NotFound:
            return
        # With a finalizer this only sets deletionTimestamp: the record goes when the finalizer is removed (Kubernetes,
        # "Finalizers").
        await self._client.delete(FOREIGNCLUSTERS, peer.id, uid=record.metadata.uid)

    def acknowledge(self, peer: Peer) -> None:
        """Acknowledge a lender's withdrawal once nothing that it lent us is in use."""
        owed = owed_acknowledgement(peer.state)
        if owed is None or peer.session is None:
            return
        if self._leftovers.is_clear(peer.id, self._records.offer_of(peer.id)):
            if peer.session.send(Withdrawn(owed, "lender")):
                peer.advance(Acknowledged())
            self.enqueue(peer.id)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Take the next step; returns when to reconcile again, None for the next event or when it is over."""
        peer, record = self._peers.get(peer_id), self._records.get(peer_id)
        if peer is None or record is None:
            return None
        if not record.metadata.deleting:
            if isinstance(peer.state, Unpeered):
                await self._delete_record(peer, record, peer.state.kind)
            return None
        if FINALIZER not in record.metadata.finalizers or not isinstance(peer.state, Withdrawing):
            return None
        passed = self._clock.seconds() - peer.state.since
        order = order_of(record.metadata.annotations)
        self.acknowledge(peer)
        left = self._own_leftovers(peer, peer.state)
        # Without a time limit: the record with its finalizer is the only note of what is still to be done, for this
        # daemon and for any that is started later.
        if left:
            return self._wait(peer, f"waiting for {', '.join(left)}", _poll(passed))
        peer_informed = not self._peer_relies_on_us(peer, peer.state, record)
        rest = order.wait(connected=peer.session is not None) - passed
        if not peer_informed and rest > 0:
            return self._wait(peer, "waiting for the peer to hand back what it uses", min(rest, 5.0))
        if not peer_informed and order.kind in ("asked", "dead"):
            await self._write_tombstone(peer_id, record, "us")
        elif PINNED_BY_SETTINGS in record.metadata.annotations:
            await self._write_tombstone(
                peer_id, record, "us" if order.kind in ("asked", "dead") else "peer", peer_informed=True
            )
        return await self._finish(peer, record, passed)

    def _wait(self, peer: Peer, sentence: str, seconds: float) -> After:
        if isinstance(peer.state, Withdrawing) and peer.state.waiting_for != sentence:
            peer.advance(WaitingFor(sentence))
            self._records.enqueue(peer.id)
        return After(seconds)

    def _own_leftovers(self, peer: Peer, state: Withdrawing) -> list[str]:
        """Return what this cluster itself still has to do, including steps of the peer that are bounded in time."""
        left = self._leftovers.of(peer.id)
        if peer.credential:
            left.append("the credential")
        if peer.lending.admitting or state.dismissal_owed:
            left.append("what the peer runs here")
        return left

    def _peer_relies_on_us(self, peer: Peer, state: Withdrawing, record: ForeignCluster) -> bool:
        """Return whether the peer may still rely on the peering."""
        if not record.spec.fingerprint or state.finished or not state.ever_connected:
            return False
        return not (peer.lending.acknowledged and state.unpeered_by_peer and state.owed is None)

    async def _write_tombstone(
        self, peer_id: ClusterID, record: ForeignCluster, by: str, *, peer_informed: bool = False
    ) -> None:
        now = rfc3339(wall_clock(self._clock)())
        tombstone = Tombstone(
            fingerprint=record.spec.fingerprint,
            at=now,
            by="us" if by == "us" else "peer",
            notified=now if peer_informed else "",
            by_settings=PINNED_BY_SETTINGS in record.metadata.annotations,
        )
        known = self._tombstones.get(peer_id)
        if known is not None and known.distrusted:
            return  # the existing tombstone is stronger, and is kept longer
        if known is None or msgspec.structs.replace(known, at=now, notified=tombstone.notified) != tombstone:
            await self._tombstones.put(peer_id, tombstone)

    async def _finish(self, peer: Peer, record: ForeignCluster, passed: float) -> After | None:
        if is_trust_withdrawn(record) and not self._distrust.is_settled(peer.id):
            # The recorder retries by itself, with a back-off.
            return self._wait(peer, "waiting until it is recorded that the key is not trusted any more", _poll(passed))
        if record.spec.fingerprint:
            await self._tokens.revoke(record.spec.fingerprint)
        if peer.session is not None:
            peer.session.end(Bye(UNPEERED, "this cluster ended the peering"))
        peer.received = None
        await self._client.delete(ADVERTISEMENTS, advertisement_name(peer.id))
        if not await self._namespace_is_gone(peer.id):
            return self._wait(peer, f"waiting for namespace {tenant_namespace(peer.id)} to go", _poll(passed))
        if not await self._records.remove_finalizer(record):
            return After(POLL)
        self._log.info("the peering with {peer} is over", peer=peer.id)
        return None

    async def _namespace_is_gone(self, peer: ClusterID) -> bool:
        name = tenant_namespace(peer)
        try:
            found = await self._client.get(NAMESPACES, name, view=Object)
        except NotFound:
            return True
        if not is_tenant_namespace(found, peer):
            return True  # a namespace that is not ours
        if not found.metadata.deleting:
            # It terminates asynchronously: the namespace controller deletes the content before it removes the
            # finalizer "kubernetes" of the spec. So it is polled.
            await self._client.delete(NAMESPACES, name, uid=found.metadata.uid)
        return False


def _poll(passed: float) -> float:
    """Return when an end that began so many seconds ago is checked again: at intervals of a tenth of that."""
    return min(MAX_POLL, max(POLL, passed / 10))
