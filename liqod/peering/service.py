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
from twisted.logger import Logger

from liqod.acceptance.pipeline import Ruling
from liqod.acceptance.stages import Rules
from liqod.config.schema import Settings
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.identity.tls import PeerTLS
from liqod.kube.client import Client
from liqod.kube.informers import Informers
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NODES, PODS, VIRTUALNODES
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.meta import find_condition
from liqod.model.records import Advertisement, ForeignCluster, VirtualNode
from liqod.peering.broadcaster import Broadcaster
from liqod.peering.capacity import Capacity
from liqod.peering.credentials import Grants, Keeper
from liqod.peering.decisions import Decisions, is_seated
from liqod.peering.intake import Intake
from liqod.peering.listener import Listener
from liqod.peering.namespaces import Answers, Questions
from liqod.peering.overlay import Overlay
from liqod.peering.peer import Peer, is_on
from liqod.peering.pipeline import AcceptPipeline
from liqod.peering.podviews import Node, Pod
from liqod.peering.ports import Lender, Sighting
from liqod.peering.protocol import PeerConnection
from liqod.peering.records import Records
from liqod.peering.refusals import Refusals
from liqod.peering.sessions import Sessions
from liqod.wire.events import (
    Advertise,
    Bye,
    Credential,
    Event,
    MapNamespace,
    NamespaceMapped,
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
        self._recorder = recorder
        self._peers: dict[ClusterID, Peer] = {}
        self._tasks = Tasks()
        self._refusals = Refusals(reactor)
        self._clusters = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._advertisements = informers.of(ADVERTISEMENTS, Advertisement)
        self._virtual_nodes = informers.of(VIRTUALNODES, VirtualNode)
        nodes = informers.of(NODES, Node)
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
        self._capacity = Capacity(nodes, informers.of(PODS, Pod), reactor, self._capacity_changed)
        self._broadcaster = Broadcaster(
            reactor, self._peers, self._records, self._capacity, settings.sharing, lender, self._epoch, self._wants
        )
        self._grants = Grants(reactor, self._peers, self._records, lender, self._wants)
        self._keeper = Keeper(client, reactor, self._peers, self._credential_kept, self._refusals.note)
        self._accept = AcceptPipeline(
            client, reactor, self._peers, self._records, self._keeper, self._virtual_nodes, nodes
        )
        self._intake = Intake(client, reactor, self._peers, offers, self._decide, self._refusals.note)
        rules = Rules(settings.acceptance.policy, settings.acceptance.maximum)
        self._decisions = Decisions(
            client, reactor, self._peers, self._records, offers, rules, self._wants, self._decided
        )
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
        self._work(self._decisions.queue, self._decisions.process, "deciding about offers:", 1)
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
        records = (self._clusters, self._advertisements, self._virtual_nodes)
        await gatherResults([informer.when_synced() for informer in records])
        if self._stopping:
            return
        self._ends = [
            self._clusters.subscribe(self._cluster_changed),
            self._advertisements.subscribe(self._advertisement_changed),
            self._virtual_nodes.subscribe(self._virtual_node_changed),
        ]
        self._capacity.start()
        self._sessions.begin()
        self._decide()

    def stopService(self) -> Deferred[None]:
        self._stopping = True
        for end in self._ends:
            end()
        self._ends = []
        self._capacity.stop()
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
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._records.poke(cluster_id)
        self._broadcaster.queue.add(cluster_id)
        self._grants.queue.add(cluster_id)
        self._decide()
        if self._sessions.ready and record.spec.fingerprint:
            peer.dialer.link.wake()

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
        self._broadcaster.forget(cluster_id)
        self._grants.forget(cluster_id)
        self._intake.forget(cluster_id)
        if peer.session is not None:
            peer.session.end(Bye("TrustPending", "the key is not trusted any more"))
        elif not peer.sightings:
            self._sessions.forget(peer)

    def _advertisement_changed(self, _: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        record = new or old
        if record is None:
            return
        peer = ClusterID(record.spec.cluster_id)
        self._records.poke(peer)
        if new is None:
            self._ruled.pop(peer, None)
            known = self._peers.get(peer)
            if known is not None and known.received is not None:
                self._intake.queue.add(peer)  # whoever deleted the record wants it decided afresh
        self._decide()

    def _virtual_node_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> None:
        peer = ClusterID(key.name)
        self._records.poke(peer)
        if old is None or new is None:
            self._accept.queue.add(peer)

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
            case NamespaceMapped():
                self._questions.answered(connection, event)
            case Withdraw(epoch=epoch, role="lender", reason=reason):
                self._intake.withdrawn(peer, reason)
                connection.send(Withdrawn(epoch, "lender"))
            case Withdraw(epoch=epoch):
                self._released(peer)
                connection.send(Withdrawn(epoch, "borrower"))
            case _:
                pass

    def _released(self, peer: Peer) -> None:
        """The borrower no longer uses what we lend."""
        if peer.lent is not None:
            peer.lent = msgspec.structs.replace(peer.lent, verdict="Refused", reason="WithdrawnByBorrower")
            self._grants.queue.add(peer.id)
            self._records.poke(peer.id)

    def repeated(self, peer: ClusterID, seen: Fingerprint) -> None:
        record = self._records.get(peer)
        if record is None:
            return
        regarding = {
            "apiVersion": FOREIGNCLUSTERS.api_version,
            "kind": FOREIGNCLUSTERS.kind,
            "name": peer,
            "namespace": "",
            "uid": record.metadata.uid,
        }
        message = f"another key ({seen}) claims to be {peer}; it was refused, the pinned one stays"
        self._recorder.emit(regarding, "Warning", "ClusterIDRepetition", message)
