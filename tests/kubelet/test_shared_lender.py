"""Several virtual nodes of one lender share its natting table and its namespaces."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    CONFIGMAPS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PODS,
    SECRETS,
    SHADOWNETWORKPOLICYSETS,
    SHADOWPODS,
    VIRTUALNODES,
)
from liqod.kubelet.reflection.kinds import CONFIGMAP
from liqod.kubelet.service import Kubelets
from liqod.kubelet.tokens import controller as tokens
from liqod.kubelet.tokens.projection import secret_name
from liqod.kubelet.tokens.secret import POD_UID
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

    async def change(self, suffix: str, **spec: Any) -> None:
        """Change the spec of a VirtualNode of the lender."""
        name = f"{self.peer}{suffix}"
        await self.home.patch(VIRTUALNODES, name, {"spec": spec}, tenant_namespace(self.peer))

    async def says(self, name: str, reason: str) -> dict[str, Any]:
        """Wait until a VirtualNode has a reason; return its status."""

        async def look() -> dict[str, Any]:
            record = await self.home.get(VIRTUALNODES, name, tenant_namespace(self.peer))
            self.assertEqual(record.get("status", {}).get("reason"), reason)
            return dict(record["status"])

        return await self.eventually(look)

    async def shows(self, node: str, **resources: str) -> dict[str, Any]:
        """Wait until a node has resources; return it."""

        async def look() -> dict[str, Any]:
            found: dict[str, Any] = await self.home.get(NODES, node)
            allocatable = found["status"]["allocatable"]
            self.assertEqual({name: allocatable.get(name) for name in resources}, resources)
            return found

        return await self.eventually(look)

    def reflecting(self) -> list[str]:
        """Return the nodes that reflect the namespace's ConfigMaps."""
        kubelets = self.kubelets.of_lender(self.peer)
        pairs = {each.context.node_name: each.reflection.reflectors[CONFIGMAP].pair(self.space) for each in kubelets}
        return [node for node, pair in pairs.items() if pair is not None]

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

    async def has_tokens(self, pod: dict[str, Any]) -> None:
        """Wait until the tokens of a home pod are at the lender."""

        async def look() -> bool:
            there = await self.lender.get(SECRETS, secret_name(pod["metadata"]["name"]), self.remote)
            return bool(there["metadata"]["annotations"][POD_UID] == pod["metadata"]["uid"])

        await self.eventually(look)

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

    async def test_one_budget(self) -> None:
        """Both nodes spend the one budget that the lender has for the statuses of its pods."""
        await self.second()
        first, other = self.kubelets.of_lender(self.peer)
        self.assertIs(first.pods._budget, other.pods._budget)

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

    async def test_what_is_particular_to_each(self) -> None:
        """Each node has its own labels, taints and limits, which add up to the offer; changes reach a running node, and
        touch no pod and nothing of the other one.
        """
        second = await self.second(kind="gpu")
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        before = await self.home.get(NODES, self.node)
        known = {each.context.node_name: each for each in self.kubelets.of_lender(self.peer)}
        taint = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
        await self.change("-gpu", labels={"kind": "fast"}, taints=[taint], limits={"cpu": "4", "memory": "1Gi"})
        node = await self.shows(second, cpu="4", memory="1Gi", pods="50")
        first = await self.shows(self.node, cpu="6", memory="9Gi", pods="50")
        self.assertEqual(node["metadata"]["labels"]["kind"], "fast")
        self.assertIn(taint, node["spec"]["taints"])
        self.assertEqual(first["spec"]["taints"], before["spec"]["taints"])
        self.assertEqual(first["metadata"]["labels"], before["metadata"]["labels"])
        await self.change("-gpu", labels={"kind": None}, taints=None, limits={"cpu": "40"})
        node = await self.shows(second, cpu="10")
        self.assertNotIn("kind", node["metadata"]["labels"])
        self.assertNotIn(taint, node["spec"]["taints"])

        async def says_why() -> bool:
            record = await self.home.get(VIRTUALNODES, f"{self.peer}-gpu", tenant_namespace(self.peer))
            said = cases.condition(record, "Limits")
            return said["reason"] == "OfferExceeded" and "cpu 10 of 40" in said["message"]

        await self.eventually(says_why)
        self.assertEqual({each.context.node_name: each for each in self.kubelets.of_lender(self.peer)}, known)
        for name in ("web", "extra"):
            self.assertEqual((await self.home.get(PODS, name, self.space))["status"]["phase"], "Running")

    async def test_one_of_them_reflects(self) -> None:
        """What a namespace has is reflected by one node, without what any node withholds; when that node goes, another
        one goes on, and the objects at the lender stay.
        """
        second = await self.second()
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        body = {"metadata": {"name": "conf", "labels": {"team": "a", "tier": "b"}}, "data": {"key": "1"}}
        await self.home.create(CONFIGMAPS, body, self.space)
        there = await self.eventually(lambda: self.lender.get(CONFIGMAPS, "conf", self.remote))
        (reflects,) = self.reflecting()
        await self.change("" if reflects == second else "-gpu", offloadingPatch={"labelsNotReflected": ["team"]})

        async def without() -> bool:
            labels = (await self.lender.get(CONFIGMAPS, "conf", self.remote))["metadata"]["labels"]
            return "team" not in labels and labels["tier"] == "b"

        await self.eventually(without)

        async def says_so() -> bool:
            record = await self.lender.get(SHADOWNETWORKPOLICYSETS, "home", self.remote)
            return bool(record["spec"].get("withheld") == ["team"])

        await self.eventually(says_so)
        (reflects,) = self.reflecting()
        (waits,) = {self.node, second} - {reflects}
        name = f"{self.peer}-gpu" if reflects == second else str(self.peer)
        await self.home.delete(VIRTUALNODES, name, tenant_namespace(self.peer))
        await self.gone(self.home, NODES, reflects)
        await self.home.patch(CONFIGMAPS, "conf", {"data": {"key": "2"}}, self.space)

        async def follows() -> bool:
            found = await self.lender.get(CONFIGMAPS, "conf", self.remote)
            self.assertEqual(found["metadata"]["uid"], there["metadata"]["uid"])
            return bool(found["data"] == {"key": "2"})

        await self.eventually(follows)
        self.assertEqual(self.reflecting(), [waits])

    async def test_two_of_one_name(self) -> None:
        """A record with the name of another one's node waits and says so; its deletion touches nothing."""
        await self.pod_on(self.node, "web")
        there = await self.lender.get(PODS, "web", self.remote)
        before = await self.node_is("True")
        copy = self.record("-gpu")
        copy["spec"]["nodeName"] = self.node
        await self.home.create(VIRTUALNODES, copy)
        status = await self.says(f"{self.peer}-gpu", "NodeNameTaken")
        self.assertIn(str(self.peer), status["message"])
        await self.home.delete(VIRTUALNODES, f"{self.peer}-gpu", tenant_namespace(self.peer))
        await self.pause(1.0)
        self.assertEqual((await self.node_is("True"))["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual((await self.lender.get(PODS, "web", self.remote))["metadata"]["uid"], there["metadata"]["uid"])

    async def test_the_offer_ends(self) -> None:
        """A node that a user made goes with the offer; its record stays, and the next offer brings the node back."""
        second = await self.second(kind="gpu")
        await self.pod_on(second, "extra")
        await self.advertise(cases.OFFERED, phase="Withdrawn")
        await self.gone(self.home, NODES, second)
        await self.says(f"{self.peer}-gpu", "OfferWithdrawn")
        await self.advertise(cases.OFFERED)
        await self.says(f"{self.peer}-gpu", "LenderReady")
        self.assertEqual((await self.home.get(NODES, second))["metadata"]["labels"]["kind"], "gpu")

    async def test_what_a_node_left(self) -> None:
        """What a removed node left at the lender a remaining one deletes; there a pod of the same name can run."""
        second = await self.second()
        await self.pod_on(self.node, "web")
        await self.pod_on(second, "extra")
        left, web = [await self.lender.get(PODS, name, self.remote) for name in ("extra", "web")]
        await self.stop()
        await self.home.delete(VIRTUALNODES, f"{self.peer}-gpu", tenant_namespace(self.peer))
        await self.home.delete(NODES, second)
        await self.home.delete(PODS, "extra", self.space, grace=0)
        await self.start()
        await self.gone(self.lender, SHADOWPODS, "extra", self.remote)
        await self.has_tokens(await self.pod_on(self.node, "extra"))
        uids = [(await self.lender.get(PODS, name, self.remote))["metadata"]["uid"] for name in ("extra", "web")]
        self.assertNotEqual(uids[0], left["metadata"]["uid"])
        self.assertEqual(uids[1], web["metadata"]["uid"])

    async def test_a_pod_that_changes_its_node(self) -> None:
        """A pod that comes to the other node under the same name has tokens once those of the first one are gone."""
        second = await self.second()
        await self.has_tokens(await self.pod_on(self.node, "extra"))
        # The first node looks at what it left when the other one's ShadowPod has the name.
        self.patch(tokens, "SHADOW_INTERVAL", 6.0)
        await self.home.delete(PODS, "extra", self.space, grace=0)
        await self.has_tokens(await self.pod_on(second, "extra"))

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
            return is_mapped and self.kubelets.export_requests(self.peer).complete

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
