"""The contract, kept by the sandbox."""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode

from tests.contract.base import Body, Server, reactor
from tests.contract.suite import SUITE, runs


class OnSandbox:
    """Gives each case a cluster of its own."""

    cluster: SandboxCluster

    async def open_server(self) -> Server:
        self.cluster = SandboxCluster(reactor, "contract")
        self.cluster.startService()
        self.cluster.listen(reactor)
        return self.cluster

    async def close_server(self) -> None:
        await self.cluster.stop()

    async def join_node(self, node: Body) -> None:
        metadata, capacity = node["metadata"], node["status"]["capacity"]
        self.cluster.nodes.add(
            SandboxNode(
                metadata["name"],
                cpu=capacity["cpu"],
                memory=capacity["memory"],
                pods=capacity["pods"],
                labels=metadata["labels"],
                taints=tuple(node.get("spec", {}).get("taints", ())),
            )
        )


globals().update(runs(SUITE, OnSandbox, __name__))
