"""The fabric of a host that is no gateway, on a cluster and a kernel in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import NetworkSettings, Settings
from liqod.demo.access import client_config
from liqod.fabric.agent.kernel.plan import show
from liqod.fabric.agent.node import NodeFabric
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NODES, TUNNELENDPOINTS
from liqod.model.names import OVERLAY_ANNOTATION
from liqod.model.objects.node import Node
from tests.fabric.cases import fabric_host
from tests.fabric.fake_kernel import FakeKernel

REACTOR: Any = reactor
HERE, GATEWAY = "192.0.2.1", "192.0.2.9"


class NodeFabricTests(TestCase):
    """One host at 192.0.2.1 whose Node is called "far"."""

    timeout = 40

    async def furnish(self) -> NodeFabric:
        """Start a cluster with the host's Node, and the fabric on the host."""
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        self.client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        await manifests.ensure(self.client)
        await self.client.create(NODES, {"metadata": {"name": "far"}, "spec": {"podCIDRs": ["10.201.1.0/24"]}})
        status = {"addresses": [{"type": "InternalIP", "address": HERE}]}
        await self.client.patch(NODES, "far", {"status": status}, subresource="status")
        informers = Informers(self.client, REACTOR)
        self.kernel = FakeKernel()
        self.before = self.kernel.state()
        settings = Settings(network=NetworkSettings(mode="wireguard", role="node"))
        fabric = NodeFabric(fabric_host(self.client, informers, settings, self.kernel))
        informers.startService()
        fabric.startService()
        self.addCleanup(informers.stopService)
        self.addCleanup(fabric.stopService)
        return fabric

    async def tunnel(self, name: str, network: str) -> None:
        """Have the gateway say that it has a tunnel."""
        spec = {
            "clusterID": name,
            "allowedIPs": [network],
            "local": {"podCIDRs": ["10.201.0.0/16"]},
            "gateway": {"address": GATEWAY, "vni": 18952, "port": 5876},
        }
        kind = {"apiVersion": TUNNELENDPOINTS.api_version, "kind": TUNNELENDPOINTS.kind}
        await self.client.create(TUNNELENDPOINTS, {**kind, "metadata": {"name": name}, "spec": spec})

    async def becomes(self, check: Callable[[], bool]) -> None:
        """Wait for something."""
        while not check():
            await deferLater(REACTOR, 0.02)

    async def said(self) -> str:
        """Return what the Node says of the overlay."""
        node: Node = await self.client.get(NODES, "far", view=Node)
        return node.metadata.annotations.get(OVERLAY_ANNOTATION, "")

    async def test_it_follows_the_tunnels(self) -> None:
        """Peers come and go with their tunnels, the Node says that it takes part, and the end leaves nothing."""
        fabric = await self.furnish()
        await self.becomes(lambda: fabric.converged)
        self.assertEqual(self.kernel.state(), self.before)
        self.assertEqual(await self.said(), HERE)
        await self.tunnel("milan", "10.72.0.0/16")
        await self.becomes(lambda: "10.72.0.0/16" in self.kernel.routes["4"])
        self.assertEqual(self.kernel.routes["4"]["10.72.0.0/16"]["gateway"], GATEWAY)
        await self.tunnel("turin", "10.80.0.0/16")
        await self.becomes(lambda: "10.80.0.0/16" in self.kernel.routes["4"])
        await self.becomes(lambda: "2 networks" in fabric.summary)
        self.assertEqual(await fabric.preview(), ())
        self.assertIn("10.80.0.0/16", show(fabric.last_plan))
        for name in ("milan", "turin"):
            await self.client.delete(TUNNELENDPOINTS, name)
        await self.becomes(lambda: self.kernel.state() == self.before)
        await self.tunnel("milan", "10.72.0.0/16")
        await self.becomes(lambda: "10.72.0.0/16" in self.kernel.routes["4"])
        await fabric.stopService()
        self.assertNotEqual(self.kernel.state(), self.before)
        await fabric.remove_all()
        self.assertEqual(self.kernel.state(), self.before)
        self.assertEqual(await self.said(), "")

    async def test_a_host_without_ipv6(self) -> None:
        """Networks of IPv6 are left out where the host has none of it, and the others are reached."""
        await self.furnish()
        self.kernel.has_six = False
        await self.tunnel("milan", "fd00:72::/48")
        await self.tunnel("turin", "10.80.0.0/16")
        await self.becomes(lambda: "10.80.0.0/16" in self.kernel.routes["4"])
        self.assertEqual(self.kernel.routes["6"], {})

    async def test_a_host_that_forwards_nothing(self) -> None:
        """A node with pods of peers says so; without tunnels nothing has to be forwarded."""
        fabric = await self.furnish()
        await self.becomes(lambda: fabric.converged)
        self.kernel.is_forwarding = False
        self.assertTrue(fabric.is_forwarding)
        await self.tunnel("milan", "10.72.0.0/16")
        await self.becomes(lambda: not fabric.is_forwarding)

    async def test_what_somebody_else_removed_comes_back(self) -> None:
        """A turn looks at the kernel, not at what was done before."""
        fabric = await self.furnish()
        await self.tunnel("milan", "10.72.0.0/16")
        await self.becomes(lambda: "10.72.0.0/16" in self.kernel.routes["4"])
        await self.becomes(lambda: fabric.converged)
        self.kernel.routes["4"].clear()
        self.kernel.tables.clear()
        # Any change has everything looked at.
        await self.tunnel("turin", "10.80.0.0/16")
        await self.becomes(lambda: "10.72.0.0/16" in self.kernel.routes["4"] and bool(self.kernel.tables))

    async def test_without_tunnels(self) -> None:
        """A host that has nothing, and needs nothing, is not searched in each pass; with a tunnel it is, at once."""
        fabric = await self.furnish()
        await self.becomes(lambda: fabric.converged)
        await fabric.converge()
        self.kernel.commands.clear()
        await fabric.converge()
        self.assertNotIn("nft", {command[0] for command in self.kernel.commands})
        await self.tunnel("milan", "10.72.0.0/16")
        await self.becomes(lambda: "10.72.0.0/16" in self.kernel.routes["4"])
        await self.client.delete(TUNNELENDPOINTS, "milan")
        await self.becomes(lambda: self.kernel.state() == self.before)
