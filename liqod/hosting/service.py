"""The lender's side as one service: access and namespaces of borrowers, and what they run here.

Its whole state is in the API: labels of namespaces name the tenants, ForeignClusters what is lent, pods what is used.
These are listed first; until then nothing is created, counted or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, Watchable, always
from liqod.hosting.endpointslice_forge import LABELS, EndpointSlice
from liqod.hosting.endpointslices import ShadowEndpointSlices
from liqod.hosting.home_paths import HomePaths
from liqod.hosting.isolation.controller import NetworkPolicies
from liqod.hosting.isolation.views import NetworkPolicy
from liqod.hosting.shadowpods.controller import ShadowPods
from liqod.hosting.tenants import authorizer
from liqod.hosting.tenants.access import Access, ApiAccess
from liqod.hosting.tenants.closing import ClosingNamespaces
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.name_servers import NameServers
from liqod.hosting.tenants.namespace_bounds import NamespaceBounds
from liqod.hosting.tenants.namespaces import Namespaces, selector
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.tenant_quotas import SELECTED, TenantQuotas
from liqod.hosting.tenants.quota.tenant_records import TenantRecords
from liqod.hosting.tenants.quota.view import ResourceQuota
from liqod.hosting.tenants.rights import BORROWER_ROLE
from liqod.hosting.views import Counted, Pod
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import (
    CLUSTERFACTS,
    CONFIGMAPS,
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    NAMESPACES,
    NETWORKPOLICIES,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    SHADOWNETWORKPOLICYSETS,
    SHADOWPODS,
)
from liqod.model.ids import ClusterID, parse_cluster_id
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD, ORIGIN_LABEL
from liqod.model.objects.api_request import RequestAttributes
from liqod.model.objects.meta import Object, label_selector
from liqod.model.objects.quantity import Resources
from liqod.model.records.facts import ClusterFacts
from liqod.model.records.home_policies import ShadowNetworkPolicySet
from liqod.model.records.name_service import LABEL as NAME_SERVICE
from liqod.model.records.name_service import NameService, NameSlice
from liqod.model.records.offer import AccessGrant, Refusal
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice, ShadowPod


class BorrowerRole(Controller[str]):
    """Updates the ClusterRole of borrowers for this version, once per start."""

    name = "borrower-role"

    def __init__(self, clock: IReactorTime, access: Access, *, metrics: ReconcileMetrics = NO_METRICS) -> None:
        super().__init__(clock, metrics=metrics)
        self._access = access

    def sources(self) -> Iterable[Source[str]]:
        """The one role."""
        yield always(BORROWER_ROLE)

    async def reconcile(self, key: str) -> After | None:
        """Create or update the role."""
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
        own = settings.hosting
        contract = Contract.of(settings)
        name_servers: NameServers | None = None
        if settings.names.enabled:
            name_servers = NameServers(
                informers.of(SERVICES, NameService, labels=NAME_SERVICE),
                informers.of(ENDPOINTSLICES, NameSlice, labels=NAME_SERVICE),
            )
        self._cluster_id = cluster_id
        namespaces = informers.of(NAMESPACES, Object, labels=selector())
        self._offers = TenantOffers(informers.of(FOREIGNCLUSTERS, ForeignCluster))
        self.networks = TenantNetworks(client, informers, settings.network)
        contracts = Contracts(contract, namespaces)
        bounds = NamespaceBounds(
            client,
            clock,
            namespaces=namespaces,
            offers=self._offers,
            contracts=contracts,
            metrics=metrics,
        )
        pods = informers.of(PODS, Pod, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_SHADOWPOD}")
        # Before others use them: an informer notes sizes from its first object on, or never.
        shadows = informers.of(SHADOWPODS, ShadowPod, sizes=True)
        shadowslices = informers.of(SHADOWENDPOINTSLICES, ShadowEndpointSlice, sizes=True)
        sets = informers.of(SHADOWNETWORKPOLICYSETS, ShadowNetworkPolicySet, sizes=True)
        policies = NetworkPolicies(
            client,
            clock,
            namespaces=namespaces,
            records=sets,
            policies=informers.of(NETWORKPOLICIES, NetworkPolicy, labels=selector()),
            pods=pods,
            facts=informers.of(CLUSTERFACTS, ClusterFacts),
            networks=self.networks,
            contract=contract,
            name_servers=name_servers,
            metrics=metrics,
        )
        quotas = TenantQuotas(
            client,
            clock,
            namespaces=namespaces,
            quotas=informers.of(RESOURCEQUOTAS, ResourceQuota, fields=SELECTED),
            offers=self._offers,
            contracts=contracts,
            metrics=metrics,
        )
        counted: dict[str, Watchable[int]] = {
            SHADOWPODS.plural: shadows.sizes,
            SHADOWENDPOINTSLICES.plural: shadowslices.sizes,
            SHADOWNETWORKPOLICYSETS.plural: sets.sizes,
        }
        if own.tenant_contents:
            # Without the label there are those of the cluster itself; an admission policy has tenants set it.
            for kind in (CONFIGMAPS, SECRETS):
                counted[kind.plural] = informers.of(kind, Counted, labels=ORIGIN_LABEL, sizes=True).sizes
        records = TenantRecords(
            client,
            clock,
            namespaces=namespaces,
            counted=counted,
            offers=self._offers,
            contracts=contracts,
            metrics=metrics,
        )
        self._namespaces = Namespaces(
            client,
            namespaces,
            contract,
            [quotas.apply, bounds.apply, policies.apply, records.apply],
            peers=self._offers.trusted,
        )
        self._access = Access(client, self._namespaces, access, contract)
        self._shadowpods = ShadowPods(
            client,
            clock,
            shadows=shadows,
            pods=pods,
            nodes=self.networks.nodes,
            namespaces=self._namespaces,
            offers=self._offers,
            recorder=recorder,
            workers=own.workers,
            contract=contract,
            contracts=contracts,
            name_servers=name_servers,
            isolation=policies,
            wall=wall,
            metrics=metrics,
            audit=audit,
        )
        paths = HomePaths(
            clock,
            shadows=shadowslices,
            foreign=self._offers.informer,
            namespaces=self._namespaces,
            networks=self.networks,
            metrics=metrics,
        )
        endpointslices = ShadowEndpointSlices(
            client,
            clock,
            shadows=shadowslices,
            slices=informers.of(ENDPOINTSLICES, EndpointSlice, labels=label_selector(LABELS)),
            namespaces=self._namespaces,
            networks=self.networks,
            lost=paths.lost,
            recorder=recorder,
            workers=own.workers,
            metrics=metrics,
        )
        for controller in (
            BorrowerRole(clock, self._access, metrics=metrics),
            bounds,
            policies,
            quotas,
            records,
            paths,
            ClosingNamespaces(client, clock, namespaces, metrics=metrics),
            self._shadowpods,
            endpointslices,
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

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Grant a namespace to a borrower; returns its name. Raises Refusal and KubeError."""
        self._check(peer)
        await self._access.ensure_role()
        return await self._namespaces.grant(peer, local, remote)

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Delete a granted namespace with everything in it. Raises Refusal and KubeError."""
        self._check(peer)
        await self._namespaces.release(peer, remote)

    async def dismiss(self, peer: ClusterID) -> bool:
        """Revoke a borrower's access, then delete everything it has here; return whether it had anything.

        Raises Refusal and KubeError.
        """
        self._check(peer)
        return await self._access.dismiss(peer)

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        """Return whether a borrower may send a request to the API server, as far as is known; RBAC decides again."""
        return authorizer.permits(peer, ask, self._namespaces.known_tenant(ask.namespace) or "")

    def account_of(self, peer: ClusterID) -> str:
        """Return the API server's user name for a borrower."""
        return authorizer.user_of(peer)

    def used_by(self, peer: ClusterID) -> Resources:
        """Return what the unfinished pods of a borrower request (``pods`` is their number), as far as is known."""
        return dict(self._shadowpods.capacity.used(peer))

    def _check(self, peer: str) -> None:
        try:
            parse_cluster_id(peer)
        except ValueError as error:
            raise Refusal("InvalidClusterID", str(error)) from None
        if peer == self._cluster_id:
            raise Refusal("InvalidClusterID", f"{peer} is the ID of this cluster itself; it lends nothing to itself")
