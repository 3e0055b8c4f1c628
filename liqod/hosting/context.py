"""What the parts of hosting share: this cluster's API server, caches of its objects, and what tenants are granted."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from liqod.audit.events import Audit
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.controller import ReconcileMetrics
from liqod.flow.observe import Latest
from liqod.hosting.endpointslice_forge import LABELS, EndpointSlice
from liqod.hosting.isolation.views import NetworkPolicy
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.name_servers import NameServers
from liqod.hosting.tenants.namespaces import selector
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders
from liqod.hosting.tenants.quota.tenant_quotas import SELECTED
from liqod.hosting.tenants.quota.view import ResourceQuota
from liqod.hosting.views import Counted, Pod
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.cache.sizes import Sizes
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
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD, ORIGIN_LABEL
from liqod.model.objects.meta import Object, label_selector
from liqod.model.records.facts import ClusterFacts
from liqod.model.records.home_policies import ShadowNetworkPolicySet
from liqod.model.records.name_service import LABEL as NAME_SERVICE
from liqod.model.records.name_service import NameService, NameSlice
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice, ShadowPod


@frozen(kw_only=True)
class Caches:
    """The caches of what tenants write, with its sizes, and of what is made of it here.

    ``services`` are those of tenants: the cluster's own are without the label, as an admission policy has it.
    ``contents``: their config maps and secrets, by kind, where these are counted.
    """

    namespaces: Informer[Object]
    pods: Informer[Pod]
    shadowpods: Informer[ShadowPod]
    shadowslices: Informer[ShadowEndpointSlice]
    policysets: Informer[ShadowNetworkPolicySet]
    endpointslices: Informer[EndpointSlice]
    services: Informer[NameService]
    policies: Informer[NetworkPolicy]
    quotas: Informer[ResourceQuota]
    facts: Informer[ClusterFacts]
    contents: Mapping[str, Informer[Counted]]

    @classmethod
    def watched_by(cls, informers: Informers, *, contents: bool) -> Caches:
        """Return the shared caches of these objects. Raises ValueError where others use one of a record already."""
        return cls(
            namespaces=informers.of(NAMESPACES, Object, labels=selector()),
            pods=informers.of(PODS, Pod, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_SHADOWPOD}"),
            # An informer notes sizes from its first object on, or never.
            shadowpods=informers.of(SHADOWPODS, ShadowPod, sizes=True),
            shadowslices=informers.of(SHADOWENDPOINTSLICES, ShadowEndpointSlice, sizes=True),
            policysets=informers.of(SHADOWNETWORKPOLICYSETS, ShadowNetworkPolicySet, sizes=True),
            endpointslices=informers.of(ENDPOINTSLICES, EndpointSlice, labels=label_selector(LABELS)),
            services=informers.of(SERVICES, NameService, labels=ORIGIN_LABEL),
            policies=informers.of(NETWORKPOLICIES, NetworkPolicy, labels=selector()),
            quotas=informers.of(RESOURCEQUOTAS, ResourceQuota, fields=SELECTED),
            facts=informers.of(CLUSTERFACTS, ClusterFacts),
            # Without the label there are those of the cluster itself; an admission policy has tenants set it.
            contents={
                kind.plural: informers.of(kind, Counted, labels=ORIGIN_LABEL, sizes=True)
                for kind in (CONFIGMAPS, SECRETS)
                if contents
            },
        )

    def counted(self) -> dict[str, Sizes]:
        """Return the sizes of what tenants write, by kind."""
        return {
            SHADOWPODS.plural: self.shadowpods.sizes,
            SHADOWENDPOINTSLICES.plural: self.shadowslices.sizes,
            SHADOWNETWORKPOLICYSETS.plural: self.policysets.sizes,
            **{kind: informer.sizes for kind, informer in self.contents.items()},
        }


@frozen
class Grants:
    """What tenants are granted: by the settings, by the level of each namespace, and by the offers to each."""

    contract: Contract
    contracts: Contracts
    offers: TenantOffers

    @classmethod
    def of(cls, settings: Settings, informers: Informers, namespaces: Informer[Object]) -> Grants:
        """Return what is granted by settings and records."""
        contract = Contract.of(settings)
        return cls(
            contract, Contracts(contract, namespaces), TenantOffers(informers.of(FOREIGNCLUSTERS, ForeignCluster))
        )


@frozen(kw_only=True)
class HostingContext:
    """What the parts of hosting share. ``wall`` None: the wall clock of the host.

    ``streams`` is where pods of tenants without a tunnel come for their home's API server; None: nowhere.
    """

    client: Client
    clock: Reactor
    caches: Caches
    grants: Grants
    networks: TenantNetworks
    orders: ReclaimOrders
    name_servers: NameServers | None
    recorder: Recorder
    workers: int
    wall: WallClock | None
    metrics: ReconcileMetrics
    audit: Audit
    streams: Latest[tuple[str, int] | None] = field(factory=lambda: Latest(None))


def name_servers_of(settings: Settings, informers: Informers) -> NameServers | None:
    """Return where tenants are answered for names; None where no names are served."""
    if not settings.names.enabled:
        return None
    return NameServers(
        informers.of(SERVICES, NameService, labels=NAME_SERVICE),
        informers.of(ENDPOINTSLICES, NameSlice, labels=NAME_SERVICE),
        expected=settings.names.enabled is True,
    )
