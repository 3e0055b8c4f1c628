"""The fabric of a host that is no gateway: its pods' ways to the peers lead over the gateway.

It follows the same records as the gateway and writes none of them; all it says is, on its own Node, that it takes part:

    tunnels of the gateway -> what the kernel should hold -> what it holds -> the commands in between
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from liqod.config.schema import Settings
from liqod.fabric.converge import Turns
from liqod.fabric.kernel.host import Kernel, apply, checked, observe_node
from liqod.fabric.kernel.host_facts import Node, uplink_mtu
from liqod.fabric.kernel.model import NodeDesired, Step
from liqod.fabric.kernel.plan import node_plan, node_removal
from liqod.fabric.kernel.vxlan import device_name
from liqod.fabric.node_view import node_desired, own_node
from liqod.flow.errors import ExpectedError
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NODES, TUNNELENDPOINTS
from liqod.model.names import OVERLAY_ANNOTATION
from liqod.model.records.network import TunnelEndpoint


class NodeFabric(Turns):
    """Pod traffic of one host with all peers, by way of the gateway's host. ``address`` is this host's."""

    def __init__(
        self,
        reactor: Any,
        client: Client,
        informers: Informers,
        settings: Settings,
        address: str,
        *,
        kernel: Kernel | None = None,
    ) -> None:
        super().__init__(reactor, kernel, "leading pods to the gateway")
        self._client = client
        self._settings = settings.network
        self._address = address
        self._device = device_name(settings.network.device)
        self._tunnels: Informer[TunnelEndpoint] = informers.of(TUNNELENDPOINTS, TunnelEndpoint)
        self._nodes: Informer[Node] = informers.of(NODES, Node)
        self._ends: list[Callable[[], None]] = []
        self.standing = "the first lists of the records are not complete"
        """What this host does now, in one line."""
        self.settled = False
        """Whether the kernel was made as the records say at least once."""

    async def preview(self) -> tuple[Step, ...]:
        """Return what a turn would do on this host now; nothing is changed."""
        return (await self._look_around())[1]

    async def _look_around(self) -> tuple[NodeDesired | None, tuple[Step, ...]]:
        shown = await checked(self._kernel, ("ip", "-j", "addr", "show"))
        uplink = uplink_mtu(shown.out, self._address)
        desired = node_desired(self._settings.device, self._address, uplink, self._tunnels.items())
        observed = await observe_node(self._kernel, self._device)
        return desired, node_plan(desired, observed) if desired is not None else node_removal(self._device, observed)

    async def _listen(self) -> None:
        await self.when_synced()
        self._ends = [
            self._tunnels.subscribe(lambda key, old, new: self._look(_said(old), _said(new))),
            self._nodes.subscribe(lambda key, old, new: self._look(old is None, new is None)),
        ]

    def _deafen(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when the records are known."""
        return gatherResults([self._tunnels.when_synced(), self._nodes.when_synced()], consumeErrors=True)

    async def remove_all(self) -> None:
        """Leave nothing of the fabric on this host, and nothing of it on the Node."""
        await apply(self._kernel, node_removal(self._device, await observe_node(self._kernel, self._device)))
        listed = await self._client.list(NODES, view=Node)
        await self._say(own_node(listed.items, self._settings.node, self._address), listed.items, "")

    def _look(self, before: object, after: object) -> None:
        if before != after:
            self._poke()

    async def _turn(self) -> None:
        desired, steps = await self._look_around()
        await self._carry_out(steps, "the network of this node changes")
        name = own_node(self._nodes.items(), self._settings.node, self._address)
        if not name:
            self.standing = (
                f"no Node of this cluster has this host's address {self._address}: the gateway cannot send here what "
                "is for its pods; name the Node in network.node"
            )
            raise ExpectedError(self.standing)
        # Said once this end stands: from then on the gateway sends here what is for this host's pods.
        await self._say(name, self._nodes.items(), self._address)
        self._describe(desired)
        self.settled = True

    async def _say(self, name: str, nodes: list[Node], value: str) -> None:
        for node in nodes:
            if node.metadata.name == name and node.metadata.annotations.get(OVERLAY_ANNOTATION, "") != value:
                patch = {"metadata": {"annotations": {OVERLAY_ANNOTATION: value or None}}}
                await self._client.patch(NODES, name, patch, view=None)

    def _describe(self, desired: NodeDesired | None) -> None:
        if desired is None:
            standing = "node: no peer is reached through a gateway"
        else:
            gateway = desired.overlay.ends[0].address
            standing = f"node: {len(desired.remote)} networks of peers are reached through the gateway {gateway}"
        if standing != self.standing:
            self._log.info("{standing}", standing=standing)
        self.standing = standing


def _said(record: TunnelEndpoint | None) -> object:
    return (record.spec, record.status.path_mtu) if record is not None else None
