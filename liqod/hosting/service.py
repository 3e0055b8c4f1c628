"""The lender's side as one service: access and namespaces of borrowers, and what they run here.

Its whole state is in the API: labels of namespaces name the tenants, ForeignClusters what is lent, pods what is used.
These are listed first; until then nothing is created, counted or deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always
from liqod.flow.observe import Latest
from liqod.hosting.context import Caches, Grants, HostingContext, name_servers_of
from liqod.hosting.endpointslice_forge import EndpointSlice
from liqod.hosting.endpointslices import ShadowEndpointSlices
from liqod.hosting.first_pods import FirstPods
from liqod.hosting.home.api import SLICES, HomeApiSlices
from liqod.hosting.home.paths import HomePaths
from liqod.hosting.home.pod_addresses import PlacedPod, PodAddresses
from liqod.hosting.isolation.controller import TenantIsolation
from liqod.hosting.namespace_limits import NamespaceLimits
from liqod.hosting.reclaim import Reclaims
from liqod.hosting.shadowpods.controller import ShadowPods
from liqod.hosting.tenants import rights
from liqod.hosting.tenants.access import Access, ApiAccess
from liqod.hosting.tenants.closing import ClosingNamespaces
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import ENDPOINTSLICES, PODS
from liqod.model.ids import ClusterID, parse_cluster_id
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD
from liqod.model.objects.api_request import RequestAttributes
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer import AccessGrant, Refusal


class BorrowerRole(Controller[str]):
    """Checks once per start that the ClusterRole of borrowers, and what limits it, is as this release needs it."""

    name = "borrower-role"

    def __init__(self, clock: IReactorTime, access: Access, *, metrics: ReconcileMetrics = NO_METRICS) -> None:
        super().__init__(clock, metrics=metrics)
        self._access = access

    def sources(self) -> Iterable[Source[str]]:
        """The one role."""
        yield always(rights.BORROWER_ROLE)

    async def reconcile(self, key: str) -> After | None:
        """Compare, and write what the account may write: mostly nothing, `liqodctl install` does it."""
        await self._access.ensure_role()
        return None


class Hosting(MultiService):
    """Tenants of this cluster: their access, their namespaces, their pods, their use of what was lent.

    ``access`` is how borrowers reach this cluster's API server. ``wall`` is the wall clock; None: that of the host.
    Implements ``peering.ports.Tenants``.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Reactor,
        *,
        settings: Settings,
        cluster_id: ClusterID,
        access: ApiAccess,
        recorder: Recorder,
        wall: WallClock | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__()
        # What is read and written here is for borrowers: it is counted by their namespaces.
        self._client = client = client.counting_writes()
        self._written: Counter[ClusterID] = Counter()
        self._cluster_id = cluster_id
        caches = Caches.watched_by(informers, contents=bool(settings.hosting.tenant_contents))
        grants = Grants.of(settings, informers, caches.namespaces)
        self._offers = grants.offers
        self.streams: Latest[tuple[str, int] | None] = Latest(None)
        """Where pods of tenants without a tunnel come for their home's API server; None: nowhere."""
        self.networks = TenantNetworks(client, informers, settings.network)
        context = HostingContext(
            client=client,
            clock=clock,
            caches=caches,
            grants=grants,
            networks=self.networks,
            orders=ReclaimOrders(grants.offers.informer, clock, wall),
            name_servers=name_servers_of(settings, informers),
            recorder=recorder,
            workers=settings.hosting.workers,
            wall=wall,
            metrics=metrics,
            audit=audit,
            streams=self.streams,
        )
        limits = NamespaceLimits.of(context)
        self._namespaces = limits.namespaces(context)
        self._pod_addresses = _pod_addresses(settings, informers, self._namespaces)
        self.writes = limits.writes
        """What tenants write; it says which of them is held."""
        self._access = Access(client, self._namespaces, access, grants.contract)
        first_pods = _first_pods(context, settings, informers)
        self._shadowpods = _shadowpods(context, self._namespaces, limits.policies, first_pods)
        paths = _paths(context, self._namespaces)
        controllers: tuple[Service, ...] = (
            BorrowerRole(clock, self._access, metrics=metrics),
            limits.bounds,
            limits.policies,
            limits.quotas,
            limits.records,
            limits.writes,
            paths,
            ClosingNamespaces(client, clock, caches.namespaces, metrics=metrics),
            self._shadowpods,
            _endpointslices(context, self._namespaces, paths),
            _reclaims(context, self._namespaces),
            *_home_api(context, settings, informers, self._namespaces),
        )
        for controller in controllers:
            controller.setServiceParent(self)

    def stopService(self) -> Deferred[None]:
        self._offers.close()
        self._namespaces.close()
        self.networks.close()
        stopped: Deferred[None] = super().stopService()
        return stopped

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        """Grant access to a borrower that accepted our offer; called again to renew the token.

        What counts as lent is ``status.lent`` of its ForeignCluster; ``offered`` is assumed until the watch shows that.
        Raises Refusal and KubeError.
        """
        self._check(peer)
        grant = await self._access.admit(peer)
        self._offers.assume(peer, offered)
        return grant

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> bool:
        """Grant a namespace to a borrower; return whether its rights changed. Raises Refusal and KubeError."""
        self._check(peer)
        await self._access.ensure_role()
        return await self._namespaces.grant(peer, local, remote)

    async def release_namespace(self, peer: ClusterID, remote: str) -> bool:
        """Delete a granted namespace with all in it; return whether it was there. Raises Refusal and KubeError."""
        self._check(peer)
        return await self._namespaces.release(peer, remote)

    async def dismiss(self, peer: ClusterID) -> bool:
        """Revoke a borrower's access, then delete everything it has here; return whether it had anything.

        Raises Refusal and KubeError.
        """
        self._check(peer)
        return await self._access.dismiss(peer)

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        """Return whether a borrower may send a request to the API server, as far as is known; RBAC decides again."""
        return rights.permits(peer, ask, self._namespaces.known_tenant(ask.namespace) or "")

    def account_of(self, peer: ClusterID) -> str:
        """Return the API server's user name for a borrower."""
        return rights.user_of(peer)

    def tenant_at(self, address: str) -> ClusterID | None:
        """Return the borrower whose pod alone has an address; None for any other address."""
        return None if self._pod_addresses is None else self._pod_addresses.tenant_at(address)

    def has_tunnel(self, peer: ClusterID) -> bool:
        """Return whether there is a tunnel to a peer, or may be one."""
        return self.networks.is_awaited or self.networks.has_tunnel(peer)

    def used_by(self, peer: ClusterID) -> Resources:
        """Return what the unfinished pods of a borrower request (``pods`` is their number), as far as is known."""
        return dict(self._shadowpods.capacity.used(peer))

    def written_for(self) -> Mapping[ClusterID, int]:
        """Return the bytes of requests that wrote something here, by the borrower that led to them."""
        writes = self._client.written or Counter()
        for namespace, size in writes.items():
            if tenant := self._namespaces.known_tenant(namespace):
                self._written[ClusterID(tenant)] += size
        writes.clear()
        return self._written

    def _check(self, peer: str) -> None:
        try:
            parse_cluster_id(peer)
        except ValueError as error:
            raise Refusal("InvalidClusterID", str(error)) from None
        if peer == self._cluster_id:
            raise Refusal("InvalidClusterID", f"{peer} is the ID of this cluster itself; it lends nothing to itself")


def _shadowpods(
    context: HostingContext, namespaces: Namespaces, policies: TenantIsolation, first_pods: FirstPods
) -> ShadowPods:
    caches, grants = context.caches, context.grants
    return ShadowPods(
        context.client,
        context.clock,
        shadows=caches.shadowpods,
        pods=caches.pods,
        nodes=context.networks.nodes,
        namespaces=namespaces,
        offers=grants.offers,
        orders=context.orders,
        recorder=context.recorder,
        workers=context.workers,
        contract=grants.contract,
        contracts=grants.contracts,
        name_servers=context.name_servers,
        isolation=policies,
        first_pods=first_pods,
        wall=context.wall,
        metrics=context.metrics,
        audit=context.audit,
    )


def _first_pods(context: HostingContext, settings: Settings, informers: Informers) -> FirstPods:
    caches = context.caches
    slices: list[Informer[EndpointSlice]] = [caches.endpointslices]
    if settings.hosting.home_api:
        slices.append(informers.of(ENDPOINTSLICES, EndpointSlice, labels=SLICES))
    return FirstPods(
        context.clock,
        namespaces=caches.namespaces,
        services=caches.services,
        shadows=caches.shadowslices,
        slices=slices,
    )


def _paths(context: HostingContext, namespaces: Namespaces) -> HomePaths:
    return HomePaths(
        context.clock,
        shadows=context.caches.shadowslices,
        foreign=context.grants.offers.informer,
        namespaces=namespaces,
        networks=context.networks,
        metrics=context.metrics,
    )


def _reclaims(context: HostingContext, namespaces: Namespaces) -> Reclaims:
    return Reclaims(
        context.client,
        context.clock,
        orders=context.orders,
        shadows=context.caches.shadowpods,
        pods=context.caches.pods,
        namespaces=namespaces,
        recorder=context.recorder,
        metrics=context.metrics,
        audit=context.audit,
    )


def _endpointslices(context: HostingContext, namespaces: Namespaces, paths: HomePaths) -> ShadowEndpointSlices:
    return ShadowEndpointSlices(
        context.client,
        context.clock,
        shadows=context.caches.shadowslices,
        slices=context.caches.endpointslices,
        services=context.caches.services,
        namespaces=namespaces,
        networks=context.networks,
        lost=paths.lost,
        recorder=context.recorder,
        workers=context.workers,
        metrics=context.metrics,
    )


def _pod_addresses(settings: Settings, informers: Informers, namespaces: Namespaces) -> PodAddresses | None:
    """Return whose pod has which address; None where nobody asks for that, so that no pods are watched for it."""
    if not settings.hosting.home_api:
        return None
    pods = informers.of(PODS, PlacedPod, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_SHADOWPOD}")
    return PodAddresses(pods, namespaces)


def _home_api(
    context: HostingContext, settings: Settings, informers: Informers, namespaces: Namespaces
) -> Iterator[HomeApiSlices]:
    if settings.hosting.home_api:
        yield HomeApiSlices(
            context.client,
            context.clock,
            services=context.caches.services,
            slices=informers.of(ENDPOINTSLICES, EndpointSlice, labels=SLICES),
            namespaces=namespaces,
            networks=context.networks,
            place=context.streams,
            metrics=context.metrics,
        )
