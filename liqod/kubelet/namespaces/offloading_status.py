"""Keeps the status of NamespaceOffloadings: what users see of what their wishes came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred

from liqod.flow.clocks import wall_clock
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACEOFFLOADINGS
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.patches import merge_diff
from liqod.kubelet.common.views import Namespace
from liqod.kubelet.namespaces.offloading_forge import Lender, as_body, forge_status
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import Object
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import NamespaceNattingTable, VirtualNode
from liqod.model.timestamps import rfc3339

_NO_TABLE = NamespaceNattingTable()


class OffloadingStatusController(MultiService):
    """Writes each status when it is news; the objects are few, one per namespace at most."""

    def __init__(
        self,
        reactor: Any,
        client: Client,
        home: ClusterID,
        offloadings: Informer[NamespaceOffloading],
        enabled: Informer[Namespace],
        tables: Informer[NamespaceNattingTable],
        records: Informer[VirtualNode],
        nodes: Informer[Object],
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._client = client
        self._home = home
        self._offloadings = offloadings
        self._enabled = enabled
        self._tables = tables
        self._records = records
        self._nodes = nodes
        self._written: Overlay[Key, NamespaceOffloading] = Overlay(reactor)
        self._unsubscribe: list[Callable[[], None]] = []
        self._queue: WorkQueue[Key] = WorkQueue(reactor, "namespace offloadings")
        self._workers: Workers[Key] = Workers(self._queue, 2, self._process, "telling about the offloading of")
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._offloadings.subscribe(self._changed),
            self._enabled.subscribe(lambda key, old, new: self._enqueue_namespace(key.name)),
            self._tables.subscribe(self._table_changed),
            self._records.subscribe(lambda key, old, new: self._enqueue_all()),
            self._nodes.subscribe(self._node_changed),
        ]
        self._tasks.spawn(self._begin(), "telling about the offloading of namespaces")

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _begin(self) -> None:
        sources: tuple[Informer[Any], ...] = (
            self._offloadings,
            self._enabled,
            self._tables,
            self._records,
            self._nodes,
        )
        await DeferredList([source.when_synced() for source in sources], consumeErrors=True)
        self._workers.setServiceParent(self)

    def _changed(self, key: Key, old: NamespaceOffloading | None, new: NamespaceOffloading | None) -> None:
        if new is None:
            self._written.drop(key)
        else:
            self._queue.add(key)

    def _enqueue_namespace(self, namespace: str) -> None:
        for offloading in self._offloadings.items():
            if offloading.metadata.namespace == namespace:
                self._queue.add(offloading.metadata.key)

    def _enqueue_all(self) -> None:
        for offloading in self._offloadings.items():
            self._queue.add(offloading.metadata.key)

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        if (old.metadata.labels if old is not None else None) != (new.metadata.labels if new is not None else None):
            self._enqueue_all()

    def _table_changed(self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None) -> None:
        before, after = old or _NO_TABLE, new or _NO_TABLE
        for name in {*before.spec.natting_table, *after.spec.natting_table}:
            was = before.spec.natting_table.get(name), before.status.mappings.get(name)
            if was != (after.spec.natting_table.get(name), after.status.mappings.get(name)):
                self._enqueue_namespace(name)

    async def _process(self, key: Key) -> None:
        offloading = self._written.newest(key, self._offloadings.get(key))
        if offloading is None or offloading.metadata.deleting:
            return
        namespace = self._enabled.get(Key("", key.namespace))
        status = forge_status(
            offloading,
            enabled=namespace is not None and not namespace.metadata.deleting,
            lenders=[self._lender(record, key.namespace) for record in self._records.items()],
            home=self._home,
            now=rfc3339(wall_clock(self._reactor)()),
        )
        patch = merge_diff(as_body(offloading.status), as_body(status))
        if not patch:
            return
        body = {"metadata": {"uid": offloading.metadata.uid}, "status": patch}
        try:
            seen = await self._client.patch(
                NAMESPACEOFFLOADINGS,
                key.name,
                body,
                key.namespace,
                subresource="status",
                view=NamespaceOffloading,
            )
        except NotFound:
            self._written.drop(key)
        else:
            self._written.put(key, seen)

    def _lender(self, record: VirtualNode, namespace: str) -> Lender:
        name = record.spec.node_name
        node = self._nodes.get(Key("", name))
        table = self._tables.get(Key("", record.spec.cluster_id)) or _NO_TABLE
        return Lender(
            cluster_id=record.spec.cluster_id,
            node=name,
            labels=None if node is None else node.metadata.labels,
            entry=table.spec.natting_table.get(namespace),
            mapping=table.status.mappings.get(namespace),
            taken=table.spec.de_natting_table,
        )
