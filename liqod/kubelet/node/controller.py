"""Reconciles the Node object of one lender and renews its lease.

The Node is written only when it differs from the desired state. The lease is renewed while the lender answers: the node
lifecycle controller marks a node whose lease expires as unreachable and taints it (Kubernetes, "Leases", Node
heartbeats). So the node of a lender that does not answer becomes unreachable even if this daemon stops, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from liqod.flow.aligned_timer import in_step
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, observe, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Invalid, NotFound, Unreachable
from liqod.kube.resources import LEASES, NODES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kubelet.common.readiness import READY, Readiness, not_known, not_ready
from liqod.kubelet.common.views import Node
from liqod.kubelet.node.forge import (
    LEASE_NAMESPACE,
    RENEWED,
    NodeFacts,
    applied_resources,
    forge_lease,
    forge_node,
    is_foreign,
    node_patch,
    status_patch,
)
from liqod.model.ids import ClusterID, Key
from liqod.model.names import INTERNAL_ADDRESS
from liqod.model.records.offer import Offer
from liqod.model.records.views import VirtualNodeSpec
from liqod.model.timestamps import rfc3339, rfc3339_micro

LEASE: Final = "lease"


class LeasedNode(Protocol):
    """The node whose lease is renewed (``NodeController``)."""

    @property
    def uid(self) -> str | None:
        """The node's UID; None without a node."""
        ...


class LeaseController(Controller[str]):
    """Renews the lease of one virtual node, ``duration`` in seconds."""

    name = "virtual node lease"

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        node_name: str,
        *,
        duration: int,
        node: LeasedNode,
        health: Latest[Readiness],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        # The cap leaves time for several attempts before the lease expires.
        super().__init__(clock, subject=f"of {node_name}", backoff=Backoff(cap=duration / 8), metrics=metrics)
        self._client = client
        self._node_name = node_name
        self._duration = duration
        self._node = node
        self._health = health

    def sources(self) -> Iterable[Source[str]]:
        yield observe(self._health, lambda health: (LEASE,) if health.ready else ())

    async def reconcile(self, key: str) -> After | None:
        wait = After(in_step(self.clock.seconds(), self._duration * RENEWED))
        uid = self._node.uid
        if uid is None:
            return None
        if not self._health.value.ready:
            return wait
        renewing = Deferred.fromCoroutine(self._renew(uid))
        # One attempt must not use up the time in which the lease has to be renewed.
        renewing.addTimeout(self._duration / 4, self.clock)
        try:
            await renewing
        except DeferredTimeout:
            # Raise, so that the controller retries with back-off: another connection may work before the lease expires.
            raise Unreachable(f"the lease of {self._node_name} was not renewed in time") from None
        return wait

    async def _renew(self, node_uid: str) -> None:
        # renewTime is a MicroTime: RFC 3339 with six digits of a second, which the API server requires
        # (metav1.MicroTime).
        name, now = self._node_name, rfc3339_micro(wall_clock(self.clock)())
        try:
            await self._client.patch(LEASES, name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE, view=None)
        except NotFound:
            # On a Node without a lease the node lifecycle controller sees no heartbeats: create it again.
            lease = forge_lease(name, self._duration, now, node_uid)
            await self._client.create(LEASES, lease, LEASE_NAMESPACE, view=None)


NODE: Final = "node"
NAME_TAKEN_RETRY: Final = 60.0
"""Seconds until the next attempt when another node has the name."""
REFUSED_RETRY: Final = 60.0
"""Seconds until the next attempt when the API server refuses the node as invalid."""


@frozen(kw_only=True)
class NodeConfig:
    """The constant properties of a virtual node; ``lease_duration`` is in seconds."""

    name: str
    cluster_id: ClusterID
    address: str
    lease_duration: int


@frozen(kw_only=True)
class NodeSources:
    """The observed inputs of a Node; ``network`` is shown while liqod manages the network between the clusters.

    ``spec`` is the record's; ``offer`` has the resources that the node shows.
    """

    spec: Latest[VirtualNodeSpec]
    readiness: Latest[Readiness]
    offer: Latest[Offer | None]
    home_version: Latest[str]
    api_port: Latest[int]
    network: Latest[Readiness]
    manages_network: Callable[[], bool]
    health: Latest[Readiness]
    address_type: Latest[str] = field(factory=lambda: Latest(INTERNAL_ADDRESS))


class NodeController(Controller[str]):
    """Reconciles one Node; ``state`` is ready when the Node exists (NameTaken: another node has its name)."""

    name = "virtual node"

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        config: NodeConfig,
        observed: NodeSources,
        *,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=config.name, metrics=metrics)
        self.state: Latest[Readiness] = Latest(not_known("the Node object was not read yet"))
        self._client = client
        self._config = config
        self._observed = observed
        self._retired = False
        self._key = Key("", config.name)
        self._nodes: Informer[Node] = Informer(client, NODES, Node, clock, fields=f"metadata.name={config.name}")
        self._nodes.setServiceParent(self)
        self._cache: MutationCache[Node] = MutationCache(self._nodes, clock)
        self._lease = LeaseController(
            clock,
            client,
            config.name,
            duration=config.lease_duration,
            node=self,
            metrics=metrics,
            health=observed.health,
        )
        self._lease.setServiceParent(self)

    def sources(self) -> Iterable[Source[str]]:
        yield always(NODE)
        yield watch(self._nodes, self._node_changed)
        observed = self._observed
        shown = (observed.offer, observed.home_version, observed.api_port, observed.network, observed.address_type)
        for value in (observed.spec, observed.readiness, *shown):
            yield observe(value, lambda _: (NODE,))

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self._config.name

    def subscribe(self, listener: Callable[[Node | None], None]) -> Callable[[], None]:
        """Call ``listener`` with the node now, if it is known, and on every change (None: it was deleted).

        Return a function that unsubscribes.
        """
        return self._nodes.subscribe(lambda key, old, new: listener(new))

    async def cordon(self) -> None:
        """Make the node unschedulable."""
        await self._nodes.when_synced()
        if self._own_node() is not None:
            await self._client.patch(NODES, self._config.name, {"spec": {"unschedulable": True}}, view=None)

    async def retire(self) -> None:
        """Delete node and lease and do not create them again; a node that is not ours is kept."""
        self._retired = True
        await self._nodes.when_synced()
        node = self._cache.get(self._key)
        if node is not None and is_foreign(node, self._config.cluster_id):
            return
        if node is not None:
            await self._client.delete(NODES, self._config.name, uid=node.metadata.uid)
        # Also without a node: an earlier attempt may have deleted the node only.
        await self._client.delete(LEASES, self._config.name, LEASE_NAMESPACE)

    def _own_node(self) -> Node | None:
        node = self._cache.get(self._key)
        return None if node is None or is_foreign(node, self._config.cluster_id) else node

    @property
    def uid(self) -> str | None:
        """The UID of our node; None while there is none, and after ``retire``."""
        node = None if self._retired else self._own_node()
        return None if node is None else node.metadata.uid

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[str]:
        if new is None:
            self._cache.forget(key)
        return (NODE,)

    def _facts(self) -> NodeFacts:
        observed, config = self._observed, self._config
        return NodeFacts(
            name=config.name,
            cluster_id=str(config.cluster_id),
            address=config.address,
            readiness=observed.readiness.value,
            offer=observed.offer.value,
            home_version=observed.home_version.value,
            port=observed.api_port.value,
            labels=observed.spec.value.labels,
            taints=observed.spec.value.taints,
            network=observed.network.value if observed.manages_network() else None,
            address_type=observed.address_type.value,
        )

    async def reconcile(self, key: str) -> After | None:
        if self._retired:
            return None
        facts, name = self._facts(), self._config.name
        try:
            return await self._write(facts, name)
        except Invalid as error:
            # What the API server refuses is a name, label or taint of the record: only a change of it helps.
            self.state.set(not_ready("NodeRefused", f"this cluster refuses the node: {error.message[:900]}"))
            return After(REFUSED_RETRY)

    async def _write(self, facts: NodeFacts, name: str) -> After | None:
        node = self._cache.get(self._key) or await self._create_node(facts)
        if is_foreign(node, facts.cluster_id):
            why = (
                f"a node named {name} exists that does not represent cluster {facts.cluster_id}; it is left alone: "
                "remove it, or give the VirtualNode another nodeName"
            )
            self.state.set(not_ready("NameTaken", why))
            return After(NAME_TAKEN_RETRY)
        if patch := node_patch(node, facts):
            node = await self._patch_node(node, patch, "")
        if not facts.readiness.known:
            # Shortly after the start too little is observed: the status of the earlier daemon is kept.
            return None
        now = rfc3339(wall_clock(self.clock)())
        if patch := status_patch(node.status, facts, now, applied_resources(node)):
            await self._patch_node(node, patch, "status")
        self.state.set(READY)
        self._lease.enqueue(LEASE)
        return None

    async def _create_node(self, facts: NodeFacts) -> Node:
        name = self._config.name
        try:
            node = await self._client.create(NODES, forge_node(facts), view=Node)
        except AlreadyExists:
            node = await self._client.get(NODES, name, view=Node)
        else:
            self._log.info("created the virtual node {node} for {peer}", node=name, peer=facts.cluster_id)
        self._cache.wrote(self._key, None, node)
        return node

    async def _patch_node(self, node: Node, patch: dict[str, Any], subresource: str) -> Node:
        name = self._config.name
        try:
            patched = await self._client.patch(NODES, name, patch, subresource=subresource, view=Node)
        except NotFound:
            self._cache.forget(self._key)
            raise
        self._cache.wrote(self._key, node, patched)
        return patched
