"""Makes the features of a daemon, each out of what all share and of the features that it needs."""

from __future__ import annotations

import attrs

from liqod.agent.fabric_networks import FabricNetworks, FabricUser
from liqod.agent.home import Home
from liqod.agent.host.leader_services import LeaderServices
from liqod.agent.log.audit_events import AuditEvents
from liqod.audit.file import RotatingFile
from liqod.audit.log import AuditLog
from liqod.config.schema import Settings
from liqod.fabric.agent.converge import FabricHost
from liqod.fabric.service import Fabric
from liqod.facts.controller import FactsController
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.controller import ReconcileMetrics
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.identity.tls import PeerTLS
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import EventRecorder
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACEOFFLOADINGS
from liqod.kubelet.common.network import NoNetworks, OwnNetworkCheck
from liqod.kubelet.ports import HomeCluster
from liqod.kubelet.service import Kubelets
from liqod.kubelet.tokens.projection import api_server_names
from liqod.model.addresses import is_ip
from liqod.model.ids import Fingerprint
from liqod.model.records.facts import API_SERVER, API_SERVER_NAMES
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import ForeignCluster
from liqod.names.home_names import HomeNames
from liqod.names.home_port import HomePort
from liqod.names.records import NameServices
from liqod.names.service import Names
from liqod.peering.ports import OwnCluster
from liqod.peering.relay.splice.home import OwnApiServer
from liqod.peering.relay.splice.limits import place_of
from liqod.peering.service import BeyondPeering, Peering
from liqod.spillover.controller import ReturnController
from liqod.webhook.answering import Answering
from liqod.webhook.service import AdmissionWebhook


@attrs.frozen(kw_only=True)
class DaemonContext:
    """What the features of one daemon share: this cluster's API server, settings, clocks, and the host that it runs on.

    ``address`` is the host's among the cluster's nodes, ``answering`` what answers admission reviews in every state.
    """

    reactor: Reactor
    client: Client
    informers: Informers
    settings: Settings
    address: str
    hostname: str
    metrics: ReconcileMetrics
    wall: WallClock
    answering: Answering | None = None

    def fabric_host(self) -> FabricHost:
        """Return the same as the network sees it."""
        return FabricHost(
            reactor=self.reactor,
            client=self.client,
            informers=self.informers,
            settings=self.settings,
            address=self.address,
            metrics=self.metrics,
            wall=self.wall,
        )


@attrs.frozen
class Journals:
    """Where it is recorded what happens: Events, and the audit log."""

    recorder: EventRecorder
    audit: AuditLog


def make_journals(context: DaemonContext) -> Journals:
    """Return the recorder of Events, and the audit log, which makes Events as well."""
    recorder = EventRecorder(context.client, context.reactor, "liqod", context.hostname, context.wall)
    own = context.settings.audit
    audit = AuditLog(
        context.reactor,
        context.wall,
        file=RotatingFile(own.file, own.max_bytes, own.backups) if own.file else None,
        notify=AuditEvents(recorder, context.informers.of(FOREIGNCLUSTERS, ForeignCluster)).notify,
    )
    return Journals(recorder, audit)


def make_facts(context: DaemonContext) -> FactsController:
    """Return what finds out about this cluster."""
    return FactsController(
        context.reactor,
        context.client,
        context.informers,
        context.settings,
        host=context.address,
        metrics=context.metrics,
    )


def make_hosting(context: DaemonContext, home: Home, facts: FactsController, journals: Journals) -> Hosting:
    """Return the lender's side."""
    settings, config = context.settings, context.client.config
    access = ApiAccess(
        settings.kubernetes.api_server_url or config.server,
        # Without a CA of its own the API server's certificate is one that every system trusts, the borrower's too.
        (config.ca_pem or b"").decode("ascii"),
        direct=settings.peering.api != "relay",
        relay=settings.peering.api != "direct",
        found=lambda: next(iter(facts.values(API_SERVER)), ""),
    )
    return Hosting(
        context.client,
        context.informers,
        context.reactor,
        settings=settings,
        cluster_id=home.cluster_id,
        access=access,
        recorder=journals.recorder,
        wall=context.wall,
        metrics=context.metrics,
        audit=journals.audit,
    )


def make_home_names(context: DaemonContext) -> HomeNames | None:
    """Return what answers lenders that ask for names of this cluster; None where the settings say that nothing does."""
    settings = context.settings
    if settings.names.expose == "none":
        return None
    return HomeNames(context.client, context.reactor, settings.cluster.domain, settings.names.expose)


def make_peering(
    context: DaemonContext,
    home: Home,
    hosting: Hosting,
    journals: Journals,
    *,
    facts: FactsController,
    names: HomeNames | None,
) -> Peering:
    """Return the sessions with peers, whose tenants are those of ``hosting``."""
    revoked = [Fingerprint(text) for text in context.settings.identity.revoked]
    return Peering(
        reactor=context.reactor,
        client=context.client,
        informers=context.informers,
        settings=context.settings,
        cluster=OwnCluster(
            id=home.cluster_id,
            name=home.cluster_name,
            tls=PeerTLS(home.keypair, home.ca_pem, now=context.wall, revoked=revoked),
            # Wall clock: the monotonic clock restarts at boot, and offers of a later epoch must compare as newer.
            epoch=int(context.wall().timestamp()),
        ),
        tenants=hosting,
        recorder=journals.recorder,
        metrics=context.metrics,
        audit=journals.audit,
        beyond=BeyondPeering(
            pods=hosting if context.settings.hosting.home_api else None,
            api=OwnApiServer(
                place=lambda: place_of([*facts.values(API_SERVER), context.client.config.server]),
                names=lambda: facts.values(API_SERVER_NAMES),
                called=api_server_names(context.settings.cluster.domain),
            ),
            names=names,
        ),
    )


def make_fabric(context: DaemonContext) -> Fabric | None:
    """Return the network to peers; None where the settings leave it to others."""
    return Fabric(context.fabric_host()) if context.settings.network.mode != "none" else None


def make_kubelets(
    context: DaemonContext,
    home: Home,
    *,
    facts: FactsController,
    own: OwnNetworkCheck,
    peering: Peering,
    fabric: Fabric | None,
    recorder: EventRecorder,
) -> Kubelets:
    """Return the virtual kubelets; the network exports to lenders what these claim."""
    networks = None if fabric is None else FabricNetworks(fabric, own)
    kubelets = Kubelets(
        reactor=context.reactor,
        home=HomeCluster(
            cluster_id=home.cluster_id,
            client=context.client,
            informers=context.informers,
            recorder=recorder,
            node_address=context.address,
            node_address_type=facts.node_address_type,
            metrics=context.metrics,
        ),
        settings=context.settings,
        lenders=peering,
        networks=NoNetworks(own) if networks is None else networks,
    )
    if fabric is not None and networks is not None:
        fabric.attach(FabricUser(kubelets, networks))
    return kubelets


def home_port_of(context: DaemonContext) -> tuple[str, int] | None:
    """Return where this daemon takes questions for tenants' homes; None where it takes none."""
    settings = context.settings.names
    return (context.address, settings.home_port) if settings.home_port and is_ip(context.address) else None


def make_home_port(context: DaemonContext, services: NameServices | None, peering: Peering) -> HomePort | None:
    """Return what takes these questions; None where there are no name servers, or nothing is asked."""
    place = home_port_of(context)
    if services is None or place is None:
        return None
    return HomePort(context.reactor, peering.name_at_home, place, services.is_name_server)


def make_name_services(context: DaemonContext, recorder: EventRecorder) -> NameServices | None:
    """Return what leads tenants to the name servers; None where there are none."""
    if not context.settings.names.enabled:
        return None
    return NameServices(
        context.client,
        context.reactor,
        context.informers,
        context.settings,
        recorder=recorder,
        home=home_port_of(context),
        metrics=context.metrics,
    )


def make_names(context: DaemonContext, identity: str = "") -> Names:
    """Return a name server for tenants."""
    return Names(
        context.reactor,
        context.client,
        context.informers,
        context.settings,
        context.address,
        identity=identity,
        wall=context.wall,
        metrics=context.metrics,
    )


def make_webhook(context: DaemonContext, kubelets: Kubelets, recorder: EventRecorder) -> AdmissionWebhook | None:
    """Return the admission webhook; None where the settings disable it."""
    if not context.settings.webhook.enabled:
        return None
    return AdmissionWebhook(
        context.reactor,
        context.client,
        context.settings,
        context.address,
        offloadings=context.informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
        enabled=kubelets.enabled,
        answering=context.answering,
        recorder=recorder,
        wall=context.wall,
        metrics=context.metrics,
    )


def make_leader_services(context: DaemonContext) -> LeaderServices | None:
    """Return what leads Services to this daemon; None where the settings name none."""
    if not context.settings.kubernetes.leader_services:
        return None
    return LeaderServices(
        context.client,
        context.reactor,
        context.informers,
        context.settings,
        address=context.address,
        metrics=context.metrics,
    )


def make_spillover(context: DaemonContext, kubelets: Kubelets, recorder: EventRecorder) -> ReturnController | None:
    """Return what returns pods home.

    None without the webhook: no pod prefers home then, and those that are made for evicted ones would leave again.
    """
    if not context.settings.webhook.enabled:
        return None
    return ReturnController(
        context.reactor,
        context.informers,
        settings=context.settings.offloading,
        enabled=kubelets.enabled,
        recorder=recorder,
        metrics=context.metrics,
    )
