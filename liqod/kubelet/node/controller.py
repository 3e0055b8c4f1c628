"""Keeps the Node object of one lender; it is written only when it differs from what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After, Controller, Source, always, observe, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import LEASES, NODES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kubelet.common.readiness import READY, Readiness, not_known, not_ready
from liqod.kubelet.common.views import Node
from liqod.kubelet.node.forge import LEASE_NAMESPACE, NodeFacts, forge_node, is_foreign, node_patch, status_patch
from liqod.kubelet.node.lease import KEY as LEASE
from liqod.kubelet.node.lease import LeaseController
from liqod.model.ids import ClusterID, Key
from liqod.model.records.offer import Offer
from liqod.model.timestamps import rfc3339

KEY: Final = "node"
NAME_TAKEN_RETRY: Final = 60.0
"""Seconds after which a name that another node has is tried again."""


@frozen
class NodeConfig:
    """What does not change while a virtual node runs; ``lease_duration`` is in seconds."""

    name: str
    cluster_id: ClusterID
    address: str
    lease_duration: int
    labels: Mapping[str, str] = {}


@frozen
class NodeSources:
    """What a Node is made of, as it changes; ``network`` None: there is no network between the clusters."""

    readiness: Latest[Readiness]
    offer: Latest[Offer | None]
    home_version: Latest[str]
    api_port: Latest[int]
    network: Latest[Readiness] | None
    health: Latest[Readiness]


class NodeController(Controller[str]):
    """One Node, with its lease; ``state`` tells whether the Node exists (NameTaken: another node has its name)."""

    name = "virtual node"

    def __init__(self, reactor: Any, client: Client, config: NodeConfig, observed: NodeSources) -> None:
        super().__init__(reactor, subject=config.name)
        self.state: Latest[Readiness] = Latest(not_known("the Node object was not read yet"))
        self._client = client
        self._config = config
        self._observed = observed
        self._retired = False
        self._key = Key("", config.name)
        self._nodes: Informer[Node] = Informer(client, NODES, Node, reactor, fields=f"metadata.name={config.name}")
        self._nodes.setServiceParent(self)
        self._cache: MutationCache[Node] = MutationCache(self._nodes, reactor)
        self._lease = LeaseController(
            reactor,
            client,
            config.name,
            duration=config.lease_duration,
            node_uid=self._own_uid,
            health=observed.health,
        )
        self._lease.setServiceParent(self)

    def sources(self) -> Iterable[Source[str]]:
        yield always(KEY)
        yield watch(self._nodes, self._node_changed)
        observed = self._observed
        for value in (observed.readiness, observed.offer, observed.home_version, observed.api_port, observed.network):
            if value is not None:
                yield observe(value, lambda _: (KEY,))

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self._config.name

    def subscribe(self, listener: Callable[[Node | None], None]) -> Callable[[], None]:
        """Call ``listener`` with the node now, if it is known, and whenever it changes (None: it is gone).

        Returns what ends the subscription.
        """
        return self._nodes.subscribe(lambda key, old, new: listener(new))

    async def cordon(self) -> None:
        """Make the node unschedulable."""
        await self._nodes.when_synced()
        if self._own_node() is not None:
            await self._client.patch(NODES, self._config.name, {"spec": {"unschedulable": True}}, view=None)

    async def retire(self) -> None:
        """Delete node and lease for good; a node that is not ours stays."""
        self._retired = True
        await self._nodes.when_synced()
        node = self._own_node()
        if node is not None:
            await self._client.delete(NODES, self._config.name, uid=node.metadata.uid)
            await self._client.delete(LEASES, self._config.name, LEASE_NAMESPACE)

    def _own_node(self) -> Node | None:
        node = self._cache.get(self._key)
        return None if node is None or is_foreign(node, self._config.cluster_id) else node

    def _own_uid(self) -> str | None:
        node = None if self._retired else self._own_node()
        return None if node is None else node.metadata.uid

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[str]:
        if new is None:
            self._cache.forget(key)
        return (KEY,)

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
            labels=config.labels,
            network=None if observed.network is None else observed.network.value,
        )

    async def reconcile(self, key: str) -> After | None:
        if self._retired:
            return None
        facts, name = self._facts(), self._config.name
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
            # A daemon that has just started knows less than the Node says: the status stays.
            return None
        if patch := status_patch(node.status, facts, rfc3339(wall_clock(self.clock)())):
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
            self._log.info("created the virtual node {node} for {cluster}", node=name, cluster=facts.cluster_id)
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
