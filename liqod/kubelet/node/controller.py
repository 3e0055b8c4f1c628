"""Keeps the virtual node: the Node object as the offer has it, its conditions, and its lease.

Nothing is written while nothing changes, except the lease, which says that the daemon lives and the lender answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from liqod.flow.aligned_timer import in_step
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.observe import Latest
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound, Unreachable
from liqod.kube.resources import LEASES, NODES
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.readiness import READY, Readiness, not_known, not_ready
from liqod.kubelet.common.views import Node
from liqod.kubelet.node.forge import (
    LEASE_NAMESPACE,
    RENEWED,
    NodeFacts,
    forge_lease,
    forge_node,
    is_foreign,
    node_patch,
    status_patch,
)
from liqod.model.ids import ClusterID, Key
from liqod.model.records.offer import Offer
from liqod.model.timestamps import rfc3339, rfc3339_micro

NODE: Final = "node"
LEASE: Final = "lease"
TAKEN_RETRY: Final = 60.0


class NodeController(MultiService):
    """Keeps one node; ``state`` tells whether it stands (NameTaken when another node has its name).

    ``readiness`` and ``offer`` are asked for when something changed; whoever owns them calls ``refresh``.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        name: str,
        cluster_id: ClusterID,
        address: str,
        lease_duration: int,
        labels: Mapping[str, str],
        readiness: Callable[[], Readiness],
        offer: Callable[[], Offer | None],
        answers: Callable[[], bool],
        home_version: Callable[[], str],
        port: Callable[[], int],
        network: Callable[[], Readiness | None] = lambda: None,
    ) -> None:
        super().__init__()
        self.state: Latest[Readiness] = Latest(not_known("the node was not looked at yet"))
        self._reactor = reactor
        self._client = client
        self._name = name
        self._cluster_id = cluster_id
        self._address = address
        self._duration = lease_duration
        self._labels = dict(labels)
        self._readiness = readiness
        self._offer = offer
        self._answers = answers
        self._home_version = home_version
        self._port = port
        self._network = network
        self._retired = False
        self._key = Key("", name)
        self._written: Overlay[Key, Node] = Overlay(reactor)
        self._nodes: Informer[Node] = Informer(client, NODES, Node, reactor, fields=f"metadata.name={name}")
        self._queue: WorkQueue[str] = WorkQueue(reactor, f"node {name}", Backoff(cap=lease_duration / 8))
        self._workers: Workers[str] = Workers(self._queue, 2, self._process, f"keeping the virtual node {name}: its")
        self._nodes.subscribe(self._changed)
        self._nodes.setServiceParent(self)
        self._nodes.when_synced().addCallback(lambda _: self._workers.setServiceParent(self))
        self._queue.add(NODE)

    def stopService(self) -> Deferred[Any]:
        self._queue.close()
        return maybeDeferred(super().stopService)

    def refresh(self) -> None:
        """Something that the node's state depends on changed."""
        self._queue.add(NODE)

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self._name

    def subscribe(self, call: Callable[[Node | None], None]) -> Callable[[], None]:
        """Have the node told now, if it is known, and whenever it changes (None: it is gone); returns how to end it."""
        return self._nodes.subscribe(lambda key, old, new: call(new))

    async def cordon(self) -> None:
        """Let nothing more be scheduled on the node."""
        await self._nodes.when_synced()
        if self._mine() is not None:
            await self._client.patch(NODES, self._name, {"spec": {"unschedulable": True}}, view=None)

    async def retire(self) -> None:
        """Remove node and lease, and keep neither any longer; a node that is not ours stays."""
        self._retired = True
        await self._nodes.when_synced()
        node = self._mine()
        if node is not None:
            await self._client.delete(NODES, self._name, uid=node.metadata.uid)
            await self._client.delete(LEASES, self._name, LEASE_NAMESPACE)

    def _mine(self) -> Node | None:
        node = self._written.newest(self._key, self._nodes.get(self._key))
        return None if node is None or is_foreign(node, self._cluster_id) else node

    def _changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if new is None:
            self._written.drop(key)
        self._queue.add(NODE)

    async def _process(self, what: str) -> float | None:
        if self._retired:
            return None
        if what == LEASE:
            return await self._renew()
        return await self._keep()

    def _facts(self) -> NodeFacts:
        return NodeFacts(
            name=self._name,
            cluster_id=str(self._cluster_id),
            address=self._address,
            readiness=self._readiness(),
            offer=self._offer(),
            home_version=self._home_version(),
            port=self._port(),
            labels=self._labels,
            network=self._network(),
        )

    async def _keep(self) -> float | None:
        facts = self._facts()
        node = self._written.newest(self._key, self._nodes.get(self._key))
        if node is None:
            try:
                node = await self._client.create(NODES, forge_node(facts), view=Node)
            except AlreadyExists:
                node = await self._client.get(NODES, self._name, view=Node)
            else:
                self._log.info(
                    "created the virtual node {node} for {cluster}", node=self._name, cluster=facts.cluster_id
                )
            self._written.put(self._key, node)
        if is_foreign(node, str(self._cluster_id)):
            self.state.set(
                not_ready(
                    "NameTaken",
                    f"a node named {self._name} exists that does not stand for cluster {self._cluster_id}; it is left "
                    "alone: remove it, or give the VirtualNode another nodeName",
                )
            )
            return TAKEN_RETRY
        patch = node_patch(node, facts)
        if patch:
            node = await self._write(patch, "")
        if not facts.readiness.known:
            return None
        now = rfc3339(wall_clock(self._reactor)())
        patch = status_patch(node.status, facts, now)
        if patch:
            await self._write(patch, "status")
        self.state.set(READY)
        self._queue.add(LEASE)
        return None

    async def _write(self, patch: dict[str, Any], subresource: str) -> Node:
        try:
            node = await self._client.patch(NODES, self._name, patch, subresource=subresource, view=Node)
        except NotFound:
            self._written.drop(self._key)
            raise
        self._written.put(self._key, node)
        return node

    async def _renew(self) -> float | None:
        wait = in_step(self._reactor.seconds(), self._duration * RENEWED)
        node = self._mine()
        if node is None:
            return None
        if not self._answers():
            # The next change of what is known about the lender brings us back.
            return wait
        renewing = Deferred.fromCoroutine(self._write_lease(node.metadata.uid))
        renewing.addTimeout(self._duration / 4, self._reactor)
        try:
            await renewing
        except DeferredTimeout:
            # Over another connection there may still be an answer before the lease is over.
            raise Unreachable(f"the lease of {self._name} was not renewed in time") from None
        return wait

    async def _write_lease(self, uid: str) -> None:
        now = rfc3339_micro(wall_clock(self._reactor)())
        try:
            await self._client.patch(LEASES, self._name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE, view=None)
        except NotFound:
            lease = forge_lease(self._name, self._duration, now, uid)
            await self._client.create(LEASES, lease, LEASE_NAMESPACE, view=None)
