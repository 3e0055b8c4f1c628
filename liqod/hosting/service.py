"""The lender's side as one service: access and namespaces of borrowers, and what they run here.

Its whole state is in the API: labels of namespaces name the tenants, ForeignClusters what is lent, pods what is used.
These are listed first; until then nothing is created, counted or deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always
from liqod.hosting.context import Caches, Grants, HostingContext, name_servers_of
from liqod.hosting.endpointslices import ShadowEndpointSlices
from liqod.hosting.home_paths import HomePaths
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
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.model.ids import ClusterID, parse_cluster_id
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
        )
        limits = NamespaceLimits.of(context)
        self._namespaces = limits.namespaces(context)
        self._access = Access(client, self._namespaces, access, grants.contract)
        self._shadowpods = _shadowpods(context, self._namespaces, limits.policies)
        paths = _paths(context, self._namespaces)
        for controller in (
            BorrowerRole(clock, self._access, metrics=metrics),
            limits.bounds,
            limits.policies,
            limits.quotas,
            limits.records,
            paths,
            ClosingNamespaces(client, clock, caches.namespaces, metrics=metrics),
            self._shadowpods,
            _endpointslices(context, self._namespaces, paths),
            _reclaims(context, self._namespaces),
        ):
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


def _shadowpods(context: HostingContext, namespaces: Namespaces, policies: TenantIsolation) -> ShadowPods:
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
        wall=context.wall,
        metrics=context.metrics,
        audit=context.audit,
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
