"""Removes a virtual node for good: drains it, releases its namespaces, and deletes its records."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.wait import until
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.resources import NATTINGTABLES, PODS
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.ports import OtherNodes
from liqod.kubelet.node.controller import NodeController
from liqod.kubelet.node.idle import comes_back
from liqod.kubelet.ports import HomeRecords
from liqod.model.ids import ClusterID, Key

DRAIN_DEADLINE: Final = 30.0
EVICTION_DEADLINE: Final = 20.0
"""Seconds of the drain in which pods are evicted, which respects PodDisruptionBudgets; then they are deleted."""
DELETE_AGAIN: Final = 2.0
"""Seconds after which pods that came meanwhile are deleted as well."""

RELEASE_DEADLINE: Final = 5.0


class Retirement:
    """One attempt to remove the virtual node of a lender; all steps are tried before ``run`` raises.

    Pods are evicted, then deleted, then removed with grace period 0. The drain waits for the lender until its deadlines
    at most, and not at all once an administrator declared it dead: the lender's own daemon, should it return, deletes
    the rest. The natting table and the remote namespaces stay while the lender has another virtual node; what it did
    not release stays in the table for the node that is made next, unless there will be none.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        records: HomeRecords,
        *,
        lender: ClusterID,
        node: NodeController,
        namespaces: NamespaceController,
        others: OtherNodes,
        pods: Informer[HomePod],
    ) -> None:
        self._clock = clock
        self._client = client
        self._records = records
        self._lender = lender
        self._node = node
        self._namespaces = namespaces
        self._others = others
        self._pods = pods

    async def run(self) -> None:
        """Drain the node and remove it; raises KubeError if a part of it could not be removed."""
        clock, name = self._clock, self._node.node_name
        self._log.info("removing the virtual node {node}", node=name)
        started = clock.seconds()
        await self._pods.when_synced()
        # Without it the scheduler would put the successors of evicted pods on the node again.
        await self._try("cordoning", self._node.cordon())
        self._namespaces.retire()
        await self._drain(started)
        for pod in self._remaining_pods():
            # 0: with a period the API server keeps a deleted pod until its kubelet confirms the end (Kubernetes, "Pod
            # Lifecycle"), and nothing plays that kubelet any more.
            await self._try("removing a pod of", self._delete(pod, 0))
        failed = [await self._try("removing", self._node.retire())]
        if self._others.exist():
            self._others.leave()
        else:
            failed.append(await self._remove_shared())
        for error in filter(None, failed):
            raise error
        self._log.info("removed the virtual node {node}", node=name)

    async def _remove_shared(self) -> KubeError | None:
        """Release the namespaces and remove the natting table: no other virtual node of the lender needs them.

        The table is the only note of what the lender still has of this cluster.
        """
        left = 0.0 if self._is_given_up() else RELEASE_DEADLINE
        released = await self._namespaces.release_all(self._clock.seconds() + left)
        lender = self._lender
        if not released and comes_back(self._records.peers.get(Key("", lender)), self._records.offer_of(lender)):
            return await self._try("noting what is owed by", self._namespaces.note_unreleased())
        table = self._client.delete(NATTINGTABLES, str(self._lender))
        return await self._try("removing the natting table of", table)

    async def _drain(self, started: float) -> None:
        """Wait until all namespaces are released; delete the pods that are left after ``EVICTION_DEADLINE``."""
        end = started + DRAIN_DEADLINE
        over = await self._is_over(started + EVICTION_DEADLINE)
        while not over and (now := self._clock.seconds()) < end:
            for pod in self._remaining_pods():
                if not pod.metadata.deleting:
                    await self._try("deleting a pod of", self._delete(pod, None))
            # A DaemonSet makes another one: it tolerates the cordon.
            over = await self._is_over(min(now + DELETE_AGAIN, end))

    async def _is_over(self, deadline: float) -> bool:
        """Wait until there is nothing to wait for; return False if that is not so by a deadline (reactor's clock)."""
        namespaces, records = self._namespaces, self._records

        def is_over() -> bool:
            return not namespaces.occupied or (self._is_given_up() and namespaces.synced)

        waiting = until(records.tables, is_over, self._pods, records.peers, records.offloadings, records.virtual_nodes)
        try:
            await waiting.addTimeout(max(0.0, deadline - self._clock.seconds()), self._clock)
        except DeferredTimeout:
            return False
        return True

    def _is_given_up(self) -> bool:
        return self._records.is_given_up(self._lender)

    def _remaining_pods(self) -> list[HomePod]:
        mapped = self._namespaces.mappings()
        return [pod for pod in self._pods.items() if pod.metadata.namespace in mapped]

    async def _delete(self, pod: HomePod, grace: int | None) -> None:
        meta = pod.metadata
        await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=grace)

    async def _try(self, what: str, work: Awaitable[object]) -> KubeError | None:
        """Await a step and return its error, so that the next steps are taken even if it fails."""
        try:
            await work
        except KubeError as error:
            self._log.warn("{task} {node} failed: {error}", task=what, node=self._node.node_name, error=str(error))
            return error
        return None
