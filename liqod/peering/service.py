"""Composes peering: creates its parts, connects and starts them.

    sessions --> event router ----.
    watches  --> record router ---+--> changes --> controllers, by the table in ``changes``
    decisions -> decision router -'
        '--------------------------------------> one controller, where a change concerns that alone

Each controller reconciles one peer at a time, from its records and the state of its session.
"""

from __future__ import annotations

import random as _random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit
from liqod.config.schema import Settings
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import Reactor
from liqod.flow.controller import NO_METRICS, ReconcileMetrics
from liqod.flow.observe import Gate, Latest
from liqod.flow.tasks import Tasks, together
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.events import Recorder
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NATTINGTABLES, NODES, VIRTUALNODES
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.node import Node
from liqod.model.records.name_service import HomeAnswer
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode
from liqod.peering.borrowing.acceptance_loop import AcceptanceLoop, rules_of
from liqod.peering.changes import Change, Changes
from liqod.peering.controller import PeeringContext
from liqod.peering.exchange.names import NameResponses
from liqod.peering.ports import HomeNames, OwnCluster, Sighting, TenantPods, Tenants
from liqod.peering.relay.callers import PinnedCallers
from liqod.peering.relay.dial import RelayEndpoint
from liqod.peering.relay.service import Relay
from liqod.peering.relay.splice.home import HomeStreams, OwnApiServer
from liqod.peering.relay.splice.lender import LenderStreams
from liqod.peering.relay.splice.peers import StreamPeers
from liqod.peering.relay.splice.service import Streams
from liqod.peering.routing.controllers import Watches, make_controllers
from liqod.peering.routing.decision_router import DecisionRouter
from liqod.peering.routing.event_router import EventRouter
from liqod.peering.routing.record_router import RecordRouter
from liqod.peering.session.listener import Listener
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.session.usage import Usages
from liqod.peering.sessions import Sessions
from liqod.wire.events import MapNamespace, ReleaseNamespace


@attrs.frozen(kw_only=True)
class SessionView:
    """One established session, for status and metrics; ``role``: who dialled, ``since``: seconds of the clock."""

    peer: ClusterID
    name: str
    address: str
    role: str
    since: float
    missed_pings: int


def _no_api_server() -> OwnApiServer:
    return OwnApiServer(place=lambda: None, names=tuple, called=())


@attrs.frozen(kw_only=True)
class BeyondPeering:
    """What peering passes questions and streams of peers on to: pods of tenants, our API server, and our names."""

    pods: TenantPods | None = None
    api: OwnApiServer = attrs.field(factory=_no_api_server)
    names: HomeNames | None = None


NOTHING_BEYOND: Final = BeyondPeering()


class Peering(MultiService):
    """The peering service. ``refusals`` counts refusals by reason; ``own_key`` is the fingerprint of the key in use.

    ``usages`` has what each peer takes of this daemon.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        reactor: Reactor,
        client: Client,
        informers: Informers,
        settings: Settings,
        cluster: OwnCluster,
        tenants: Tenants,
        recorder: Recorder,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
        beyond: BeyondPeering = NOTHING_BEYOND,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._tls = cluster.tls
        self._tasks = Tasks()
        changes = Changes()
        self.usages = Usages(partial(changes.notify, Change.LIMITED), audit)
        self._context = context = PeeringContext(
            client=client,
            clock=reactor,
            peers={},
            changes=changes,
            refusals=RefusalLog(reactor, audit, self.usages),
            metrics=metrics,
            audit=audit,
            usages=self.usages,
        )
        self._peers = context.peers
        self._watches = watches_of(informers)
        self._controllers = controllers = make_controllers(
            context,
            informers,
            watches=self._watches,
            settings=settings,
            cluster=cluster,
            tenants=tenants,
            recorder=recorder,
            tasks=self._tasks,
        )
        self._records = controllers.records
        self._callers = PinnedCallers(self._records, self._peers)
        self.streams = self._make_streams(settings, beyond)
        decisions = DecisionRouter(context, controllers, self._tasks)
        self._acceptance = AcceptanceLoop(
            context,
            records=self._records,
            offers=controllers.offers,
            rules=rules_of(settings.acceptance),
            directions=controllers.directions,
            subscriber=decisions,
        )
        self._sessions = Sessions(
            reactor=reactor,
            context=context,
            settings=settings,
            cluster=cluster,
            records=self._records,
            trust=controllers.trust.records,
            tasks=self._tasks,
            subscriber=EventRouter(
                controllers,
                context.changes,
                recorder,
                own=cluster.id,
                streams=self.streams,
                responses=NameResponses(beyond.names, reactor, self._tasks),
            ),
            random=random,
        )
        self._record_router = RecordRouter(
            context=context, controllers=controllers, sessions=self._sessions, decisions=decisions
        )
        relays = settings.peering.api != "direct"
        self.relay = self._make_relay(client, tenants) if relays else None
        relayed = self.relay.protocol if self.relay is not None else None
        self._listener = Listener(
            reactor,
            settings.peering.listen,
            cluster.tls,
            self._sessions.admission,
            relayed,
            streams=self.streams.protocols,
        )
        self._stopping = False
        self._ends: list[Callable[[], None]] = []
        for service in (self._tasks, *controllers.services(), self._acceptance, self.streams, self._listener):
            service.setServiceParent(self)

    def _make_streams(self, settings: Settings, beyond: BeyondPeering) -> Streams:
        peers = StreamPeers(
            reactor=self._reactor,
            tls=self._tls,
            callers=self._callers,
            peers=self._peers,
            usages=self.usages,
            refusals=self._context.refusals,
        )
        home = HomeStreams(peers, beyond.api, settings.peering.api_streams)
        return Streams(home, LenderStreams(peers, beyond.pods, settings.hosting.home_api))

    def _make_relay(self, client: Client, tenants: Tenants) -> Relay:
        return Relay(
            client=client,
            clock=self._reactor,
            tls=self._tls,
            rights=tenants,
            callers=self._callers,
            refusals=self._context.refusals,
            tasks=self._tasks,
            usages=self.usages,
        )

    # For the rest of the daemon.

    @property
    def port(self) -> int:
        """The port that peers connect to; 0 until it is bound."""
        return self._listener.port

    @property
    def bound(self) -> Gate:
        """The gate that opens when peers can connect."""
        return self._listener.bound

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of this cluster's current key."""
        return self._controllers.trust.rotation.own_key.value

    @property
    def certificate_end(self) -> datetime:
        """When the certificate that peers are shown ends."""
        return self._tls.keypair.chain[0].not_valid_after_utc

    @property
    def own_key(self) -> Latest[Fingerprint]:
        """The fingerprint of this cluster's key, which changes with a rotation."""
        return self._controllers.trust.rotation.own_key

    @property
    def refusals(self) -> Counter[str]:
        """The number of refusals by reason."""
        return self._context.refusals.counts

    def sessions(self) -> tuple[SessionView, ...]:
        """Return the established sessions, by cluster ID."""
        return tuple(
            SessionView(
                peer=peer.id,
                name=peer.name,
                address=peer.session.address,
                role=peer.session.role,
                since=peer.session.established_at or 0.0,
                missed_pings=peer.session.heartbeat.missed,
            )
            for _, peer in sorted(self._peers.items())
            if peer.session is not None
        )

    def update_candidates(self, candidates: Iterable[Sighting]) -> None:
        """Replace all sightings with those that discovery has now."""
        self._sessions.update_sightings(candidates)

    def peer_answered(self, peer: ClusterID) -> None:
        """Dial a peer now, without its back-off: it answered another part of this daemon."""
        known = self._peers.get(peer)
        if known is not None and known.session is None:
            known.dialer.dial_now()

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Request a namespace for ``local`` from a lender; raises Refusal or PeerUnreachable."""
        return await self._controllers.borrowing.namespace_requests.request(
            self._peers.get(peer), peer, lambda number: MapNamespace(number, local, remote)
        )

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Request that a lender deletes a granted namespace; raises Refusal or PeerUnreachable."""
        await self._controllers.borrowing.namespace_requests.request(
            self._peers.get(peer), peer, lambda number: ReleaseNamespace(number, remote)
        )

    def relay_of(self, peer: ClusterID) -> IStreamClientEndpoint:
        """Return an endpoint that connects to the API relay of a lender, and verifies its key before it sends."""
        callers = self._callers
        return RelayEndpoint(self._reactor, self._tls, lambda: callers.addresses(peer), lambda: callers.keys(peer))

    def api_streams(self, peer: ClusterID) -> Latest[HomeStreamsGrant | None]:
        """Return what a lender was granted whose pods reach our API server by streams; None: it asks for none."""
        return self.streams.home.state(peer)

    async def name_at_home(self, peer: ClusterID, name: str, kind: int) -> HomeAnswer:
        """Return what the home of a tenant says of a name; raises PeerUnreachable."""
        return await self._controllers.lending.name_queries.ask(peer, name, kind)

    # Start and stop.

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._begin(), "starting to peer")

    async def _begin(self) -> None:
        watches, trust, lending = self._watches, self._controllers.trust, self._controllers.lending
        invitations, issued = trust.records.invitations.informer, trust.issued_tokens
        await together(informer.when_synced() for informer in watches.all())
        await invitations.when_synced()
        await issued.informer.when_synced()
        await trust.rotation.load()
        await self._load_tombstones()
        if self._stopping:
            return
        self._record_router.start(watches, invitations)
        self._ends.append(issued.start())
        self._ends.append(self.own_key.subscribe(lambda _: self._sessions.key_changed()))
        streams = self.streams
        # Subscribed after the record router: the pins are up to date when these subscribers are called.
        self._ends.append(
            watches.clusters.subscribe(lambda key, old, new: streams.review(ClusterID(key.name), gone=new is None))
        )
        if (relay := self.relay) is not None:
            self._ends.append(
                watches.clusters.subscribe(lambda key, old, new: relay.review(ClusterID(key.name), gone=new is None))
            )
        lending.capacity.start()
        lending.cluster_info.start()
        self._context.changes.known.open()
        self._sessions.start()

    async def _load_tombstones(self) -> None:
        """Load the tombstones, with retries without limit: until then connections are answered by Bye(Starting)."""
        backoff, attempt = Backoff(), 0
        while not self._stopping:
            try:
                await self._controllers.trust.records.tombstones.load()
                return
            except KubeError as error:
                self._log.warn("cannot read the tombstones of ended peerings: {error}", error=str(error))
            await deferLater(self._reactor, backoff.delay(attempt))
            attempt += 1

    def stopService(self) -> Deferred[None]:
        self._stopping = True
        self._record_router.stop()
        for end in self._ends:
            end()
        self._ends = []
        self._controllers.lending.capacity.stop()
        self._controllers.lending.cluster_info.stop()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.relay is not None:
            self.relay.close()
        try:
            # First: the sessions have ended when no connection is left, and a new one may be silent for long.
            await self._listener.stopService()
            await self._sessions.stop()
        finally:
            await maybeDeferred(super().stopService)


def watches_of(informers: Informers) -> Watches:
    """Return the informers of peering's records; other parts of the daemon share them."""
    return Watches(
        clusters=informers.of(FOREIGNCLUSTERS, ForeignCluster),
        advertisements=informers.of(ADVERTISEMENTS, Advertisement),
        virtual_nodes=informers.of(VIRTUALNODES, VirtualNode),
        nodes=informers.of(NODES, Node),
        tables=informers.of(NATTINGTABLES, NamespaceNattingTable),
    )
