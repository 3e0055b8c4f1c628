"""The network agent of a host that is no gateway: routes its pods' traffic with peers over the gateway.

It follows the same records as the gateway and writes none of them; on its own Node it announces its VTEP:

    TunnelEndpoints -> desired state of the kernel -> observed state -> the commands in between
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from liqod.fabric.agent.converge import HOST, Clearness, ConvergeLoop, FabricHost
from liqod.fabric.agent.kernel.host import HostKernel, Kernel, apply, checked, has_six, is_forwarding, observe_node
from liqod.fabric.agent.kernel.host_facts import uplink_mtu
from liqod.fabric.agent.kernel.model import DesiredNodeKernel, HostCommand
from liqod.fabric.agent.kernel.plan import node_plan, node_removal, outline, show
from liqod.fabric.agent.kernel.vxlan import device_name
from liqod.fabric.agent.node_view import node_desired, own_node
from liqod.fabric.agent.undone import Losses, absent_of_node
from liqod.flow.controller import Source, always, watch
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate
from liqod.flow.tasks import together
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import NODES, TUNNELENDPOINTS
from liqod.model.names import OVERLAY_ANNOTATION
from liqod.model.objects.node import Node
from liqod.model.records.network import TunnelEndpoint


class NodeFabric(ConvergeLoop):
    """Pod traffic of one host with all peers, by way of the gateway's host."""

    name = "node network"

    _log = Logger()

    def __init__(self, host: FabricHost) -> None:
        super().__init__(host)
        self._kernel: Kernel = host.kernel if host.kernel is not None else HostKernel(host.reactor)
        self._client = host.client
        self._settings = host.settings.network
        self._address = host.address
        self._device = device_name(self._settings.device)
        self._tunnels: Informer[TunnelEndpoint] = host.informers.of(TUNNELENDPOINTS, TunnelEndpoint)
        self._nodes: Informer[Node] = host.informers.of(NODES, Node)
        self.summary = "the first lists of the records are not complete"
        """The current state of this host, in one line."""
        self.ready = Gate()
        """Opens when the kernel was configured by the records for the first time."""
        self.last_plan: tuple[HostCommand, ...] = ()
        self._clearness = Clearness(host.reactor)
        self._losses = Losses()
        self._is_forwarding = True

    @property
    def undone(self) -> str:
        return self._losses.sentence

    @property
    def is_forwarding(self) -> bool:
        return self._is_forwarding

    @property
    def converged(self) -> bool:
        """Whether the kernel was configured by the records at least once."""
        return self.ready.is_open

    def sources(self) -> Iterable[Source[str]]:
        yield watch(self._tunnels, lambda key, old, new: (HOST,) if _relevant(old) != _relevant(new) else ())
        yield watch(self._nodes, lambda key, old, new: (HOST,) if (old is None) != (new is None) else ())
        yield always(HOST)

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when the records are known."""
        return Deferred.fromCoroutine(together([self._tunnels.when_synced(), self._nodes.when_synced()]))

    async def preview(self) -> tuple[HostCommand, ...]:
        """Return what a pass would change on this host now; nothing is changed."""
        return await self._plan(await self._desired())

    async def remove_all(self) -> None:
        """Remove all that is ours from this host, and the announcement from its Node."""
        await apply(self._kernel, node_removal(self._device, await observe_node(self._kernel, self._device)))
        listed = await self._client.list(NODES, view=Node)
        await self._announce(own_node(listed.items, self._settings.node, self._address), listed.items, "")

    async def converge(self) -> None:
        begun = self.clock.seconds()
        desired = await self._desired()
        is_observed = desired is not None or self._clearness.is_observation_due(prompted=self.is_prompted)
        if is_observed:
            self._clearness.forget()
            self.last_plan = await self._plan(desired)
        if self.last_plan:
            self._log.info("changing the network of this node: {steps}", steps=outline(self.last_plan))
            self._log.debug("the network's plan:\n{plan}", plan=show(self.last_plan))
            await apply(self._kernel, self.last_plan)
        if is_observed:
            self._losses.made(desired)
            self._is_forwarding = desired is None or await is_forwarding(self._kernel, self._device)
        name = own_node(self._nodes.items(), self._settings.node, self._address)
        if not name:
            self.summary = (
                f"no Node of this cluster has this host's address {self._address}: the gateway cannot send here what "
                "is for its pods; name the Node in network.node"
            )
            raise ExpectedError(self.summary)
        # Last: after the announcement the gateway sends packets for this host's pods over the overlay.
        await self._announce(name, self._nodes.items(), self._address)
        self._summarize(desired)
        if is_observed and desired is None and not self.last_plan:
            self._clearness.note(begun)
        self.ready.open()

    async def cleanup(self) -> None:
        # Until this agent is started again another one may work on this host.
        self._clearness.forget()

    async def _desired(self) -> DesiredNodeKernel | None:
        shown = await checked(self._kernel, ("ip", "-j", "addr", "show"))
        uplink = uplink_mtu(shown.out, self._address)
        network, records = self._settings, self._tunnels.items()
        return node_desired(
            network.device,
            self._address,
            uplink,
            records,
            priority=network.rule_priority,
            has_six=await has_six(self._kernel),
        )

    async def _plan(self, desired: DesiredNodeKernel | None) -> tuple[HostCommand, ...]:
        observed = await observe_node(self._kernel, self._device)
        missing = absent_of_node(desired, observed) if desired is not None else frozenset[str]()
        self._losses.note(desired, missing)
        return node_plan(desired, observed) if desired is not None else node_removal(self._device, observed)

    async def _announce(self, name: str, nodes: list[Node], value: str) -> None:
        for node in nodes:
            if node.metadata.name == name and node.metadata.annotations.get(OVERLAY_ANNOTATION, "") != value:
                patch = {"metadata": {"annotations": {OVERLAY_ANNOTATION: value or None}}}
                await self._client.patch(NODES, name, patch, view=None)

    def _summarize(self, desired: DesiredNodeKernel | None) -> None:
        if desired is None:
            summary = "node: no peer is reached through a gateway"
        else:
            gateway = desired.overlay.vteps[0].address
            summary = f"node: {len(desired.remote)} networks of peers are reached through the gateway {gateway}"
        if summary != self.summary:
            self._log.info("{detail}", detail=summary)
        self.summary = summary


def _relevant(record: TunnelEndpoint | None) -> object:
    return (record.spec, record.status.path_mtu) if record is not None else None
