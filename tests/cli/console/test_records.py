"""The client that keeps what would be written: reads show it, and nothing reaches the API server."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from liqod.cli.console.records import RecordingClient
from liqod.demo.access import client_config
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import CLUSTERROLEBINDINGS, CONFIGMAPS, CRDS, FOREIGNCLUSTERS, NAMESPACES
from liqod.kube.writing.ensure import ensure

REACTOR: Any = reactor


def binding(role: str) -> dict[str, Any]:
    """Return a binding whose roleRef, which is immutable, names a role."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return {"metadata": {"name": "one"}, "roleRef": reference, "subjects": []}


class RecordingTests(TestCase):
    async def setUp(self) -> None:  # type: ignore[override]
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        self.real = Client(client_config(cluster), REACTOR)
        self.recording = RecordingClient(client_config(cluster), REACTOR, user_agent="test")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.real.close()))
        self.addCleanup(lambda: Deferred.fromCoroutine(self.recording.close()))

    async def test_new_object(self) -> None:
        """What was created is read, cannot be created again, and is not there."""
        await self.recording.create(NAMESPACES, {"metadata": {"name": "shop"}})
        self.assertEqual((await self.recording.get(NAMESPACES, "shop"))["metadata"]["name"], "shop")
        with self.assertRaises(AlreadyExists):
            await self.recording.create(NAMESPACES, {"metadata": {"name": "shop"}})
        with self.assertRaises(NotFound):
            await self.real.get(NAMESPACES, "shop")
        self.assertEqual(self.recording.touched, ["Namespace shop"])

    async def test_unknown_kind(self) -> None:
        """A kind that the API server does not have is not found, as in a real write; no CRD is waited for."""
        for write in (self.recording.create, self.recording.apply):
            with self.assertRaises(NotFound):
                await write(FOREIGNCLUSTERS, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}})
        self.assertEqual(self.recording.touched, [])
        applied = await manifests.ensure(self.recording)
        self.assertCountEqual(self.recording.touched, [f"CustomResourceDefinition {name}" for name in applied])
        self.assertEqual(await manifests.ensure(self.recording), [], "once more, as for a second account")
        self.assertEqual((await self.real.list(CRDS)).items, [])

    async def test_replaced_object(self) -> None:
        """An object whose immutable field differs is deleted and created again, and named once."""
        await self.real.create(CLUSTERROLEBINDINGS, binding("view"))
        self.assertTrue(await ensure(self.recording, CLUSTERROLEBINDINGS, binding("edit"), ["roleRef"]))
        for client, role in ((self.recording, "edit"), (self.real, "view")):
            self.assertEqual((await client.get(CLUSTERROLEBINDINGS, "one"))["roleRef"]["name"], role)
        self.assertEqual(self.recording.touched, ["ClusterRoleBinding one"])

    async def test_writes(self) -> None:
        """What is created takes one right, what is applied and not there two, what is there a named one."""
        await self.real.create(CONFIGMAPS, {"metadata": {"name": "one"}}, "default")
        await self.real.create(CONFIGMAPS, {"metadata": {"name": "two"}}, "default")
        await self.recording.create(NAMESPACES, {"metadata": {"name": "shop"}})
        await self.recording.patch(CONFIGMAPS, "one", {"data": {"a": "1"}}, "default")
        await self.recording.delete(CONFIGMAPS, "two", "default")
        definition = manifests.definitions()[0]
        await self.recording.apply(CRDS, definition)
        self.assertEqual(
            self.recording.writes,
            [
                ("create", NAMESPACES, "", ""),
                ("patch", CONFIGMAPS, "default", "one"),
                ("delete", CONFIGMAPS, "default", "two"),
                ("create", CRDS, "", ""),
                ("patch", CRDS, "", definition["metadata"]["name"]),
            ],
        )

    async def test_deleted_object(self) -> None:
        """What was deleted is gone for reads and patches, and stays; what is not there is not found, if asked."""
        await self.real.create(CONFIGMAPS, {"metadata": {"name": "one"}}, "default")
        await self.recording.delete(CONFIGMAPS, "one", "default", missing_ok=False)
        for again in (
            self.recording.get(CONFIGMAPS, "one", "default"),
            self.recording.patch(CONFIGMAPS, "one", {"data": {"a": "1"}}, "default"),
            self.recording.delete(CONFIGMAPS, "one", "default", missing_ok=False),
            self.recording.delete(CONFIGMAPS, "two", "default", missing_ok=False),
        ):
            with self.assertRaises(NotFound):
                await again
        self.assertEqual((self.recording.touched, self.recording.planned), (["ConfigMap default/one"], []))
        await self.real.get(CONFIGMAPS, "one", "default")
