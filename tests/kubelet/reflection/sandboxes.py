"""Two sandboxes for the cases of reflection."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import Deferred

from liqod.demo.access import client_config
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.resources import PODS
from tests.kubelet.cases import KubeletSides


class Sandboxes(KubeletSides):
    """A borrower without nodes, and a lender with one."""

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        self.clusters: dict[str, SandboxCluster] = {}
        for name in ("home", "lender"):
            setattr(self, name, await self._cluster(name))
        await self.begin()

    async def _cluster(self, name: str) -> Client:
        from twisted.internet import reactor

        nodes = [SandboxNode("one", cpu="64", memory="64Gi")] if name == "lender" else []
        cluster = SandboxCluster(reactor, name, nodes)
        self.clusters[name] = cluster
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        client = Client(client_config(cluster), reactor)
        self.addCleanup(client.close)
        await manifests.ensure(client)
        return client

    async def run_remote(self, name: str) -> None:
        """Wait for the sandbox's node to run the pod."""

        async def look() -> dict[str, Any]:
            pod = await self.lender.get(PODS, name, self.remote)
            self.assertEqual(pod["status"].get("phase"), "Running", pod["status"])
            return pod

        await self.eventually(look)
