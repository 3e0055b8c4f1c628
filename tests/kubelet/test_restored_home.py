"""A home cluster whose store was restored to a state without its offloaded pods, between two sandboxes."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from kubesandbox.kinds.kinds import Key
from twisted.internet.defer import Deferred, gatherResults

from liqod.kube.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PERSISTENTVOLUMES,
    PODS,
    SHADOWPODS,
    VIRTUALNODES,
)
from liqod.kubelet import service
from liqod.model.names import (
    CONFIRM_ANNOTATION,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    REMOTE_CLUSTER_LABEL,
    tenant_namespace,
)
from tests.kubelet import cases
from tests.kubelet.cases import condition
from tests.kubelet.reflection import sandboxes

COUNT = 200
FEWER = 40
ENOUGH = {"cpu": "100", "memory": "100Gi", "pods": "400"}


class RestoredHomeTests(sandboxes.Sandboxes):
    """Pods run at the lender; home forgets them."""

    patience = 60.0
    timeout = 240
    clusters: dict[str, SandboxCluster]

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        self.patch(cases, "OFFERED", ENOUGH)
        return super().setUp()

    async def offload(self, count: int) -> Any:
        """Return the state of home before so many pods were created, each with a ConfigMap; the pods run."""
        await self.pod("first", tokens=False)
        await self.runs("first")
        snapshot = self.clusters["home"].store.snapshot()
        await gatherResults([Deferred.fromCoroutine(self.make(number)) for number in range(count)])
        await self.eventually(lambda: self.are_there(count + 1))
        return snapshot

    async def make(self, number: int) -> None:
        await self.home.create(CONFIGMAPS, {"metadata": {"name": f"own-{number}"}}, self.space)
        await self.pod(f"web-{number}", cpu="10m", tokens=False)

    async def are_there(self, count: int) -> bool:
        shadows = (await self.lender.list(SHADOWPODS, self.remote)).items
        configs = (await self.lender.list(CONFIGMAPS, self.remote)).items
        ours = [one for one in configs if one["metadata"]["name"].startswith("own-")]
        self.assertEqual((len(shadows), len(ours)), (count, count - 1))
        return True

    async def record(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.home.get(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        return found

    async def held(self, status: str) -> dict[str, Any]:
        """Wait for the condition DeletionsHeld; return the record."""

        async def look() -> dict[str, Any]:
            record = await self.record()
            self.assertEqual(condition(record, "DeletionsHeld")["status"], status)
            return record

        return await self.eventually(look)

    async def confirm(self) -> None:
        observation = (await self.held("True"))["status"]["deletionsObservation"]
        annotated = {"metadata": {"annotations": {CONFIRM_ANNOTATION: observation}}}
        await self.home.patch(VIRTUALNODES, str(self.peer), annotated, tenant_namespace(self.peer), view=None)

    async def test_nothing_is_deleted_without_a_question(self) -> None:
        """A daemon that starts on the restored state deletes nothing and asks; once confirmed, it deletes."""
        snapshot = await self.offload(COUNT)
        await self.stop()
        self.clusters["home"].store.restore(snapshot)
        await self.start()
        record = await self.held("True")
        self.assertEqual(condition(record, "DeletionsHeld")["reason"], "MissingAtHome")
        self.assertIn("200 of 201 shadowpods", condition(record, "DeletionsHeld")["message"])
        await self.pause(3)
        await self.are_there(COUNT + 1)
        await self.confirm()
        await self.eventually(lambda: self.are_there(1))
        await self.held("False")

    async def test_a_few_after_a_restart(self) -> None:
        """Where versions went back while no daemon ran, a few missing pods are held, after a restart too."""
        snapshot = await self.offload(5)
        await self.stop()
        self.seen = self.client.seen.as_dict()
        self.clusters["home"].store.restore(snapshot)
        await self.start()
        record = await self.held("True")
        self.assertEqual(condition(record, "DeletionsHeld")["reason"], "HomeWentBack")
        await self.stop()
        self.seen = self.client.seen.as_dict()
        await self.start()
        await self.pause(6)
        await self.are_there(6)
        await self.confirm()
        await self.eventually(lambda: self.are_there(1))
        await self.held("False")
        # What was confirmed is not asked again.
        await self.stop()
        self.seen = self.client.seen.as_dict()
        await self.start()
        await self.pause(3)
        await self.held("False")

    async def test_what_was_confirmed_counts_on(self) -> None:
        """Once somebody confirmed that versions went back, it is no evidence for that virtual node's next kubelet."""
        snapshot = await self.offload(2)
        lost = await self.lender.get(SHADOWPODS, "web-0", self.remote)
        await self.stop()
        self.seen = self.client.seen.as_dict()
        self.clusters["home"].store.restore(snapshot)
        await self.start()
        await self.confirm()
        await self.eventually(lambda: self.are_there(1))
        await self.held("False")
        (first,) = self.kubelets.all()
        patch = {"spec": {"offloadingPatch": {"labelsNotReflected": ["private"]}}}
        await self.home.patch(VIRTUALNODES, str(self.peer), patch, tenant_namespace(self.peer), view=None)

        async def is_another() -> bool:
            return first not in self.kubelets.all() and len(self.kubelets.all()) == 1

        await self.eventually(is_another)
        await self.settled()
        meta = {key: lost["metadata"][key] for key in ("name", "labels", "annotations")}
        await self.lender.create(SHADOWPODS, {"metadata": meta, "spec": lost["spec"]}, self.remote)
        await self.eventually(lambda: self.are_there(1))
        await self.held("False")

    async def test_a_namespace_that_home_forgot(self) -> None:
        """A namespace that is missing at home, with its pods, is not released at the lender before it is confirmed."""
        await self.offload(FEWER)
        await self.stop()
        store = self.clusters["home"].store
        for resource, stored in list(store):
            meta = stored.object["metadata"]
            namespace, name = meta.get("namespace", ""), meta["name"]
            if self.space in (namespace, name if resource.plural == "namespaces" else ""):
                store.remove(resource, Key(namespace, name))
        await self.start()
        await self.held("True")
        await self.pause(3)
        await self.are_there(FEWER + 1)
        await self.confirm()
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_a_held_namespace_that_is_taken_back(self) -> None:
        """What is held of a namespace that is no longer offloaded, and goes with all that is in it, is held no more."""
        snapshot = await self.offload(FEWER)
        await self.stop()
        self.clusters["home"].store.restore(snapshot)
        await self.start()
        self.assertIn("shadowpods", condition(await self.held("True"), "DeletionsHeld")["message"])
        unlabelled = {"metadata": {"labels": {"liqo.io/enabled": None}}}
        await self.home.patch(NAMESPACES, self.space, unlabelled)
        await self.gone(self.lender, NAMESPACES, self.remote)
        await self.held("False")

    async def test_an_ordinary_mass_deletion(self) -> None:
        """Pods that somebody deletes, with their namespace or by force, go without a question."""
        await self.offload(FEWER)
        for number in range(0, FEWER, 2):
            await self.home.delete(PODS, f"web-{number}", self.space, grace=0)
        await self.home.delete(NAMESPACES, self.space)
        await self.gone(self.lender, NAMESPACES, self.remote)

        async def released() -> bool:
            table = await self.home.get(NATTINGTABLES, str(self.peer))
            return not table["spec"]["nattingTable"]

        await self.eventually(released)
        held = [one for one in (await self.record())["status"]["conditions"] if one["type"] == "DeletionsHeld"]
        self.assertEqual(held, [])

    def forget_record(self) -> None:
        """Remove the VirtualNode from the store of home, while no daemon runs."""
        store = self.clusters["home"].store
        for resource, stored in list(store):
            if resource.plural == "virtualnodes":
                store.remove(resource, Key(tenant_namespace(self.peer), stored.object["metadata"]["name"]))

    async def test_a_record_that_went_back(self) -> None:
        """Where versions went back a virtual node without a record stays, however few pods home shows on it."""
        snapshot = await self.offload(5)
        await self.stop()
        self.seen = self.client.seen.as_dict()
        self.clusters["home"].store.restore(snapshot)
        self.forget_record()
        await self.start()
        await self.pause(3)
        await self.are_there(6)

    async def test_a_record_of_data(self) -> None:
        """A virtual node without a record stays while a volume of this cluster has its data at the lender."""
        await self.offload(2)
        labels = {MANAGED_BY_LABEL: FIELD_MANAGER, REMOTE_CLUSTER_LABEL: str(self.peer)}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nothing"},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        await self.home.create(PERSISTENTVOLUMES, {"metadata": {"name": "data", "labels": labels}, "spec": spec})
        await self.stop()
        self.forget_record()
        self.patch(service, "HELD_INTERVAL", 0.5)
        await self.start()
        await self.pause(3)
        await self.are_there(3)
        await self.home.delete(PERSISTENTVOLUMES, "data")
        await self.gone(self.home, NODES, self.node)

    async def test_a_record_that_home_forgot(self) -> None:
        """A virtual node whose record is missing stays with its pods, and goes on with a new record."""
        await self.offload(FEWER)
        record = await self.record()
        await self.stop()
        self.forget_record()
        self.patch(service, "HELD_INTERVAL", 0.5)
        await self.start()
        await self.pause(3)
        await self.are_there(FEWER + 1)
        self.assertEqual(len((await self.home.list(PODS, self.space)).items), FEWER + 1)
        metadata = {"name": str(self.peer), "namespace": tenant_namespace(self.peer)}
        await self.home.create(VIRTUALNODES, {"metadata": metadata, "spec": record["spec"]})
        await self.settled()
        await self.are_there(FEWER + 1)
