"""What the watches of records and nodes tell, and to which parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import find_condition
from liqod.model.objects.node import Node
from liqod.model.records.invitations import invitation_name
from liqod.model.records.unpeering import ORDER
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode
from liqod.peering.routing.parts import Parts
from liqod.peering.session.lifecycle import RecordGone, RecordObserved
from liqod.peering.session.peer import Peer
from liqod.peering.sessions import Sessions
from liqod.peering.trust.pairing import Secret
from liqod.wire.events import Bye


class RecordRouter:
    """Passes on what changed. ``decide`` has offers looked at anew, ``undecided`` forgets what was said to one."""

    def __init__(
        self,
        *,
        parts: Parts,
        peers: Mapping[ClusterID, Peer],
        sessions: Sessions,
        decide: Callable[[ClusterID], None],
        undecided: Callable[[ClusterID], object],
        clock: IReactorTime,
    ) -> None:
        self._clock = clock
        self._parts = parts
        self._peers = peers
        self._sessions = sessions
        self._decide = decide
        self._undecided = undecided
        self._ends: list[Callable[[], None]] = []

    def start(
        self,
        clusters: Informer[ForeignCluster],
        advertisements: Informer[Advertisement],
        virtual_nodes: Informer[VirtualNode],
        nodes: Informer[Node],
        tables: Informer[NamespaceNattingTable],
        invitations: Informer[Secret],
    ) -> None:
        """Tell what is there, and from now on what changes."""
        self._ends = [
            clusters.subscribe(self._cluster_changed),
            advertisements.subscribe(self._advertisement_changed),
            virtual_nodes.subscribe(self._virtual_node_changed),
            nodes.subscribe(self._node_changed),
            tables.subscribe(self._table_changed),
            invitations.subscribe(self._invitation_changed),
        ]

    def stop(self) -> None:
        """Tell nothing more."""
        for end in self._ends:
            end()
        self._ends = []

    def _cluster_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        cluster_id = ClusterID(key.name)
        # The cache may still be behind our own pin.
        record = self._parts.records.get(cluster_id)
        if record is None:
            self._cluster_gone(cluster_id)
            return
        if old is not None and old.metadata.uid != record.metadata.uid:
            self._cluster_gone(cluster_id)  # and made again, while nothing was heard of either
            old = None
        peer = self._sessions.peer(cluster_id)
        if old is None:
            peer.lent = peer.lent if peer.lent is not None else record.status.lent
            peer.name = peer.name or record.status.cluster_name
        # What the status says counts once: later it may be of a key that is not trusted any more.
        proven = find_condition(record.status.conditions, "Authenticated") if old is None else None
        self._pin_changed(peer, record)
        ends = record.metadata.deleting
        peer.advance(
            RecordObserved(
                pinned=bool(record.spec.fingerprint),
                deleting=ends,
                authenticated=proven is not None and proven.status == "True",
                lent=peer.lent is not None,
                now=self._clock.seconds(),
            )
        )
        if ends and (old is None or not old.metadata.deleting):
            self._parts.unpeering.enqueue(cluster_id)
            self._parts.accept.enqueue(cluster_id)
        elif old is not None and new is not None and old.spec == new.spec:
            if ends and old.metadata.annotations.get(ORDER) != record.metadata.annotations.get(ORDER):
                self._parts.credential_issuer.enqueue(
                    cluster_id
                )  # whoever was patient is so no more, or the other way round
                self._parts.unpeering.enqueue(cluster_id)
            return
        self._parts.records.enqueue(cluster_id)
        self._parts.advertiser.enqueue(cluster_id)
        self._parts.credential_issuer.enqueue(cluster_id)
        self._decide(cluster_id)
        unpinned = old is not None and old.spec.fingerprint != "" and not ends
        if self._sessions.ready and (record.spec.fingerprint or record.spec.endpoints or unpinned):
            peer.dialer.link.wake()
        self._parts.distrust.enqueue(cluster_id)

    def _pin_changed(self, peer: Peer, record: ForeignCluster) -> None:
        pinned = Fingerprint(record.spec.fingerprint)
        before = self._parts.records.pins.get(peer.id)
        if before is not None and before != pinned:
            self._parts.credential_store.forget(
                peer.id
            )  # what a key said must not count for whoever is trusted after it
        if pinned:
            self._parts.records.pins[peer.id] = pinned
            if before != pinned and peer.problem is not None and peer.problem.reason == "TrustPending":
                peer.problem = None
        elif (former := self._parts.records.pins.pop(peer.id, None)) is not None:
            self._parts.distrust.unpinned(peer.id, former)
            # Which key it has now is to be seen anew: the one that was trusted may be the wrong one to show.
            peer.seen = None
        session = peer.session
        if session is not None and session.certificate is not None and session.certificate.fingerprint != pinned:
            announced = record.spec.announced_key
            if announced is not None and (announced.fingerprint, announced.by) == (pinned, before):
                session.end(Bye("KeyRotated", "another key took the place of this one, as was announced"))
            else:
                session.end(Bye("TrustPending", "the key is not trusted any more"))

    def _cluster_gone(self, cluster_id: ClusterID) -> None:
        self._parts.records.pins.pop(cluster_id, None)
        peer = self._peers.get(cluster_id)
        if peer is None:
            return
        peer.advance(RecordGone())
        if self._parts.networks is not None:
            self._parts.networks.forget(cluster_id)
        self._parts.advertiser.forget(cluster_id)
        self._parts.credential_issuer.forget(cluster_id)
        self._parts.credential_store.forget(cluster_id)
        self._parts.advertisements.forget(cluster_id)
        self._parts.next_keys.forget(cluster_id)
        self._sessions.record_deleted(peer)

    def _advertisement_changed(self, _: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        record = new or old
        if record is None:
            return
        peer = ClusterID(record.spec.cluster_id)
        self._parts.records.enqueue(peer)
        if new is None:
            self._undecided(peer)
            known = self._peers.get(peer)
            cluster = self._parts.records.get(peer)
            ends = cluster is None or cluster.metadata.deleting
            if known is not None and known.received is not None and not ends:
                self._parts.advertisements.enqueue(peer)  # whoever deleted the record wants it decided afresh
        self._decide(peer)

    def _virtual_node_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> None:
        peer = ClusterID(key.name)
        self._parts.records.enqueue(peer)
        if old is None or new is None:
            self._parts.accept.enqueue(peer)
            self._trace_changed(peer)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None and old.virtual:
            self._trace_changed(ClusterID(old.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")))

    def _table_changed(self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None) -> None:
        if new is None:
            self._trace_changed(ClusterID(key.name))

    def _invitation_changed(self, key: Key, old: Secret | None, new: Secret | None) -> None:
        issuer = ClusterID(key.name.removeprefix(invitation_name(ClusterID(""))))
        peer = self._peers.get(issuer)
        if new is not None and peer is not None and self._sessions.ready:
            peer.dialer.link.wake()

    def _trace_changed(self, peer_id: ClusterID) -> None:
        """When the last trace of a virtual node is gone, the credential goes and the lender is told."""
        peer = self._peers.get(peer_id)
        if peer is not None and not self._parts.leftovers.of(peer_id):
            self._parts.accept.enqueue(peer_id)
            self._parts.advertisements.send_verdict(peer)
            self._parts.unpeering.acknowledge(peer)
            self._parts.unpeering.enqueue(peer_id)
