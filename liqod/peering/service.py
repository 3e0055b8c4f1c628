"""Peering as a whole: the parts, and what each is told of the others.

The parts know records and peers; who tells whom what is decided here and nowhere else:

    sessions -> (offers) intake -> decisions -> intake (answers), accept pipeline
             -> (verdicts) broadcaster, grants -> (credentials) keeper -> accept pipeline
    watches of records, nodes and pods -> whoever depends on them
"""

from __future__ import annotations

import random as _random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Protocol, TypeVar

import attrs
import msgspec
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.acceptance.pipeline import Ruling
from liqod.acceptance.stages import Rules
from liqod.config.schema import Settings
from liqod.flow.backoff import Backoff
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.identity.tls import PeerTLS
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.informers import Informers
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NODES,
    PODS,
    VIRTUALNODES,
)
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.invitations import invitation_name
from liqod.model.meta import find_condition
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.network import NetworkConfig
from liqod.model.records import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode
from liqod.model.unpeering import Kind
from liqod.peering.broadcaster import UNPEERED, Broadcaster
from liqod.peering.capacity import Capacity
from liqod.peering.credentials import Grants, Keeper
from liqod.peering.decisions import Decisions, is_seated, rules_of
from liqod.peering.ending import Endings
from liqod.peering.facilities import Facilities
from liqod.peering.intake import Intake
from liqod.peering.joining import Invitations, Secret, Tokens
from liqod.peering.listener import Listener
from liqod.peering.namespaces import Answers, Questions
from liqod.peering.network import Networks
from liqod.peering.overlay import Overlay
from liqod.peering.peer import Peer, is_on
from liqod.peering.pipeline import AcceptPipeline
from liqod.peering.podviews import Node, Pod
from liqod.peering.ports import Lender, Sighting
from liqod.peering.protocol import PeerConnection
from liqod.peering.records import Records
from liqod.peering.refusals import Refusals
from liqod.peering.sessions import Sessions
from liqod.peering.tombstones import Tombstones
from liqod.peering.traces import Traces
from liqod.wire.events import (
    Advertise,
    Bye,
    Credential,
    Event,
    MapNamespace,
    NamespaceMapped,
    Network,
    NetworkAck,
    ReleaseNamespace,
    Verdict,
    Withdraw,
    Withdrawn,
)

WORKERS: Final = 4
"""Peers that one part works on at a time; one peer is never worked on twice at once."""

K = TypeVar("K", bound=Hashable)


class Recorder(Protocol):
    """Where events for the user go."""

    def emit(self, regarding: Any, type: str, reason: str, message: str) -> None: ...


@attrs.frozen
class SessionView:
    """One established session, for status and metrics: who, where, who dialled, since when (seconds)."""

    peer: ClusterID
    name: str
    address: str
    role: str
    since: float
    missed_pings: int


class Peering(MultiService):
    """Sessions with peers, offers out, offers in. ``refusals`` counts what was refused, by reason."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        informers: Informers,
        settings: Settings,
        cluster_id: ClusterID,
        cluster_name: str,
        tls: PeerTLS,
        lender: Lender,
        recorder: Recorder,
        *,
        epoch: int | None = None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._reactor = reactor
        self._recorder = recorder
        self._peers: dict[ClusterID, Peer] = {}
        self._tasks = Tasks()
        self._refusals = Refusals(reactor)
        self._clusters = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._advertisements = informers.of(ADVERTISEMENTS, Advertisement)
        self._virtual_nodes = informers.of(VIRTUALNODES, VirtualNode)
        nodes = informers.of(NODES, Node)
        self._nodes = nodes
        self._tables = informers.of(NATTINGTABLES, NamespaceNattingTable)
        self._traces = Traces(self._virtual_nodes, nodes, self._tables)
        self._invitations = Invitations(client, informers, settings.kubernetes.namespace, tls.keypair.fingerprint)
        self._tombstones = Tombstones(client, reactor, settings.kubernetes.namespace)
        self._epoch = int(reactor.seconds()) if epoch is None else epoch
        offers = Overlay(self._advertisements)
        self._records = Records(
            client,
            reactor,
            self._clusters,
            offers,
            self._virtual_nodes,
            settings.peering.ping_interval,
            self._wants,
            self._peers,
        )
        # Only pods that hold something: what waits for a node or has finished would be one event more for each.
        holding = informers.of(PODS, Pod, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
        self._capacity = Capacity(nodes, holding, reactor, self._capacity_changed)
        self._facilities = Facilities(client, informers, reactor, self._tasks, self._capacity_changed)
        self._broadcaster = Broadcaster(
            reactor,
            self._peers,
            self._records,
            self._capacity,
            self._facilities,
            settings.sharing,
            lender,
            self._epoch,
            self._wants,
        )
        self._grants = Grants(reactor, self._peers, self._records, lender, self._wants)
        self._keeper = Keeper(client, reactor, self._peers, self._credential_kept, self._refusals.note)
        self._accept = AcceptPipeline(
            client, reactor, self._peers, self._records, self._keeper, self._virtual_nodes, nodes, self._traces
        )
        self._endings = Endings(client, reactor, self._peers, self._records, self._tombstones, self._traces)
        self._intake = Intake(
            client,
            reactor,
            self._peers,
            offers,
            self._decide,
            self._refusals.note,
            lambda peer: bool(self._traces.of(peer)),
        )
        rules = rules_of(settings.acceptance)
        self._decisions = Decisions(
            client, reactor, self._peers, self._records, offers, rules, self._wants, self._decided
        )
        self._networks: Networks | None = None
        if settings.network.mode != "none":
            configs = informers.of(NETWORKCONFIGS, NetworkConfig)
            self._networks = Networks(client, reactor, self._peers, configs)
        self._questions = Questions(reactor)
        self._answers = Answers(lender, self._tasks, self._records, self._wants)
        self._sessions = Sessions(
            reactor,
            settings,
            cluster_id,
            cluster_name,
            tls,
            self._epoch,
            self._refusals,
            self._tasks,
            self,
            self._records,
            self._peers,
            random,
            self._tombstones,
            Tokens(client, reactor, settings.kubernetes.namespace, tls.keypair.fingerprint),
            self._invitations,
        )
        self._listener = Listener(reactor, settings.peering.listen, tls, self._sessions.admission)
        self._ends: list[Callable[[], None]] = []
        self._stopping = False
        self._queues: list[WorkQueue[Any]] = []
        self._ruled: dict[ClusterID, Ruling] = {}
        self._tasks.setServiceParent(self)
        self._work(self._records.queue, self._records.process, "recording the state of")
        self._work(self._broadcaster.queue, self._broadcaster.process, "offering to")
        self._work(self._grants.queue, self._grants.process, "admitting")
        self._work(self._keeper.queue, self._keeper.process, "keeping the credential of")
        self._work(self._accept.queue, self._accept.process, "making the virtual node of")
        self._work(self._intake.queue, self._intake.process, "taking in the offer of")
        self._work(self._endings.queue, self._endings.process, "ending the peering with")
        self._work(self._decisions.queue, self._decisions.process, "deciding about offers:", 1)
        if self._networks is not None:
            self._work(self._networks.queue, self._networks.process, "exchanging networks with")
        self._listener.setServiceParent(self)

    def _work(self, queue: WorkQueue[K], process: Any, what: str, count: int = WORKERS) -> None:
        self._queues.append(queue)
        Workers(queue, count, process, what).setServiceParent(self)

    # For the rest of the daemon.

    @property
    def port(self) -> int:
        """The port that peers connect to; 0 while there is none."""
        return self._listener.port

    @property
    def refusals(self) -> Counter[str]:
        """How often what was refused, by reason."""
        return self._refusals.counts

    def sessions(self) -> tuple[SessionView, ...]:
        """Return the established sessions, by cluster ID."""
        return tuple(
            SessionView(
                peer.id,
                peer.name,
                peer.session.address,
                peer.session.role,
                peer.session.established_at or 0.0,
                peer.session.pulse.missed,
            )
            for _, peer in sorted(self._peers.items())
            if peer.session is not None
        )

    def update_candidates(self, candidates: Iterable[Sighting]) -> None:
        """Take over what discovery sees now, all of it."""
        self._sessions.sighted(candidates)

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Ask a lender for a place for ``local``; raises Refusal or PeerUnreachable."""
        return await self._questions.ask(
            self._peers.get(peer), peer, lambda number: MapNamespace(number, local, remote)
        )

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Tell a lender that a namespace is not needed any more; raises Refusal or PeerUnreachable."""
        await self._questions.ask(self._peers.get(peer), peer, lambda number: ReleaseNamespace(number, remote))

    def use_rules(self, rules: Rules) -> None:
        """Change the acceptance policy; what is accepted stays accepted."""
        self._decisions.rules = rules
        self._decide()

    # Life.

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._begin(), "starting to peer")

    async def _begin(self) -> None:
        records = (self._clusters, self._advertisements, self._virtual_nodes, self._nodes, self._tables)
        await self._invitations.informer.when_synced()
        await gatherResults([informer.when_synced() for informer in records], consumeErrors=True)
        await self._remember()
        if self._stopping:
            return
        self._ends = [
            self._clusters.subscribe(self._cluster_changed),
            self._advertisements.subscribe(self._advertisement_changed),
            self._virtual_nodes.subscribe(self._virtual_node_changed),
            self._nodes.subscribe(self._node_changed),
            self._tables.subscribe(self._table_changed),
            self._invitations.informer.subscribe(self._invitation_changed),
        ]
        if self._networks is not None:
            self._ends.append(self._networks.begin())
        self._capacity.start()
        self._facilities.start()
        self._sessions.begin()
        self._decide()

    async def _remember(self) -> None:
        """Learn with whom peerings were ended before anybody is let in; however long that takes."""
        backoff, attempt = Backoff(), 0
        while not self._stopping:
            try:
                await self._tombstones.load()
                return
            except KubeError as error:
                self._log.warn("cannot read whom peerings were ended with: {error}", error=str(error))
            await deferLater(self._reactor, backoff.delay(attempt, 0.5))
            attempt += 1

    def stopService(self) -> Deferred[None]:
        self._stopping = True
        for end in self._ends:
            end()
        self._ends = []
        self._capacity.stop()
        self._facilities.stop()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._sessions.stop()
        await maybeDeferred(super().stopService)
        for queue in self._queues:
            queue.close()

    # What is wanted.

    def _wants(self, record: ForeignCluster | None) -> tuple[bool, bool]:
        """Return (lends, borrows): whether we lend to the peer of a record, and whether we borrow from it."""
        settings = self._settings.peering
        if record is None:
            return is_on("Auto", settings.incoming), is_on("Auto", settings.outgoing)
        if record.metadata.deleting:
            return False, False
        return is_on(record.spec.incoming_peering, settings.incoming), is_on(
            record.spec.outgoing_peering, settings.outgoing
        )

    # What the watches tell.

    def _cluster_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        cluster_id = ClusterID(key.name)
        # The cache may still be behind our own pin.
        record = self._records.get(cluster_id)
        if record is None:
            self._cluster_gone(cluster_id)
            return
        peer = self._sessions.peer(cluster_id)
        if old is None:
            peer.lent = peer.lent if peer.lent is not None else record.status.lent
            peer.name = peer.name or record.status.cluster_name
            proven = find_condition(record.status.conditions, "Authenticated")
            peer.met = peer.met or (proven is not None and proven.status == "True")
        self._pin_changed(peer, record)
        ends = record.metadata.deleting
        if ends and (old is None or not old.metadata.deleting):
            self._endings.queue.add(cluster_id)
            self._accept.queue.add(cluster_id)
        elif old is not None and new is not None and old.spec == new.spec:
            return
        self._records.poke(cluster_id)
        self._broadcaster.queue.add(cluster_id)
        self._grants.queue.add(cluster_id)
        self._decide()
        if self._sessions.ready and (record.spec.fingerprint or record.spec.endpoints):
            peer.dialer.link.wake()
            if not ends and record.spec.fingerprint and self._tombstones.get(cluster_id) is not None:
                self._tasks.spawn(self._tombstones.drop(cluster_id), f"remembering that {cluster_id} is trusted again")

    def _pin_changed(self, peer: Peer, record: ForeignCluster) -> None:
        pinned = Fingerprint(record.spec.fingerprint)
        before = self._records.pins.get(peer.id)
        if pinned:
            self._records.pins[peer.id] = pinned
            if before != pinned and peer.doubt is not None and peer.doubt.reason == "TrustPending":
                peer.doubt = None
        else:
            self._records.pins.pop(peer.id, None)
        session = peer.session
        if session is not None and session.certificate is not None and session.certificate.fingerprint != pinned:
            session.end(Bye("TrustPending", "the key is not trusted any more"))

    def _cluster_gone(self, cluster_id: ClusterID) -> None:
        self._records.pins.pop(cluster_id, None)
        peer = self._peers.get(cluster_id)
        if peer is None:
            return
        peer.lent, peer.doubt, peer.met = None, None, False
        peer.received, peer.credential, peer.trouble, peer.ending = None, None, "", ""
        peer.withdrawal, peer.withdrawing_since, peer.owes, peer.leaving, peer.left = None, None, None, False, False
        if self._networks is not None:
            self._networks.forget(cluster_id)
        self._broadcaster.forget(cluster_id)
        self._grants.forget(cluster_id)
        self._intake.forget(cluster_id)
        self._endings.forget(cluster_id)
        if peer.session is not None:
            peer.session.end(Bye("TrustPending", "the key is not trusted any more"))
        elif not peer.sightings:
            self._sessions.forget(peer)
        elif self._sessions.ready:
            peer.dialer.link.wake()  # it is shown again as what it is now: a stranger in sight

    def _advertisement_changed(self, _: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        record = new or old
        if record is None:
            return
        peer = ClusterID(record.spec.cluster_id)
        self._records.poke(peer)
        if new is None:
            self._ruled.pop(peer, None)
            known = self._peers.get(peer)
            cluster = self._records.get(peer)
            ends = cluster is None or cluster.metadata.deleting
            if known is not None and known.received is not None and not ends:
                self._intake.queue.add(peer)  # whoever deleted the record wants it decided afresh
        self._decide()

    def _virtual_node_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> None:
        peer = ClusterID(key.name)
        self._records.poke(peer)
        if old is None or new is None:
            self._accept.queue.add(peer)
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
        if peer is not None and not self._traces.of(peer_id):
            self._accept.queue.add(peer_id)
            self._intake.answer(peer)
            self._endings.acknowledge(peer)
            self._endings.queue.add(peer_id)

    def _capacity_changed(self) -> None:
        self._broadcaster.poke_all()

    # What the parts tell.

    def _decide(self) -> None:
        self._decisions.poke()

    def _decided(self, peer_id: ClusterID, ruling: Ruling) -> None:
        before = self._ruled.get(peer_id)
        self._ruled[peer_id] = ruling
        peer = self._sessions.peer(peer_id) if self._records.get(peer_id) is not None else self._peers.get(peer_id)
        if peer is not None:
            self._intake.answer(peer)
            self._endings.acknowledge(peer)
            self._accept.queue.add(peer_id)
        if before is not None and (before.phase, before.reason) == (ruling.phase, ruling.reason):
            return
        self._records.poke(peer_id)
        self._log.info("offer of {peer}: {phase} ({reason})", peer=peer_id, phase=ruling.phase, reason=ruling.reason)

    def _credential_kept(self, peer: ClusterID) -> None:
        self._accept.queue.add(peer)

    # What the sessions tell (sessions.Followers).

    def up(self, peer: Peer) -> None:
        if self._records.get(peer.id) is not None:
            self._broadcaster.queue.add(peer.id)
        self._grants.queue.add(peer.id)
        self._endings.queue.add(peer.id)
        if self._networks is not None:
            self._networks.queue.add(peer.id)

    def down(self, peer: Peer, connection: PeerConnection) -> None:
        self._questions.broken(connection)

    def replaced(self, peer: Peer, connection: PeerConnection) -> None:
        self._questions.broken(connection)

    def heard(self, peer: Peer, connection: PeerConnection, event: Event) -> None:
        match event:
            case Advertise():
                self._intake.advertised(peer, event)
            case Verdict():
                before = peer.lent.verdict if peer.lent is not None else ""
                if self._broadcaster.answered(peer, event):
                    if event.decision == "Accepted" and before != "Accepted":
                        self._grants.tell_again(peer.id)
                    self._grants.queue.add(peer.id)
                    self._records.poke(peer.id)
            case Credential():
                offer = self._records.offer_of(peer.id)
                self._keeper.received(peer, event, accepted=offer is not None and is_seated(offer))
            case MapNamespace() | ReleaseNamespace():
                self._answers.asked(peer, connection, event)
            case Network() | NetworkAck():
                if self._networks is not None:
                    self._networks.heard(peer, event)
            case NamespaceMapped():
                self._questions.answered(connection, event)
            case Withdraw() | Withdrawn():
                self._withdrawal(peer, connection, event)
            case _:
                pass

    def _withdrawal(self, peer: Peer, connection: PeerConnection, event: Withdraw | Withdrawn) -> None:
        match event:
            case Withdraw(role="lender"):
                peer.owes = event.epoch
                if event.reason == UNPEERED:
                    self._peer_ends(peer, "by-peer")
                self._intake.withdrawn(peer, event.reason)
                if self._records.offer_of(peer.id) is None:
                    self._endings.acknowledge(peer)
            case Withdraw():
                self._released(peer)
                connection.send(Withdrawn(event.epoch, "borrower"))
            case Withdrawn(role="lender") if peer.withdrawal is not None and peer.withdrawal.through is connection:
                peer.withdrawal = attrs.evolve(peer.withdrawal, acknowledged=True)
                self._grants.queue.add(peer.id)
                self._endings.queue.add(peer.id)
            case _:
                pass

    def _released(self, peer: Peer) -> None:
        """The borrower no longer uses what we lend."""
        if peer.lent is not None:
            peer.lent = msgspec.structs.replace(peer.lent, verdict="Refused", reason="WithdrawnByBorrower")
            self._grants.queue.add(peer.id)
            self._records.poke(peer.id)

    def unpeered(self, peer: Peer) -> None:
        peer.left = True
        self._grants.queue.add(peer.id)
        self._endings.queue.add(peer.id)
        self._peer_ends(peer, "ended")

    def _peer_ends(self, peer: Peer, kind: Kind) -> None:
        """The peer ends the peering: so do we."""
        peer.leaving = True
        record = self._records.get(peer.id)
        if record is None or record.metadata.deleting:
            return
        self._emit(record, "Normal", "UnpeeredByPeer", f"{peer.name or peer.id} ended the peering; it is removed here")
        self._tasks.spawn(self._endings.order(peer.id, kind), f"ending the peering with {peer.id}")

    def repeated(self, peer: ClusterID, seen: Fingerprint) -> None:
        record = self._records.get(peer)
        if record is None:
            return
        message = f"another key ({seen}) claims to be {peer}; it was refused, the pinned one stays"
        self._emit(record, "Warning", "ClusterIDRepetition", message)

    def _emit(self, record: ForeignCluster, type: str, reason: str, message: str) -> None:
        regarding = {
            "apiVersion": FOREIGNCLUSTERS.api_version,
            "kind": FOREIGNCLUSTERS.kind,
            "name": record.metadata.name,
            "namespace": "",
            "uid": record.metadata.uid,
        }
        self._recorder.emit(regarding, type, reason, message)
