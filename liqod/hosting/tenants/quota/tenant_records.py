"""Counts the records of each tenant, and labels its namespaces when it has as many as it may.

The label is what the admission policy of borrowers looks at (``policies``): it holds while no daemon runs, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, Watchable, observe, watch
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import Offers
from liqod.hosting.tenants.quota.record_bounds import BYTES, full, label_of, labelled, most_records
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACES
from liqod.model.ids import Key
from liqod.model.names import FULL_LABEL
from liqod.model.objects.granted_namespace import granted_to, tenant_of
from liqod.model.objects.meta import Object

COALESCE: Final = 0.25
"""Seconds for which changes are collected: more records than that time allows are never accepted beyond a bound."""


class TenantRecords(Controller[str]):
    """Reconciles the label of each tenant's namespaces; its keys are tenants. ``records`` are the sizes by kind."""

    name = "tenant-records"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        records: Mapping[str, Watchable[int]],
        offers: Offers,
        contracts: Contracts,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._records = records
        self._offers = offers
        self._contracts = contracts
        self._found: dict[str, Counter[str]] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Namespaces, offers and all records."""
        self._found.clear()
        yield watch(self._namespaces, self._namespace_changed)
        for kind, sizes in self._records.items():
            yield watch(sizes, self._counting(kind))
        yield observe(self._offers, lambda tenant: (tenant,))

    async def prepare(self) -> None:
        """Await what is counted: of what is not known yet there may be too much."""
        await self._namespaces.when_synced()
        await self._offers.informer.when_synced()
        for sizes in self._records.values():
            await sizes.when_synced()

    async def reconcile(self, tenant: str) -> After | None:
        """Label the namespaces of a tenant, or take the label away, where it differs."""
        present = self._namespaces_of(tenant)
        now = self._full(tenant, present)
        for namespace in present:
            if labelled(namespace) != now and not namespace.metadata.deleting:
                await self._label(namespace.metadata.name, now)
        return None

    async def apply(self, tenant: str, namespace: str) -> None:
        """Label a namespace before anything is created in it, if its tenant has no room. Raises KubeError."""
        await self.prepare()
        if now := self._full(tenant, self._namespaces_of(tenant)):
            await self._label(namespace, now)

    def used(self, tenant: str) -> Counter[str]:
        """Return the number of a tenant's records by kind, and their bytes."""
        found = (self._found.get(one.metadata.name) for one in self._namespaces_of(tenant))
        return sum((one for one in found if one is not None), Counter[str]())

    def _full(self, tenant: str, present: Iterable[Object]) -> frozenset[str]:
        before = frozenset[str]().union(*map(labelled, present))
        most = most_records(self._contracts.of(tenant), self._offers.get(tenant))
        used = self.used(tenant)
        now = full(used, most, before)
        for name in sorted(now - before):
            self._log.warn(
                "{peer} has as many records as it may, and can create none: {count} of {limit} {kind} (tenant-records "
                "of [hosting])",
                peer=tenant,
                count=used[name],
                limit=int(most[name]),
                kind=name,
            )
        return now

    async def _label(self, namespace: str, names: Iterable[str]) -> None:
        change = {"metadata": {"labels": {FULL_LABEL: label_of(names)}}}
        try:
            await self._client.patch(NAMESPACES, namespace, change, kind="merge", view=None)
        except NotFound:
            return

    def _namespaces_of(self, tenant: str) -> list[Object]:
        return granted_to(tenant, self._namespaces.items())

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        return {tenant_of(old), tenant_of(new)} - {""}

    def _counting(self, kind: str) -> Callable[[Key, int | None, int | None], Iterable[str]]:
        def changed(key: Key, old: int | None, new: int | None) -> Iterable[str]:
            found = self._found.setdefault(key.namespace, Counter())
            found[kind] += (new is not None) - (old is not None)
            found[BYTES] += (new or 0) - (old or 0)
            if not any(found.values()):
                del self._found[key.namespace]
            if tenant := tenant_of(self._namespaces.get(Key("", key.namespace))):
                self.enqueue(tenant, COALESCE)
            return ()

        return changed
