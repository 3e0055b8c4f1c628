"""Creates and connects the features of a leading daemon; the composition root.

Features know each other only by what is passed here: hosting is peering's lender, peering is what kubelets ask for
namespaces, discovery feeds peering with candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs
from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from liqod.agent.audit_events import AuditEvents
from liqod.agent.errors import StartupError
from liqod.agent.fabric_networks import FabricNetworks
from liqod.agent.home import Home
from liqod.agent.processes import runs
from liqod.audit.file import RotatingFile
from liqod.audit.log import AuditLog
from liqod.config.schema import Settings
from liqod.discovery.domains import DomainSearch, make_resolver
from liqod.discovery.service import Announcement, Discovery
from liqod.fabric.agent.converge import FabricHost
from liqod.fabric.service import Fabric
from liqod.facts.controller import FactsController
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.controller import NO_METRICS, ReconcileMetrics
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.identity.tls import PeerTLS
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import EventRecorder
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACEOFFLOADINGS, SEARCHDOMAINS
from liqod.kubelet.common.network import NoNetworks
from liqod.kubelet.ports import HomeCluster
from liqod.kubelet.service import Kubelets
from liqod.model.diagnosis.installation import Unmet
from liqod.model.ids import Fingerprint
from liqod.model.records.facts import API_SERVER
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.search_domain import SearchDomain
from liqod.model.records.views import ForeignCluster
from liqod.names.records import NameServices
from liqod.names.service import Names
from liqod.peering.ports import OwnCluster
from liqod.peering.service import Peering
from liqod.spillover.controller import ReturnController
from liqod.webhook.service import AdmissionWebhook

# A lease is no fence: client-go's package comment says that it "does not guarantee that only one client is acting as a
# leader". What a feature still writes while the next leader starts is conditional or repeatable.
STOP_DEADLINE: Final = 10.0
"""Seconds that one feature may take to stop before the next is stopped regardless."""


def _plain(error: object) -> str:
    """Return the sentence of a socket's error, without its number."""
    return str(getattr(error, "strerror", "") or error).lower()


@attrs.frozen
class ReadinessCondition:
    """One condition of readiness, the problem to show while it does not hold, and how to wait until it may."""

    holds: bool
    otherwise: Unmet
    when: Callable[[], Deferred[None]]


class Features:
    """Everything that acts on the cluster while this daemon leads."""

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        home: Home,
        settings: Settings,
        *,
        address: str,
        host: str,
        metrics: ReconcileMetrics = NO_METRICS,
        wall: WallClock = utc_now,
    ) -> None:
        self._role = settings.daemon.role
        self._reactor = reactor
        self._settings = settings
        self._home = home
        self._metrics = metrics
        self.discovery: Discovery | None = None
        self.client = client
        self.informers = Informers(client, reactor)
        self.recorder = EventRecorder(client, reactor, "liqod", host, wall)
        own = settings.audit
        self.audit = AuditLog(
            reactor,
            wall,
            file=RotatingFile(own.file, own.max_bytes, own.backups) if own.file else None,
            notify=AuditEvents(self.recorder, self.informers.of(FOREIGNCLUSTERS, ForeignCluster)).notify,
        )
        self.facts_controller = FactsController(
            reactor, client, self.informers, settings, host=address, metrics=metrics
        )
        # Without a CA of its own the API server's certificate is one that every system trusts, the borrower's too.
        ca = (client.config.ca_pem or b"").decode("ascii")
        access = ApiAccess(
            settings.kubernetes.api_server_url or client.config.server,
            ca,
            direct=settings.peering.api != "relay",
            relay=settings.peering.api != "direct",
            found=lambda: next(iter(self.facts_controller.values(API_SERVER)), ""),
        )
        self.hosting = Hosting(
            client,
            self.informers,
            reactor,
            settings=settings,
            cluster_id=home.cluster_id,
            access=access,
            recorder=self.recorder,
            wall=wall,
            metrics=metrics,
            audit=self.audit,
        )
        revoked = [Fingerprint(text) for text in settings.identity.revoked]
        self.peering = Peering(
            reactor=reactor,
            client=client,
            informers=self.informers,
            settings=settings,
            cluster=OwnCluster(
                id=home.cluster_id,
                name=home.cluster_name,
                tls=PeerTLS(home.keypair, home.ca_pem, now=wall, revoked=revoked),
                # Wall clock: the monotonic clock restarts at boot, and offers of a later epoch must compare as newer.
                epoch=int(wall().timestamp()),
            ),
            tenants=self.hosting,
            recorder=self.recorder,
            metrics=metrics,
            audit=self.audit,
        )
        self.peering.own_key.subscribe(self._announce_key)
        self.fabric: Fabric | None = None
        networks: FabricNetworks | None = None
        if settings.network.mode != "none":
            gateway = FabricHost(
                reactor=reactor,
                client=client,
                informers=self.informers,
                settings=settings,
                address=address,
                metrics=metrics,
                wall=wall,
            )
            self.fabric = Fabric(gateway)
            networks = FabricNetworks(self.fabric, self.hosting.networks)
        self.kubelets = Kubelets(
            reactor=reactor,
            home=HomeCluster(
                cluster_id=home.cluster_id,
                client=client,
                informers=self.informers,
                recorder=self.recorder,
                node_address=address,
                node_address_type=self.facts_controller.node_address_type,
                metrics=metrics,
            ),
            settings=settings,
            lenders=self.peering,
            networks=networks if networks is not None else NoNetworks(self.hosting.networks),
        )
        if networks is not None:
            networks.claimant = self.kubelets
        self.name_services: NameServices | None = None
        self.names: Names | None = None
        if settings.names.enabled:
            self.name_services = NameServices(client, reactor, self.informers, settings, metrics=metrics)
            if runs(self._role, "names"):
                self.names = Names(
                    reactor, client, self.informers, settings, address, identity=host, wall=wall, metrics=metrics
                )
        self.webhook: AdmissionWebhook | None = None
        if settings.webhook.enabled:
            self.webhook = AdmissionWebhook(
                reactor,
                client,
                settings,
                address,
                offloadings=self.informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
                enabled=self.kubelets.enabled,
                recorder=self.recorder,
                wall=wall,
                metrics=metrics,
            )
        self.spillover: ReturnController | None = None
        if settings.webhook.enabled:
            # Without the webhook no pod prefers home, and those that are made for evicted ones would leave again.
            self.spillover = ReturnController(
                reactor,
                self.informers,
                settings=settings.offloading,
                enabled=self.kubelets.enabled,
                recorder=self.recorder,
                metrics=metrics,
            )
        self._started: list[tuple[str, IService]] = []

    async def start(self) -> None:
        """Start every feature; discovery last, because it announces the port that peering listens on."""
        self._start("informers", self.informers)
        self._start("facts", self.facts_controller)
        self._start("hosting", self.hosting)
        if self.name_services is not None:
            self._start("name services", self.name_services)
        if self.names is not None:
            self._start("names", self.names)
        self._start("peering", self.peering)
        if self.fabric is not None:
            self._start("network", self.fabric)
            # Kubelets translate pod addresses from their first reconcile on.
            await self.fabric.when_synced()
        # Without a tunnel the addresses of pods are judged by this cluster's own networks.
        await self.hosting.networks.prepare()
        self._start("kubelets", self.kubelets)
        if self.webhook is not None:
            self._start("webhook", self.webhook)
        if self.spillover is not None:
            self._start("spillover", self.spillover)
        await self.peering.bound.wait()
        peering = self._settings.peering
        addresses: tuple[str, ...] = tuple(peering.advertise_addresses)
        me = Announcement(
            cluster_id=self._home.cluster_id,
            cluster_name=self._home.cluster_name,
            fingerprint=self.peering.fingerprint,
            port=peering.advertise_port or self.peering.port,
            addresses=addresses,
        )
        self.discovery = Discovery(self._settings.discovery, me, self._reactor, self.peering.update_candidates)
        self._start("discovery", self.discovery)
        self._start(
            "domain search",
            DomainSearch(
                self._reactor,
                self.client,
                self.informers.of(SEARCHDOMAINS, SearchDomain),
                resolver=partial(make_resolver, self._reactor, self._settings.discovery.dns_servers),
                on_sightings=self.discovery.merge_sightings,
                metrics=self._metrics,
            ),
        )

    def _announce_key(self, fingerprint: Fingerprint) -> None:
        """The cluster has another key; before discovery has begun, it will announce that one by itself."""
        if self.discovery is not None:
            self.discovery.announce_key(fingerprint)

    def _start(self, name: str, service: IService) -> None:
        if not runs(self._role, name):
            return
        self._started.append((name, service))
        try:
            service.startService()
        except CannotListenError as error:
            raise StartupError(
                "PortTaken",
                f"cannot listen on port {error.port} for {name}: {_plain(error.socketError)}; end what has it "
                f"(`ss -ltnp` says what), or choose another one in [{name}] listen; it is tried again",
            ) from error

    async def stop(self) -> None:
        """Stop what was started, in reverse order; each has stopped, or timed out, before the next."""
        while self._started:
            name, service = self._started.pop()
            await self._quiet(name, service.stopService)
        await self._quiet("events", self.recorder.stop)
        await self._quiet("audit", self.audit.close)

    async def _quiet(self, name: str, stop: Callable[[], object]) -> None:
        stopping: Deferred[object] = maybeDeferred(stop)
        stopping.addTimeout(STOP_DEADLINE, self._reactor)
        try:
            await stopping
        except Exception:
            self._log.failure("stopping {feature} failed", feature=name)

    @property
    def services(self) -> list[IService]:
        """Return the features that run."""
        return [service for _, service in self._started]

    def requirements(self) -> Iterator[ReadinessCondition]:
        """Yield the conditions of readiness."""
        yield ReadinessCondition(
            bool(self.peering.port),
            Unmet("NotListening", f"peering.listen = {self._settings.peering.listen} is not bound"),
            self.peering.bound.wait,
        )
        incomplete = next(
            (
                f"the first list of {informer.resource} is not complete: {informer.error}"
                for informer in self.informers
                if not informer.synced and informer.error
            ),
            "the first lists of the records are not complete",
        )
        yield ReadinessCondition(
            all(informer.synced for informer in self.informers),
            Unmet("CachesIncomplete", incomplete),
            self.informers.when_synced,
        )
        if self.webhook is not None:
            why = f": {self.webhook.trouble}" if self.webhook.trouble else ""
            sentence = f"the admission webhook is not configured{why}"
            missing = Unmet("WebhookNotConfigured", sentence)
            yield ReadinessCondition(self.webhook.configured, missing, self.webhook.ready.wait)
