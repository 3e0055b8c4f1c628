"""``explain`` of workloads, slices, tenants and copied objects, and since when things are as they are."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.status.explain_other import (
    SHOWN_PODS,
    explain_namespace,
    explain_object,
    explain_slice,
    explain_tenant,
    explain_workload,
)
from liqod.cli.status.explain_pod import PodFacts, facts_for, findings
from liqod.kube.resources import DEPLOYMENTS, FOREIGNCLUSTERS, NAMESPACES, PODS, RESOURCESLICES, SECRETS
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts
from liqod.model.diagnosis.workloads import FullTenant
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import ForeignCluster, NamespaceNattingTable, ResourceSlice, VirtualNode
from tests.cli.cluster_case import ClusterCase

BEGAN, READY, BOUND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"
LENT = {"verdict": "Accepted", "resources": {"cpu": "2"}}


def peer(**status: Any) -> ForeignCluster:
    """Return the record of milan."""
    body = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "fingerprint": "sha256:1"}}
    return msgspec.convert({**body, "status": {"clusterName": "milan", "phase": "Ready", **status}}, ForeignCluster)


def records(**more: Any) -> ClusterRecords:
    """Return the records of a cluster that borrows from milan, where the namespace shop is since READY."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": READY}]
    table = {
        "metadata": {"name": "c2"},
        "spec": {"clusterID": "c2", "nattingTable": {"shop": "shop-c1"}},
        "status": {"mappings": {"shop": {"phase": "Ready"}}},
    }
    offloading = {
        "metadata": {"name": "offloading", "namespace": "shop"},
        "status": {"offloadingPhase": "Ready", "remoteNamespacesConditions": {"c2": conditions}},
    }
    virtual = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}
    virtual |= {"status": {"phase": "Ready"}}
    node = {"metadata": {"name": "liqo-milan"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    facts: dict[str, Any] = {
        "leader": LeaderFacts("one", alive=True, age=1.0),
        "peers": [peer()],
        "tables": [msgspec.convert(table, NamespaceNattingTable)],
        "offloadings": [msgspec.convert(offloading, NamespaceOffloading)],
        "virtual_nodes": [msgspec.convert(virtual, VirtualNode)],
        "nodes": [msgspec.convert(node, Node)],
    }
    return ClusterRecords(**{**facts, **more})


def pod(name: str, node: str = "liqo-milan", **status: Any) -> PodFacts:
    """Return what decides about a pod of shop."""
    body = {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": BEGAN},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", **status},
    }
    return facts_for(records(), body, enabled=True)


class SinceTests(SynchronousTestCase):
    """Since when it is so."""

    def test_pods(self) -> None:
        """A pod is there since it began, at its lender since its condition says so, unscheduled since it was tried."""
        offloaded = {"type": "liqo.io/Offloaded", "status": "True", "reason": "Running", "lastTransitionTime": BOUND}
        rows = {row["what"]: row["why"] for row in findings(pod("web", startTime=READY, conditions=[offloaded]))}
        self.assertEqual(rows["pod"], f"(since {READY})")
        self.assertIn(f"(since {BOUND})", rows["lender"])
        self.assertEqual(rows["cluster liqo-milan"], f"the remote namespace is shop-c1 (since {READY})")
        tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": BOUND}
        rows = {row["what"]: row["why"] for row in findings(pod("web", "", phase="Pending", conditions=[tried]))}
        self.assertEqual((rows["pod"], rows["node"]), (f"(since {BEGAN})", f"Unschedulable (since {BOUND})"))

    def test_namespace(self) -> None:
        """A namespace is offloaded since the first cluster has it; nothing is said where no record says when."""
        facts = attrs.evolve(pod(""), pod={"metadata": {"namespace": "shop", "name": ""}, "spec": {}})
        self.assertEqual(explain_namespace(facts)[-1]["why"], f"to cluster liqo-milan (since {READY})")
        unknown = explain_namespace(attrs.evolve(facts, offloading=None))
        self.assertEqual([row for row in unknown if "since" in row["why"]], [])

    def test_objects(self) -> None:
        """An object is reflected since the first cluster has its namespace."""
        copies = [
            {"cluster": name, "state": "copied", "since": at, "why": ""}
            for name, at in (("milan", BOUND), ("turin", READY))
        ]
        rows = explain_object(copies, [], pod(""))
        self.assertEqual(rows[-1], {"what": "result", "state": "reflected", "why": f"to milan, turin (since {READY})"})


class WorkloadTests(SynchronousTestCase):
    """A Deployment or StatefulSet."""

    def test_worst_first(self) -> None:
        """Pods that do not run come first, each with its answer; the result counts them."""
        refused = {"type": "liqo.io/Offloaded", "status": "False", "reason": "QuotaExceeded", "message": "no room"}
        rows = explain_workload([pod("a"), pod("b", conditions=[refused]), pod("c")], 4)
        self.assertEqual(
            (rows[0]["what"], rows[0]["state"], rows[0]["why"]), ("pod b", "not offloaded", "QuotaExceeded: no room")
        )
        self.assertEqual(rows[-1]["state"], "3 of 4 pods")
        self.assertEqual(rows[-1]["why"], "2 offloaded, 1 not offloaded")

    def test_many_and_none(self) -> None:
        """Of many the first are shown, and the others counted; without any it says why."""
        rows = explain_workload([pod(f"web-{number}") for number in range(SHOWN_PODS + 3)], 99)
        self.assertEqual((len(rows), rows[-2]["why"]), (SHOWN_PODS + 2, "and 3 more"))
        self.assertEqual([explain_workload([], count)[-1]["state"] for count in (0, 2)], ["no pods"] * 2)
        self.assertIn("its controller", explain_workload([], 2)[-1]["why"])


class SliceTests(SynchronousTestCase):
    """A slice of a peer's offer."""

    def of(self, facts: ClusterRecords, generation: int = 1, **status: Any) -> dict[str, str]:
        meta = {"name": "gpu", "namespace": "liqo-system", "generation": generation, "creationTimestamp": BEGAN}
        spec = {"providerClusterID": "c2", "resources": {"cpu": "4"}, "virtualNode": {}}
        body = {"metadata": meta, "spec": spec, "status": {"observedGeneration": 1, **status}}
        rows = explain_slice(facts, msgspec.convert(body, ResourceSlice))
        self.assertEqual(rows[0]["why"], f"cpu 4 (since {BEGAN})")
        return rows[-1]

    def test_turns(self) -> None:
        """It is granted, reduced with the reason, not answered yet, or hangs on what is wrong with its peer."""
        facts = records()
        self.assertEqual(self.of(facts, phase="Granted")["why"], "milan has answered")
        reduced = self.of(facts, phase="Reduced", reason="NoRoom", message="2 are left")
        self.assertEqual((reduced["state"], reduced["why"]), ("Reduced", "NoRoom: 2 are left"))
        self.assertIn("the turn of milan", self.of(facts, 2, phase="Granted")["why"])
        self.assertEqual(self.of(attrs.evolve(facts, peers=[]))["state"], "PeerUnknown")
        broken = attrs.evolve(facts, peers=[peer(phase="Lost", reason="Unreachable", message="no answer")])
        self.assertEqual(self.of(broken, phase="Granted")["state"], "Unreachable")


class TenantTests(SynchronousTestCase):
    """A peer that borrows."""

    def test_states(self) -> None:
        """It borrows nothing, is within its bounds, or gets no more, with what of."""
        space = msgspec.convert({"metadata": {"name": "shop-c2", "creationTimestamp": BEGAN}}, Object)
        facts = records()
        self.assertEqual(explain_tenant(facts, peer(), [space])[-1]["state"], "borrows nothing")
        rows = explain_tenant(facts, peer(lent=LENT), [space])
        self.assertIn({"what": "namespace shop-c2", "state": "there", "why": f"since {BEGAN}"}, rows)
        self.assertEqual(rows[-1]["state"], "within its bounds")
        full = attrs.evolve(facts, tenants=[FullTenant("c2", ("secrets",))])
        result = explain_tenant(full, peer(lent=LENT), [space])[-1]
        self.assertEqual(result["state"], "TenantFull")
        self.assertIn("secrets", result["why"])


class CommandTests(ClusterCase):
    """The command, for the kinds that have no test elsewhere."""

    async def explained(self, *words: str) -> dict[str, Any]:
        """Return the document of an answer."""
        found: dict[str, Any] = json.loads(await self.liqodctl("explain", *words, "-o", "json"))
        return found

    async def test_kinds(self) -> None:
        """Each kind is explained by its name and a short name; one that is not there is said to be missing."""
        await self.liqodctl("install")
        await self.client.create(FOREIGNCLUSTERS, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}})
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        labels = {"app": "web"}
        spec = {"containers": [{"name": "main", "image": "web"}]}
        workload = {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }
        await self.client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": workload}, "shop")
        for name in ("web-1", "web-2"):
            await self.client.create(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec}, "shop")
        await self.client.create(PODS, {"metadata": {"name": "other"}, "spec": spec}, "shop")
        await self.client.create(SECRETS, {"metadata": {"name": "db"}}, "shop")
        asked = {"providerClusterID": "c2", "resources": {"cpu": "1"}}
        await self.client.create(RESOURCESLICES, {"metadata": {"name": "gpu"}, "spec": asked}, "liqo-system")
        found = await self.explained("deploy/web", "-n", "shop")
        self.assertEqual(found["deployment"], "shop/web")
        pods = {row["what"] for row in found["findings"]}
        self.assertLessEqual({"pod web-1", "pod web-2"}, pods)
        self.assertNotIn("pod other", pods)
        self.assertEqual(found["answer"]["state"], f"{len(pods)} of 2 pods")
        self.assertEqual((await self.explained("secret", "db", "-n", "shop"))["answer"]["state"], "stays here")
        self.assertEqual((await self.explained("slice", "gpu"))["slice"], "gpu")
        self.assertEqual((await self.explained("tenant", "c2"))["answer"]["state"], "borrows nothing")
        for words in (
            ("sts", "web", "-n", "shop"),
            ("slice", "none"),
            ("tenant", "none"),
            ("secret", "none", "-n", "shop"),
        ):
            self.assertRegex(await self.liqodctl("explain", *words, status=1), "LQ2|LQ3|there is no|no peer")
