"""Writes the statuses of NamespaceOffloadings, by which users see the result of their request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import NAMESPACEOFFLOADINGS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import RefusedWrite, RefusedWrites, Retry
from liqod.kube.writing.status_writer import StatusWriter
from liqod.kubelet.common.views import Namespace
from liqod.kubelet.namespaces.offloading_forge import MappedLender, forge_status
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import Object
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import NamespaceNattingTable, VirtualNode
from liqod.model.timestamps import rfc3339

_NO_TABLE = NamespaceNattingTable()


class OffloadingStatusController(Controller[Key]):
    """Reconciles NamespaceOffloadings, at most one for each namespace; ``nodes`` are the virtual nodes."""

    name = "namespace offloading status"
    workers = 2

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        home: ClusterID,
        *,
        offloadings: Informer[NamespaceOffloading],
        enabled: Informer[Namespace],
        tables: Informer[NamespaceNattingTable],
        records: Informer[VirtualNode],
        nodes: Informer[Object],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._home = home
        self._offloadings = offloadings
        self._enabled = enabled
        self._tables = tables
        self._records = records
        self._nodes = nodes
        self._cache: MutationCache[NamespaceOffloading] = MutationCache(offloadings, clock)
        self._status = StatusWriter(client, NAMESPACEOFFLOADINGS, NamespaceOffloading, self._cache, versioned=False)
        self._refusals: RefusedWrites[Key] = RefusedWrites()

    def sources(self) -> Iterable[Source[Key]]:
        yield watch(self._offloadings, self._offloading_changed)
        yield watch(self._enabled, lambda key, old, new: self._in_namespace(key.name))
        yield watch(self._tables, self._table_changed)
        yield watch(self._records, lambda key, old, new: self._all())
        yield watch(self._nodes, self._node_changed)

    def _offloading_changed(
        self, key: Key, old: NamespaceOffloading | None, new: NamespaceOffloading | None
    ) -> Iterable[Key]:
        if new is not None:
            return (key,)
        self._cache.forget(key)
        self._refusals.forget(key)
        return ()

    def _in_namespace(self, namespace: str) -> Iterator[Key]:
        return (key for key in self._all() if key.namespace == namespace)

    def _all(self) -> list[Key]:
        return [offloading.metadata.key for offloading in self._offloadings.items()]

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        before, after = (each.metadata.labels if each is not None else None for each in (old, new))
        return self._all() if before != after else ()

    def _table_changed(
        self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None
    ) -> Iterator[Key]:
        before, after = old or _NO_TABLE, new or _NO_TABLE
        for name in {*before.spec.natting_table, *after.spec.natting_table}:
            was = before.spec.natting_table.get(name), before.status.mappings.get(name)
            if was != (after.spec.natting_table.get(name), after.status.mappings.get(name)):
                yield from self._in_namespace(name)

    async def reconcile(self, key: Key) -> After | None:
        offloading = self._cache.get(key)
        if offloading is None or offloading.metadata.deleting:
            return None
        namespace = self._enabled.get(Key("", key.namespace))
        status = forge_status(
            offloading,
            enabled=namespace is not None and not namespace.metadata.deleting,
            lenders=[self._lender(record, key.namespace) for record in self._records.items()],
            home=self._home,
            now=rfc3339(wall_clock(self.clock)()),
        )
        written = await self._status.write(offloading, status)
        if not isinstance(written, RefusedWrite):
            self._refusals.forget(key)
            return None
        seconds = self._refusals.refused(key, written)
        if written.retry is not Retry.AT_ONCE:
            self._log.warn(
                "the status of the NamespaceOffloading {name} is refused: {error}", name=str(key), error=written.message
            )
        return None if seconds is None else After(seconds)

    def _lender(self, record: VirtualNode, namespace: str) -> MappedLender:
        name = record.spec.node_name
        node = self._nodes.get(Key("", name))
        table = self._tables.get(Key("", record.spec.cluster_id)) or _NO_TABLE
        return MappedLender(
            cluster_id=record.spec.cluster_id,
            node=name,
            labels=None if node is None else node.metadata.labels,
            entry=table.spec.natting_table.get(namespace),
            mapping=table.status.mappings.get(namespace),
            taken=table.spec.de_natting_table,
        )
