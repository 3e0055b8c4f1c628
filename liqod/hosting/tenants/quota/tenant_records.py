"""Counts what each tenant keeps here, and labels its namespaces when it has as much as it may.

Records have one label, config maps and secrets another: these are what the admission policies of borrowers look at
(``policies``), and hold while no daemon runs, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, Watchable, observe, watch
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.quota.content_bounds import most_contents, sums_of
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.record_bounds import full, label_of, labelled, most_records
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import NAMESPACES
from liqod.model.ids import Key
from liqod.model.names import FULL_CONTENTS_LABEL, FULL_LABEL
from liqod.model.objects.granted_namespace import granted_to, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources

COALESCE: Final = 0.25
"""Seconds for which changes are collected: more than that time allows is never accepted beyond a bound."""
PATIENCE: Final = 10.0
"""Seconds that a new namespace waits until what its tenant has is counted."""

FULL: Final = "TenantFull"
"""The reason of the security event that a tenant has all of something that it may have."""
_Most = Callable[[Contract, Resources | None], Resources]
_BOUNDS: Final[tuple[tuple[str, str, _Most], ...]] = (
    (FULL_LABEL, "hosting.tenant-records", most_records),
    (FULL_CONTENTS_LABEL, "hosting.tenant-contents", lambda contract, offered: most_contents(contract)),
)
"""What there is a label for, with the setting and its amounts."""


class TenantRecords(Controller[str]):
    """Reconciles the labels of each tenant's namespaces; its keys are tenants.

    ``counted`` are the sizes by kind: those of records, and of what else is bounded by its size.
    """

    name = "tenant-records"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        counted: Mapping[str, Watchable[int]],
        offers: TenantOffers,
        contracts: Contracts,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._audit = audit
        self._client = client
        self._namespaces = namespaces
        self._counted = counted
        self._offers = offers
        self._contracts = contracts
        self._found: dict[str, Counter[str]] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Namespaces, offers and all that is counted."""
        self._found.clear()
        yield watch(self._namespaces, self._namespace_changed)
        for kind, sizes in self._counted.items():
            yield watch(sizes, self._counting(kind))
        yield observe(self._offers, lambda tenant: (tenant,))

    async def prepare(self) -> None:
        """Await what is counted: of what is not known yet there may be too much."""
        await self._namespaces.when_synced()
        await self._offers.informer.when_synced()
        for sizes in self._counted.values():
            await sizes.when_synced()

    async def reconcile(self, tenant: str) -> After | None:
        """Label the namespaces of a tenant, or take labels away, where they differ."""
        present = self._namespaces_of(tenant)
        wanted = self._labels(tenant, present)
        for namespace in present:
            labels = namespace.metadata.labels
            if any(labels.get(key) != value for key, value in wanted.items()) and not namespace.metadata.deleting:
                await self._label(namespace.metadata.name, wanted)
        return None

    async def apply(self, tenant: str, namespace: str) -> None:
        """Label a namespace before anything is created in it, if its tenant has no room.

        Raises KubeError, also if the API server does not list what is counted, such as for want of the right.
        """
        try:
            await Deferred.fromCoroutine(self.prepare()).addTimeout(PATIENCE, self.clock)
        except TimeoutError:
            if tenant_of(self._namespaces.get(Key("", namespace))) == tenant:
                return  # It has its labels since it was made, and keeps them.
            missing = ", ".join(kind for kind, sizes in self._counted.items() if not sizes.when_synced().called)
            raise KubeError(f"what {tenant} has is not counted: the API server here does not list {missing}") from None
        wanted = self._labels(tenant, self._namespaces_of(tenant))
        if any(wanted.values()):
            await self._label(namespace, wanted)

    def used(self, tenant: str) -> Counter[str]:
        """Return the number of what a tenant has by kind, and the bytes of its records and of its contents."""
        found = (self._found.get(one.metadata.name) for one in self._namespaces_of(tenant))
        return sum((one for one in found if one is not None), Counter[str]())

    def _labels(self, tenant: str, present: Sequence[Object]) -> dict[str, str | None]:
        """Return the labels that a tenant's namespaces should have; None: not this one."""
        contract, offered, used = self._contracts.of(tenant), self._offers.get(tenant), self.used(tenant)
        labels: dict[str, str | None] = {}
        for label, setting, most_of in _BOUNDS:
            most = most_of(contract, offered)
            before = frozenset[str]().union(*(labelled(one, label) for one in present))
            now = full(used, most, before)
            for name in sorted(now - before):
                self._log.warn(
                    "{peer} has all that it may have here, and gets no more {kind}: {count} of {limit} ({setting})",
                    peer=tenant,
                    kind=name,
                    count=used[name],
                    limit=int(most[name]),
                    setting=setting,
                )
                self._audit.record(AuditEvent("RateLimited", FULL, peer=tenant, object=f"bound/{name}"))
            labels[label] = label_of(now)
        return labels

    async def _label(self, namespace: str, labels: Mapping[str, str | None]) -> None:
        try:
            await self._client.patch(NAMESPACES, namespace, {"metadata": {"labels": labels}}, kind="merge", view=None)
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
            for name in sums_of(kind):
                found[name] += (new or 0) - (old or 0)
            if not any(found.values()):
                del self._found[key.namespace]
            if tenant := tenant_of(self._namespaces.get(Key("", key.namespace))):
                self.enqueue(tenant, COALESCE)
            return ()

        return changed
