"""Keeps network policy and default requests of each granted namespace as contract, offer and networks say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.hosting.tenants import bounds
from liqod.hosting.tenants.name_servers import NameServers
from liqod.hosting.tenants.networks import Networks
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import Offers
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.manifests import covers
from liqod.kube.resources import LIMITRANGES, NETWORKPOLICIES, Resource
from liqod.kube.writing.ensure import ensure
from liqod.model.ids import Key
from liqod.model.names import QUOTA_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.granted_namespace import is_tenant_namespace, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.facts import ClusterFacts
from liqod.model.records.network import NetworkConfig, TunnelEndpoint

AGAIN: Final = 600.0
"""Seconds until a namespace is looked at again: the objects in it are not watched."""


class NamespaceBounds(Controller[Key]):
    """Reconciles each granted namespace with its NetworkPolicy and its LimitRange; tenants take turns."""

    name = "tenant-bounds"
    workers = 2

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        offers: Offers,
        networks: Networks,
        contracts: Contracts,
        name_servers: NameServers | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._offers = offers
        self._networks = networks
        self._contracts = contracts
        self._name_servers = name_servers

    def sources(self) -> Iterable[Source[Key]]:
        """Namespaces, the offers to their tenants, nodes and tunnels."""
        yield watch(self._namespaces, self._namespace_changed)
        yield observe(self._offers, self._of_tenant)
        yield watch(self._networks.nodes, self._node_changed)
        yield watch(self._networks.facts, self._facts_changed)
        if self._name_servers is not None:
            yield observe(self._name_servers, self._of_tenant)
        if self._networks.tunnels is not None:
            yield watch(self._networks.tunnels, self._tunnel_changed)
        if self._networks.decisions is not None:
            yield watch(self._networks.decisions, self._decision_changed)

    async def prepare(self) -> None:
        """Await the networks and the offers."""
        await self._networks.prepare()
        await self._offers.informer.when_synced()
        if self._name_servers is not None:
            await self._name_servers.when_synced()

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant of a namespace."""
        found = self._namespaces.get(key)
        return tenant_of(found) if found is not None else ""

    async def reconcile(self, key: Key) -> After | None:
        """Write what differs in one namespace."""
        found = self._namespaces.get(key)
        if found is None or found.metadata.deleting or not (tenant := tenant_of(found)):
            return None
        await self.apply(tenant, key.name)
        return After(AGAIN)

    async def apply(self, tenant: str, namespace: str) -> None:
        """Create or update the bounds of a namespace, before anything is created in it. Raises KubeError."""
        await self._networks.prepare()
        around = self._networks.around(tenant)
        if self._name_servers is not None:
            around = attrs.evolve(around, name_servers=self._name_servers.places(tenant))
        contract, offered = self._contracts.of(tenant), self._offers.get(tenant)
        policy = bounds.network_policy(tenant, namespace, contract, around)
        # A policy that is there stays while the networks of this cluster are not known yet; one that is made is narrow.
        await self._ensure(NETWORKPOLICIES, namespace, policy, same=_kept if self._networks.is_awaited else covers)
        if offered is not None:  # what is lent is not known otherwise, and nothing is created
            defaults = bounds.default_requests(contract, offered)
            range_ = bounds.limit_range(tenant, namespace, defaults) if defaults else None
            await self._ensure(LIMITRANGES, namespace, range_)

    async def _ensure(
        self, resource: Resource, namespace: str, body: dict[str, Any] | None, same: Callable[[Any, Any], bool] = covers
    ) -> None:
        if body is None:
            await self._client.delete(resource, bounds.NAME, namespace)
        else:
            await ensure(self._client, resource, body, same=same)

    def _of_tenant(self, tenant: str) -> Iterable[Key]:
        return [one.metadata.key for one in self._namespaces.items() if tenant_of(one) == tenant]

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        yield key
        if old is None or new is None or not is_tenant_namespace(new, peer := _peer(new)):
            return
        if old.metadata.annotations.get(QUOTA_ANNOTATION) != new.metadata.annotations.get(QUOTA_ANNOTATION):
            yield from self._of_tenant(peer)

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[Key]:
        same = old is not None and new is not None and old.spec.remote_seen == new.spec.remote_seen
        return () if same else self._of_tenant(key.name)

    def _decision_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[Key]:
        return () if self._networks.is_same_decision(old, new) else self._of_tenant(key.name)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        return () if self._networks.is_same(old, new) else self._of_all()

    def _facts_changed(self, key: Key, old: ClusterFacts | None, new: ClusterFacts | None) -> Iterable[Key]:
        return () if self._networks.is_same_facts(old, new) else self._of_all()

    def _of_all(self) -> Iterable[Key]:
        return [one.metadata.key for one in self._namespaces.items() if tenant_of(one)]


def _kept(present: object, wanted: object) -> bool:
    return present is not None


def _peer(namespace: Object) -> str:
    return namespace.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
