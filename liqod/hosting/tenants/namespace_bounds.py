"""Keeps the default requests and the Pod Security level of each granted namespace as contract and offer say."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.hosting.tenants import bounds, grants
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import LIMITRANGES, NAMESPACES
from liqod.kube.writing.ensure import ensure
from liqod.model.ids import Key
from liqod.model.names import QUOTA_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.granted_namespace import granted_to, is_tenant_namespace, tenant_of
from liqod.model.objects.meta import Object

AGAIN: Final = 600.0
"""Seconds until a namespace is looked at again: the objects in it are not watched."""


class NamespaceBounds(Controller[Key]):
    """Reconciles each granted namespace with its LimitRange and its labels; tenants take turns."""

    name = "tenant-bounds"
    workers = 2

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        offers: TenantOffers,
        contracts: Contracts,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._offers = offers
        self._contracts = contracts

    def sources(self) -> Iterable[Source[Key]]:
        """Namespaces, and the offers to their tenants."""
        yield watch(self._namespaces, self._namespace_changed)
        yield observe(self._offers, self._of_tenant)

    async def prepare(self) -> None:
        """Await the offers."""
        await self._offers.informer.when_synced()

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant of a namespace."""
        return tenant_of(self._namespaces.get(key))

    async def reconcile(self, key: Key) -> After | None:
        """Write what differs in one namespace."""
        found = self._namespaces.get(key)
        if found is None or found.metadata.deleting or not (tenant := tenant_of(found)):
            return None
        await self.apply(tenant, key.name)
        # A namespace from before ``[hosting] pod-security`` was changed has the labels of then.
        labels = grants.security_labels(self._contracts.of(tenant).granted.pod_security)
        if not labels.items() <= found.metadata.labels.items():
            patch = {"metadata": {"uid": found.metadata.uid, "labels": labels}}
            await self._client.patch(NAMESPACES, key.name, patch, view=None)
        return After(AGAIN)

    async def apply(self, tenant: str, namespace: str) -> None:
        """Create or update the LimitRange of a namespace, before anything is created in it. Raises KubeError."""
        contract, offered = self._contracts.of(tenant), self._offers.get(tenant)
        if offered is None:  # what is lent is not known, and nothing is created
            return
        defaults = bounds.default_requests(contract, offered)
        if defaults:
            await ensure(self._client, LIMITRANGES, bounds.limit_range(tenant, namespace, defaults), defaulted=True)
        else:
            await self._client.delete(LIMITRANGES, bounds.NAME, namespace)

    def _of_tenant(self, tenant: str) -> Iterable[Key]:
        return [one.metadata.key for one in granted_to(tenant, self._namespaces.items())]

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        yield key
        if old is None or new is None or not is_tenant_namespace(new, peer := _peer(new)):
            return
        if old.metadata.annotations.get(QUOTA_ANNOTATION) != new.metadata.annotations.get(QUOTA_ANNOTATION):
            yield from self._of_tenant(peer)


def _peer(namespace: Object) -> str:
    return namespace.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
