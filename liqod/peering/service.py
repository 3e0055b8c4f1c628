"""Composes peering: creates its parts, connects and starts them.

    sessions -> event router  --.
    watches  -> record router --+-> controllers, by the table in routing.notifications

Each controller reconciles one peer at a time, from its records and the state of its session.
"""

from __future__ import annotations

import random as _random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.acceptance.pipeline import Ruling
from liqod.acceptance.stages import Rules
from liqod.config.schema import Settings
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import Reactor, wall_clock
from liqod.flow.controller import Controller
from liqod.flow.observe import Gate
from liqod.flow.tasks import Tasks
from liqod.identity.tls import PeerTLS
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.events import Recorder
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NODES,
    PODS,
    VIRTUALNODES,
)
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.node import Node
from liqod.model.objects.pod import OCCUPYING_PODS, Pod
from liqod.model.records.network import NetworkConfig
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode
from liqod.peering.borrowing.accept_pipeline import AcceptPipeline
from liqod.peering.borrowing.acceptance_loop import AcceptanceLoop, rules_of
from liqod.peering.borrowing.advertisements import Advertisements
from liqod.peering.exchange.credentials import CredentialIssuer, CredentialStore
from liqod.peering.exchange.namespaces import NamespaceRequests, NamespaceResponses
from liqod.peering.exchange.network import NetworkExchange
from liqod.peering.lending.advertiser import Advertiser
from liqod.peering.lending.capacity import Capacity
from liqod.peering.lending.cluster_info import ClusterInfo
from liqod.peering.ports import Lender, Sighting
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.relay.callers import Callers
from liqod.peering.relay.dial import RelayEndpoint
from liqod.peering.relay.service import Relay
from liqod.peering.routing.controllers import Controllers, NoNetworks
from liqod.peering.routing.event_router import EventRouter
from liqod.peering.routing.notifications import Change
from liqod.peering.routing.record_router import RecordRouter
from liqod.peering.session.listener import Listener
from liqod.peering.session.peer import Peer, is_on
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.sessions import Sessions
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.next_keys import NextKeys
from liqod.peering.trust.pairing import Invitations, PairingTokens
from liqod.peering.trust.rotation import KeyRotation
from liqod.peering.unpeering import UnpeeringController
from liqod.wire.events import MapNamespace, ReleaseNamespace


@attrs.frozen
class SessionView:
    """One established session, for status and metrics; ``role``: who dialled, ``since``: seconds of the clock."""

    peer: ClusterID
    name: str
    address: str
    role: str
    since: float
    missed_pings: int


class Peering(MultiService):
    """The peering service. ``refusals`` counts refusals by reason."""

    _log = Logger()

    def __init__(
        self,
        *,
        reactor: Reactor,
        client: Client,
        informers: Informers,
        settings: Settings,
        cluster_id: ClusterID,
        cluster_name: str,
        tls: PeerTLS,
        lender: Lender,
        recorder: Recorder,
        epoch: int | None = None,
        key_changed: Callable[[Fingerprint], None] = lambda _: None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._reactor = reactor
        self._tls = tls
        self._key_changed = key_changed
        self._peers: dict[ClusterID, Peer] = {}
        self._tasks = Tasks()
        self._refusals = RefusalLog(reactor)
        self._clusters = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._offer_records = informers.of(ADVERTISEMENTS, Advertisement)
        self._virtual_nodes = informers.of(VIRTUALNODES, VirtualNode)
        self._nodes = nodes = informers.of(NODES, Node)
        self._tables = informers.of(NATTINGTABLES, NamespaceNattingTable)
        self._leftovers = Leftovers(self._virtual_nodes, nodes, self._tables)
        self._invitations = Invitations(client, informers, settings.kubernetes.namespace, self._own_key)
        self._tombstones = Tombstones(client, reactor, settings.kubernetes.namespace)
        self._epoch = int(wall_clock(reactor)().timestamp()) if epoch is None else epoch
        offers = MutationCache(self._offer_records, reactor)
        self._records = ForeignClusters(
            client=client,
            clock=reactor,
            clusters=self._clusters,
            offers=offers,
            nodes=self._virtual_nodes,
            ping_interval=settings.peering.ping_interval,
            wants=self._wants,
            peers=self._peers,
            recorder=recorder,
            max_strangers=settings.peering.max_untrusted,
        )
        # A field selector leaves out pods that are not bound or have finished: they occupy nothing, and would cost an
        # event for each change.
        holding = informers.of(PODS, Pod, fields=OCCUPYING_PODS)
        self._capacity = Capacity(nodes, holding, reactor, self._capacity_changed)
        self._cluster_info = ClusterInfo(client, informers, reactor, self._tasks, self._capacity_changed)
        self._advertiser = Advertiser(
            clock=reactor,
            peers=self._peers,
            records=self._records,
            capacity=self._capacity,
            cluster_info=self._cluster_info,
            sharing=settings.sharing,
            lender=lender,
            epoch=self._epoch,
            wants=self._wants,
        )
        self._credential_issuer = CredentialIssuer(reactor, self._peers, self._records, lender, self._wants)
        self._credential_store = CredentialStore(
            client, reactor, self._peers, self._credential_kept, self._refusals.record
        )
        self._accept = AcceptPipeline(
            client=client,
            clock=reactor,
            peers=self._peers,
            records=self._records,
            credential_store=self._credential_store,
            virtual_nodes=self._virtual_nodes,
            nodes=nodes,
            leftovers=self._leftovers,
        )
        self._tokens = PairingTokens(client, reactor, settings.kubernetes.namespace, self._own_key)
        self._distrust = DistrustRecorder(reactor, self._records, self._tombstones, self._tokens, self._invitations)
        self._unpeering = UnpeeringController(
            client=client,
            clock=reactor,
            peers=self._peers,
            records=self._records,
            tombstones=self._tombstones,
            leftovers=self._leftovers,
            tokens=self._tokens,
            distrust=self._distrust,
        )
        self._advertisements = Advertisements(
            client=client,
            clock=reactor,
            peers=self._peers,
            offers=offers,
            decide=self._decide,
            refused=self._refusals.record,
            in_use=lambda peer: bool(self._leftovers.of(peer)),
        )
        rules = rules_of(settings.acceptance)
        self._acceptance = AcceptanceLoop(
            client=client,
            clock=reactor,
            peers=self._peers,
            records=self._records,
            offers=offers,
            rules=rules,
            wants=self._wants,
            changed=self._decided,
        )
        self._networks: NetworkExchange | None = None
        if settings.network.mode != "none":
            configs = informers.of(NETWORKCONFIGS, NetworkConfig)
            self._networks = NetworkExchange(client, reactor, self._peers, configs)
        self._namespace_requests = NamespaceRequests(reactor)
        self._namespace_responses = NamespaceResponses(lender, self._tasks, self._records, self._wants)
        self._rotation = KeyRotation(
            client=client,
            clock=reactor,
            informers=informers,
            namespace=settings.kubernetes.namespace,
            cluster_id=cluster_id,
            tls=tls,
            peers=self._peers,
            records=self._records,
            within=settings.identity.rotation_grace,
            changed=self._has_new_key,
            in_files=bool(settings.identity.key),
        )
        self._next_keys = NextKeys(reactor, tls, self._records, self._refusals.record)
        self._controllers = controllers = Controllers(
            records=self._records,
            leftovers=self._leftovers,
            tombstones=self._tombstones,
            advertiser=self._advertiser,
            credential_issuer=self._credential_issuer,
            credential_store=self._credential_store,
            accept=self._accept,
            unpeering=self._unpeering,
            advertisements=self._advertisements,
            networks=self._networks if self._networks is not None else NoNetworks(),
            namespace_requests=self._namespace_requests,
            namespace_responses=self._namespace_responses,
            rotation=self._rotation,
            next_keys=self._next_keys,
            tasks=self._tasks,
            distrust=self._distrust,
        )
        self._sessions = Sessions(
            reactor=reactor,
            settings=settings,
            cluster_id=cluster_id,
            cluster_name=cluster_name,
            tls=tls,
            epoch=self._epoch,
            refusals=self._refusals,
            tasks=self._tasks,
            subscriber=EventRouter(controllers, recorder),
            records=self._records,
            peers=self._peers,
            random=random,
            tombstones=self._tombstones,
            tokens=self._tokens,
            invitations=self._invitations,
        )
        self._record_router = RecordRouter(
            controllers=controllers,
            peers=self._peers,
            sessions=self._sessions,
            decide=self._decide,
            undecided=lambda peer: self._ruled.pop(peer, None),
            clock=reactor,
        )
        self._callers = Callers(self._records, self._peers)
        self.relay: Relay | None = None
        if settings.peering.api != "direct":
            refused = self._refusals.record
            self.relay = Relay(
                client=client,
                clock=reactor,
                tls=tls,
                rights=lender,
                caller_of=self._callers.caller,
                refused=refused,
                tasks=self._tasks,
            )
        relayed = self.relay.protocol if self.relay is not None else None
        self._listener = Listener(reactor, settings.peering.listen, tls, self._sessions.admission, relayed)
        self._ends: list[Callable[[], None]] = []
        self._stopping = False
        self._ruled: dict[ClusterID, Ruling] = {}
        self._tasks.setServiceParent(self)
        services: tuple[Controller[Any] | None, ...] = (
            self._records,
            self._advertiser,
            self._credential_issuer,
            self._credential_store,
            self._accept,
            self._advertisements,
            self._unpeering,
            self._distrust,
            self._acceptance,
            self._rotation,
            self._next_keys,
            self._networks,
        )
        for controller in services:
            if controller is not None:
                controller.setServiceParent(self)
        self._listener.setServiceParent(self)

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
        return self._own_key()

    @property
    def refusals(self) -> Counter[str]:
        """The number of refusals by reason."""
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
                peer.session.heartbeat.missed,
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
        return await self._namespace_requests.request(
            self._peers.get(peer), peer, lambda number: MapNamespace(number, local, remote)
        )

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Request that a lender deletes a granted namespace; raises Refusal or PeerUnreachable."""
        await self._namespace_requests.request(
            self._peers.get(peer), peer, lambda number: ReleaseNamespace(number, remote)
        )

    def relay_of(self, peer: ClusterID) -> IStreamClientEndpoint:
        """Return an endpoint that connects to the API relay of a lender, and verifies its key before it sends."""
        callers = self._callers
        return RelayEndpoint(self._reactor, self._tls, lambda: callers.addresses(peer), lambda: callers.keys(peer))

    def use_rules(self, rules: Rules) -> None:
        """Replace the acceptance rules; accepted offers stay accepted."""
        self._acceptance.rules = rules
        self._decide()

    # Start and stop.

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._begin(), "starting to peer")

    async def _begin(self) -> None:
        records = (self._clusters, self._offer_records, self._virtual_nodes, self._nodes, self._tables)
        await self._invitations.informer.when_synced()
        await self._rotation.informer.when_synced()
        await gatherResults([informer.when_synced() for informer in records], consumeErrors=True)
        await self._remember()
        if self._stopping:
            return
        self._record_router.start(
            clusters=self._clusters,
            advertisements=self._offer_records,
            virtual_nodes=self._virtual_nodes,
            nodes=self._nodes,
            tables=self._tables,
            invitations=self._invitations.informer,
        )
        self._ends.append(self._rotation.start())
        if self._networks is not None:
            self._ends.append(self._networks.start())
        if (relay := self.relay) is not None:
            # Subscribed after the record router: the pins are up to date when this subscriber is called.
            self._ends.append(
                self._clusters.subscribe(lambda key, old, new: relay.review(ClusterID(key.name), gone=new is None))
            )
        self._capacity.start()
        self._cluster_info.start()
        self._sessions.start()
        self._decide()

    async def _remember(self) -> None:
        """Load the tombstones, with retries without limit: until then no connection is accepted."""
        backoff, attempt = Backoff(), 0
        while not self._stopping:
            try:
                await self._tombstones.load()
                return
            except KubeError as error:
                self._log.warn("cannot read whom peerings were ended with: {error}", error=str(error))
            await deferLater(self._reactor, backoff.delay(attempt))
            attempt += 1

    def stopService(self) -> Deferred[None]:
        self._stopping = True
        self._record_router.stop()
        for end in self._ends:
            end()
        self._ends = []
        self._capacity.stop()
        self._cluster_info.stop()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.relay is not None:
            self.relay.close()
        await self._sessions.stop()
        await maybeDeferred(super().stopService)

    # Wanted directions.

    def _wants(self, record: ForeignCluster | None) -> tuple[bool, bool]:
        """Return (lends, borrows): the directions that settings and record of a peer want."""
        settings = self._settings.peering
        if record is None:
            return is_on("Auto", settings.incoming), is_on("Auto", settings.outgoing)
        if record.metadata.deleting or is_trust_withdrawn(record):
            return False, False
        return is_on(record.spec.incoming_peering, settings.incoming), is_on(
            record.spec.outgoing_peering, settings.outgoing
        )

    # Notifications by controllers.

    def _own_key(self) -> Fingerprint:
        return self._tls.keypair.fingerprint

    def _has_new_key(self) -> None:
        self._sessions.key_changed()
        self._key_changed(self._own_key())

    def _capacity_changed(self) -> None:
        self._advertiser.enqueue_all()

    def _decide(self, peer: ClusterID | None = None) -> None:
        self._acceptance.offers_changed(peer)

    def _decided(self, peer_id: ClusterID, ruling: Ruling) -> None:
        before = self._ruled.get(peer_id)
        self._ruled[peer_id] = ruling
        peer = self._sessions.peer(peer_id) if self._records.get(peer_id) is not None else self._peers.get(peer_id)
        if peer is not None:
            self._advertisements.send_verdict(peer)
            self._unpeering.acknowledge(peer)
            self._controllers.notify(Change.OFFER_RULED, peer_id)
        if before is not None and (before.phase, before.reason) == (ruling.phase, ruling.reason):
            return
        self._records.enqueue(peer_id)
        if ruling.phase == "Refused" and (key := self._records.pins.get(peer_id)) is not None:
            self._tasks.spawn(self._tokens.revoke(key), f"revoking the pairing tokens of {peer_id}")
        self._log.info("offer of {peer}: {phase} ({reason})", peer=peer_id, phase=ruling.phase, reason=ruling.reason)

    def _credential_kept(self, peer: ClusterID) -> None:
        self._controllers.notify(Change.CREDENTIAL_STORED, peer)
