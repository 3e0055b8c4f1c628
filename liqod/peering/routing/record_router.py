"""Routes changes of records and nodes, as watches show them, to the controllers that depend on them."""

from __future__ import annotations

from collections.abc import Callable

from liqod.audit.events import AuditEvent, Type
from liqod.flow.clocks import reactor_time
from liqod.kube.cache.informer import Informer
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.node import Node
from liqod.model.records.invitations import invitation_name
from liqod.model.records.unpeering import ORDER
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode
from liqod.model.timestamps import parse_rfc3339
from liqod.peering.changes import Change
from liqod.peering.controller import PeeringContext
from liqod.peering.records.status import was_authenticated
from liqod.peering.routing.controllers import Controllers, Watches
from liqod.peering.routing.decision_router import DecisionRouter
from liqod.peering.session.lending import Lending
from liqod.peering.session.lifecycle import RecordGone, RecordObserved
from liqod.peering.session.peer import Peer
from liqod.peering.sessions import Sessions
from liqod.peering.trust.pairing import Secret
from liqod.wire.events import Bye


class RecordRouter:
    """Subscribes to the informers, and notifies of what changed."""

    def __init__(
        self,
        *,
        context: PeeringContext,
        controllers: Controllers,
        sessions: Sessions,
        decisions: DecisionRouter,
    ) -> None:
        self._clock = context.clock
        self._peers = context.peers
        self._audit = context.audit
        self._changes = context.changes
        self._usages = context.usages
        self._controllers = controllers
        self._sessions = sessions
        self._decisions = decisions
        self._ends: list[Callable[[], None]] = []

    def start(self, watches: Watches, invitations: Informer[Secret]) -> None:
        """Route the existing objects, and every later change."""
        self._ends = [
            watches.clusters.subscribe(self._cluster_changed),
            watches.advertisements.subscribe(self._advertisement_changed),
            watches.virtual_nodes.subscribe(self._virtual_node_changed),
            watches.nodes.subscribe(self._node_changed),
            watches.tables.subscribe(self._table_changed),
            invitations.subscribe(self._invitation_changed),
        ]

    def stop(self) -> None:
        """Unsubscribe."""
        for end in self._ends:
            end()
        self._ends = []

    def _cluster_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        cluster_id = ClusterID(key.name)
        # The watch may not show our own write of the pin yet.
        record = self._controllers.records.get(cluster_id)
        if record is None:
            self._cluster_gone(cluster_id)
            return
        if old is not None and old.metadata.uid != record.metadata.uid:
            self._cluster_gone(cluster_id)  # another UID: deleted and created again while the watch was interrupted
            old = None
        peer = self._sessions.peer(cluster_id)
        if old is None:
            if peer.lent is None and record.status.lent is not None:
                peer.lending = Lending(lent=record.status.lent)
            peer.name = peer.name or record.status.cluster_name
        # The status is read once, at the start: later it may be about a key that is no longer trusted.
        proven = old is None and was_authenticated(record)
        self._pin_changed(peer, record)
        ends = record.metadata.deleting
        peer.advance(
            RecordObserved(
                pinned=bool(record.spec.fingerprint),
                deleting=ends,
                authenticated=proven,
                lent=peer.lent is not None,
                since=self._deleted_at(record, is_first=old is None),
            )
        )
        if ends and (old is None or not old.metadata.deleting):
            self._changes.notify(Change.RECORD_DELETING, cluster_id)
        elif old is not None and new is not None and old.spec == new.spec:
            if ends and old.metadata.annotations.get(ORDER) != record.metadata.annotations.get(ORDER):
                self._changes.notify(Change.ORDER_CHANGED, cluster_id)
            return
        self._changes.notify(Change.RECORD_CHANGED, cluster_id)
        unpinned = old is not None and old.spec.fingerprint != "" and not ends
        if self._sessions.ready and (record.spec.fingerprint or record.spec.endpoints or unpinned):
            peer.dialer.link.wake()

    def _deleted_at(self, record: ForeignCluster, *, is_first: bool) -> float:
        """Return when the deletion of a record began, in seconds of the reactor's clock; now without a deletion.

        A deletion that this daemon sees begin is timed by its own clock. One that it finds after its start is dated by
        the API server: else a peer would get its whole time again from each daemon.
        """
        now = self._clock.seconds()
        date = parse_rfc3339(record.metadata.deletion_timestamp or "") if is_first else None
        return min(now, reactor_time(date, self._clock)) if date is not None else now

    def _pin_changed(self, peer: Peer, record: ForeignCluster) -> None:
        pinned = Fingerprint(record.spec.fingerprint)
        before = self._controllers.records.pins.get(peer.id)
        if before is not None and before != pinned:
            # A credential received with one key must not be used for the key that is trusted after it.
            self._controllers.borrowing.credential_store.forget(peer.id)
        if pinned:
            self._controllers.records.pins[peer.id] = pinned
            # Keys that this daemon pinned itself are in ``pins`` already, or are just being written; at its start every
            # key is a known one.
            pending = self._controllers.records.pinning.get(peer.id)
            is_own = pending is not None and pending.key == pinned
            if before != pinned and not is_own and self._sessions.ready:
                type: Type = "TrustGranted" if before is None else "KeyChanged"
                self._audit.record(AuditEvent(type, "Administrator", peer=peer.id, fingerprint=pinned))
            if before != pinned and peer.problem is not None and peer.problem.reason == "TrustPending":
                peer.problem = None
        elif (former := self._controllers.records.pins.pop(peer.id, None)) is not None:
            self._controllers.trust.distrust.unpinned(peer.id, former)
            # The seen key may be outdated: wait for the one that the peer shows in its next attempt.
            peer.seen = None
        session = peer.session
        if session is not None and session.certificate is not None and session.certificate.fingerprint != pinned:
            announced = record.spec.announced_key
            if announced is not None and (announced.fingerprint, announced.by) == (pinned, before):
                session.end(Bye("KeyRotated", "another key took the place of this one, as was announced"))
            else:
                session.end(Bye("TrustPending", "the key is not trusted any more"))

    def _cluster_gone(self, cluster_id: ClusterID) -> None:
        former = self._controllers.records.pins.pop(cluster_id, None)
        if former is not None:
            self._audit.record(AuditEvent("TrustWithdrawn", "RecordDeleted", peer=cluster_id, fingerprint=former))
        self._usages.forget(cluster_id)
        peer = self._peers.get(cluster_id)
        if peer is None:
            return
        peer.advance(RecordGone())
        self._controllers.forget(cluster_id)
        self._sessions.record_deleted(peer)

    def _advertisement_changed(self, _: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        record = new or old
        if record is None:
            return
        peer = ClusterID(record.spec.cluster_id)
        self._changes.notify(Change.ADVERTISEMENT_CHANGED, peer)
        if new is None:
            self._decisions.forget(peer)
            known = self._peers.get(peer)
            cluster = self._controllers.records.get(peer)
            ends = cluster is None or cluster.metadata.deleting
            if known is not None and known.received is not None and not ends:
                self._changes.notify(Change.ADVERTISEMENT_DELETED, peer)

    def _virtual_node_changed(self, _: Key, old: VirtualNode | None, new: VirtualNode | None) -> None:
        record = new or old
        if record is None:
            return
        # Not the name: a lender may have further virtual nodes, whose records are named otherwise.
        peer = ClusterID(record.spec.cluster_id)
        self._changes.notify(Change.NODE_STATUS_CHANGED, peer)
        if old is None or new is None:
            self._changes.notify(Change.NODE_ADDED_OR_REMOVED, peer)
            self._leftovers_changed(peer)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None and old.virtual:
            self._leftovers_changed(ClusterID(old.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")))

    def _table_changed(self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None) -> None:
        if new is None:
            self._leftovers_changed(ClusterID(key.name))

    def _invitation_changed(self, key: Key, old: Secret | None, new: Secret | None) -> None:
        issuer = ClusterID(key.name.removeprefix(invitation_name(ClusterID(""))))
        peer = self._peers.get(issuer)
        if new is not None and peer is not None and self._sessions.ready:
            peer.dialer.link.wake()

    def _leftovers_changed(self, peer_id: ClusterID) -> None:
        """Delete the credential and acknowledge the lender's withdrawal once nothing of a virtual node is left."""
        peer = self._peers.get(peer_id)
        if peer is not None and not self._controllers.leftovers.of(peer_id):
            self._controllers.borrowing.advertisements.send_verdict(peer)
            self._controllers.unpeering.acknowledge(peer)
            self._changes.notify(Change.LEFTOVERS_GONE, peer_id)
