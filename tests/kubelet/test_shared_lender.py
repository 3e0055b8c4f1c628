"""Several virtual nodes of one lender share its natting table and its namespaces."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACEOFFLOADINGS, NAMESPACES, NATTINGTABLES, NODES, PODS, VIRTUALNODES
from liqod.kubelet.service import Kubelets
from liqod.model.ids import Key
from liqod.model.names import tenant_namespace
from tests.kubelet import cases
from tests.kubelet.reflection import sandboxes


class LateRecord(Kubelets):
    """Virtual kubelets whose first step is taken after a record came that was not there when orphans were found."""

    record: dict[str, Any]

    async def prepare(self) -> None:
        await super().prepare()
        meta = self.record["metadata"]
        await self._home.client.create(VIRTUALNODES, self.record)
        while self._records.virtual_nodes.get(Key(meta["namespace"], meta["name"])) is None:
            await deferLater(self.clock, 0.02)


class SharedLenderTests(sandboxes.Sandboxes, cases.KubeletSides):
    """A lender with two virtual nodes here, whose records come and go."""

    def record(self, suffix: str = "", **labels: str) -> dict[str, Any]:
        """Return a VirtualNode of the lender."""
        return {
            "metadata": {"name": f"{self.peer}{suffix}", "namespace": tenant_namespace(self.peer)},
            "spec": {"clusterID": str(self.peer), "nodeName": f"{self.node}{suffix}", "labels": labels},
        }

    async def second(self, **labels: str) -> str:
        """Make a second virtual node of the lender; return the name of its node, when that is Ready."""
        await self.home.create(VIRTUALNODES, self.record("-gpu", **labels))
        first, self.node = self.node, f"{self.node}-gpu"
        await self.node_is("True")
        second, self.node = self.node, first
        return second

    async def pod_on(self, node: str, name: str) -> dict[str, Any]:
        """Run a pod on one of the two nodes."""
        first, self.node = self.node, node
        try:
            await self.pod(name)
        finally:
            self.node = first
        return await self.runs(name)

    async def table(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.home.get(NATTINGTABLES, str(self.peer))
        return found

    async def test_the_table_of_a_record_that_came_late(self) -> None:
        """A natting table without a VirtualNode is not removed when one comes before it is its turn."""
        await self.pod("web")
        await self.runs("web")
        before = await self.table()
        await self.stop()
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        await self.home.delete(NODES, self.node)
        self.kubelets_of = LateRecord
        LateRecord.record = self.record()
        await self.start()
        await self.node_is("True")
        after = await self.table()
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(after["spec"]["nattingTable"], {self.space: self.remote})

    async def test_the_second_node_goes(self) -> None:
        """A node that goes takes its own pods along: those of the other one stay, and so do table and namespace."""
        second = await self.second()
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        there = await self.lender.get(PODS, "web", self.remote)
        before = await self.table()
        await self.home.delete(VIRTUALNODES, f"{self.peer}-gpu", tenant_namespace(self.peer))
        await self.gone(self.home, NODES, second)
        await self.gone(self.home, PODS, "extra", self.space)
        await self.gone(self.lender, PODS, "extra", self.remote)
        self.assertEqual((await self.lender.get(PODS, "web", self.remote))["metadata"]["uid"], there["metadata"]["uid"])
        after = await self.table()
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(after["spec"]["nattingTable"], {self.space: self.remote})
        await self.pod_on(self.node, "late")
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        await self.gone(self.home, NATTINGTABLES, str(self.peer))
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_both_go(self) -> None:
        """When both records are deleted at once nothing is left, of whichever node is removed last."""
        second = await self.second()
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        for suffix in ("", "-gpu"):
            await self.home.delete(VIRTUALNODES, f"{self.peer}{suffix}", tenant_namespace(self.peer))
        for node in (self.node, second):
            await self.gone(self.home, NODES, node)
        await self.gone(self.home, NATTINGTABLES, str(self.peer))
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_a_namespace_that_one_of_them_does_not_take(self) -> None:
        """A namespace whose selector leaves out one of the two nodes goes on at the lender for the other one."""
        second = await self.second(kind="gpu")
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        there = await self.lender.get(PODS, "web", self.remote)
        term = {"matchExpressions": [{"key": "kind", "operator": "NotIn", "values": ["gpu"]}]}
        body = {
            "metadata": {"name": "offloading", "namespace": self.space},
            "spec": {"clusterSelector": {"nodeSelectorTerms": [term]}},
        }
        await self.home.create(NAMESPACEOFFLOADINGS, body)
        await self.gone(self.home, PODS, "extra", self.space)
        await self.pause(3.0)
        self.assertEqual((await self.lender.get(PODS, "web", self.remote))["metadata"]["uid"], there["metadata"]["uid"])
        self.assertEqual((await self.table())["spec"]["nattingTable"], {self.space: self.remote})

    async def test_claims_of_a_namespace_that_only_the_second_takes(self) -> None:
        """What the pods of a lender must reach is known once the node that offloads the namespace has looked at it."""
        second = await self.second(kind="gpu")
        term = {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["gpu"]}]}
        body = {
            "metadata": {"name": "offloading", "namespace": self.space},
            "spec": {"clusterSelector": {"nodeSelectorTerms": [term]}},
        }
        await self.home.create(NAMESPACEOFFLOADINGS, body)
        await self.pod_on(second, "extra")

        async def known() -> bool:
            is_mapped = (await self.table())["spec"]["nattingTable"] == {self.space: self.remote}
            return is_mapped and self.kubelets.claims(self.peer).complete

        await self.eventually(known)

    async def clean(self) -> None:
        """Remove the second node's record, too."""
        for resource, name, namespace in (
            (VIRTUALNODES, f"{self.peer}-gpu", tenant_namespace(self.peer)),
            (NODES, f"{self.node}-gpu", ""),
        ):
            try:
                await self.home.delete(resource, name, namespace)
            except NotFound:
                continue
        await super().clean()
