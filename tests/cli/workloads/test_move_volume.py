"""``move volume`` at a cluster of the sandbox; its jobs, which nothing runs there, are carried out by the test."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from liqod.kube import manifests
from liqod.kube.errors import Conflict, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CONFIGMAPS,
    FOREIGNCLUSTERS,
    JOBS,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    SECRETS,
    SERVICES,
    STORAGECLASSES,
    Resource,
)
from liqod.model.names import PROVISIONER
from tests.cli.cluster_case import REACTOR, ClusterCase

MOVE = ("move", "volume", "data", "-n", "shop")
LABEL = "storage.liqo.io/move"


class MoveCase(ClusterCase):
    """A namespace that is offloaded to milan, with a claim whose data is at home."""

    timeout = 240

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await manifests.ensure(self.client)
        create = self.client.create
        await create(NAMESPACES, {"metadata": {"name": "shop", "labels": {"liqo.io/enabled": "true"}}})
        await create(FOREIGNCLUSTERS, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}})
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"clusterName": "milan"}}, subresource="status")
        offer = {"resources": {"cpu": "2"}, "storageClasses": ["fast"]}
        advertisement = {"metadata": {"name": "advertisement-c2"}, "spec": {"clusterID": "c2", "offer": offer}}
        await create(ADVERTISEMENTS, advertisement)
        await create(STORAGECLASSES, {"metadata": {"name": "liqo"}, "provisioner": PROVISIONER})
        await create(PERSISTENTVOLUMES, {"metadata": {"name": "pv-1"}, "spec": {"capacity": {"storage": "1Gi"}}})
        claim = {
            "metadata": {"name": "data", "labels": {"app": "web"}},
            "spec": {
                "storageClassName": "liqo",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "pv-1",
            },
        }
        await create(PERSISTENTVOLUMECLAIMS, claim, "shop")
        await self.bind("data")
        self.original = (await self.claim("data"))["metadata"]["uid"]
        self.ran: dict[str, dict[str, Any]] = {}
        self.fails: dict[str, str] = {}
        self.playing = True
        played = Deferred.fromCoroutine(self.play())

        def stop() -> Deferred[None]:
            self.playing = False
            return played

        self.addCleanup(stop)

    async def claim(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(PERSISTENTVOLUMECLAIMS, name, "shop")
        return found

    async def bind(self, name: str) -> None:
        """Have a claim bound, as the provisioner and the binder do it."""
        await self.client.patch(PERSISTENTVOLUMECLAIMS, name, {"spec": {"volumeName": f"pv-of-{name}"}}, "shop")
        status = {"status": {"phase": "Bound"}}
        await self.client.patch(PERSISTENTVOLUMECLAIMS, name, status, "shop", subresource="status")

    async def play(self) -> None:
        """Run what is to run, as long as the test does."""
        while self.playing:
            with contextlib.suppress(NotFound, Conflict):  # the command removed it meanwhile
                await self.play_once()
            await deferLater(REACTOR, 0.1)

    async def play_once(self) -> None:
        for pod in (await self.client.list(PODS, "shop", labels=f"{LABEL},app=repository")).items:
            self.ran["server"] = pod
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, "shop", subresource="status")
        for job in (await self.client.list(JOBS, "shop", labels=LABEL)).items:
            if (job.get("status") or {}).get("conditions"):
                continue
            name = job["metadata"]["name"]
            kind = name.rpartition("-")[2]
            self.ran[kind] = job
            for volume in job["spec"]["template"]["spec"]["volumes"]:
                await self.bind(volume["persistentVolumeClaim"]["claimName"])
            if (words := self.fails.pop(kind, None)) is not None:
                await self.last_words(job, words)
            done = "Complete" if words is None else "Failed"
            finished = {"status": {"conditions": [{"type": done, "status": "True"}]}}
            await self.client.patch(JOBS, name, finished, "shop", subresource="status")

    async def last_words(self, job: dict[str, Any], words: str) -> None:
        """Have a pod of a job that failed with some words."""
        template = job["spec"]["template"]
        body = {"metadata": {"name": f"{job['metadata']['name']}-x", **template["metadata"]}, "spec": template["spec"]}
        await self.client.create(PODS, body, "shop")
        ended: dict[str, Any] = {"name": "main", "state": {"terminated": {"exitCode": 1, "message": words}}}
        status: dict[str, Any] = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
        await self.client.patch(PODS, body["metadata"]["name"], status, "shop", subresource="status")

    async def names(self, resource: Resource) -> list[str]:
        found = (await self.client.list(resource, "shop", labels=LABEL)).items
        return sorted(one["metadata"]["name"] for one in found)

    async def moved(self) -> None:
        """Check that the claim is a new one at the target, and nothing else is left."""
        claim = await self.claim("data")
        self.assertNotEqual(claim["metadata"]["uid"], self.original)
        self.assertEqual(claim["metadata"]["labels"]["app"], "web")
        self.assertEqual(claim["spec"]["resources"], {"requests": {"storage": "1Gi"}})
        self.assertEqual(await self.names(PERSISTENTVOLUMECLAIMS), ["data"])
        for resource in (CONFIGMAPS, SECRETS, SERVICES, JOBS):
            self.assertEqual(await self.names(resource), [], resource.plural)


class MoveTests(MoveCase):
    """One move."""

    async def test_a_move(self) -> None:
        """The original stays until it is confirmed; the jobs run where the data is and where it is to be."""
        out = json.loads(await self.liqodctl(*MOVE, "--to", "milan", "-o", "json"))
        self.assertEqual((out["state"], out["from"], out["to"]), ("copied", "home", "c2"))
        self.assertEqual((await self.claim("data"))["metadata"]["uid"], self.original)
        self.assertEqual(await self.names(PERSISTENTVOLUMECLAIMS), [out["copy"]])
        for resource in (SECRETS, SERVICES, JOBS):
            self.assertEqual(await self.names(resource), [], resource.plural)
        here = {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}
        there = {"key": "liqo.io/remote-cluster-id", "operator": "In", "values": ["c2"]}
        server = self.ran["server"]["spec"]
        for spec, rule in (
            (server, here),
            (self.ran["backup"]["spec"]["template"]["spec"], here),
            (self.ran["restore"]["spec"]["template"]["spec"], there),
        ):
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            self.assertEqual(terms["nodeSelectorTerms"], [{"matchExpressions": [rule]}])
        _, err, status = await self.outcome(*MOVE, "--to", "home")
        self.assertEqual(status, 1)
        self.assertIn("AlreadyMoving", err)
        self.assertIn("LQ4001", err)
        await self.liqodctl(*MOVE, "--confirm")
        await self.moved()

    async def test_a_run_that_ends_at_every_step(self) -> None:
        """Another one goes on where it ended, and nothing is done twice."""
        words = ["--to", "milan"]
        for _ in range(80):
            _, err, status = await self.outcome(*MOVE, *words, "--timeout", "0.001")
            self.assertNotIn("Traceback", err)
            if status == 0 and words == ["--confirm"]:
                break
            if status == 0:
                words = ["--confirm"]
            else:
                self.assertIn("LQ3001", err)
        await self.moved()

    async def test_given_up(self) -> None:
        """Nothing is left of it, and the claim is as it was."""
        await self.liqodctl(*MOVE, "--to", "milan")
        await self.liqodctl(*MOVE, "--cancel")
        self.assertEqual((await self.claim("data"))["metadata"]["uid"], self.original)
        for resource in (CONFIGMAPS, PERSISTENTVOLUMECLAIMS, SECRETS, SERVICES, JOBS):
            self.assertEqual(await self.names(resource), [], resource.plural)

    async def test_a_full_disk(self) -> None:
        """It is said with the words of the job; the next run tries again."""
        self.fails["restore"] = "Fatal: write /data/a: no space left on device"
        _, err, status = await self.outcome(*MOVE, "--to", "milan")
        self.assertEqual(status, 1)
        self.assertIn("DiskFull", err)
        self.assertIn("no space left", err)
        await self.liqodctl(*MOVE, "--to", "milan")

    async def test_refusals(self) -> None:
        """A claim in use, and a target without storage: nothing is made for them."""
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        spec = {"containers": [{"name": "main", "image": "x"}], "volumes": [volume]}
        await self.client.create(PODS, {"metadata": {"name": "web-0"}, "spec": spec}, "shop")
        _, err, status = await self.outcome(*MOVE, "--to", "milan")
        self.assertEqual(status, 1)
        self.assertIn("web-0", err)
        self.assertIn("InUse", err)
        await self.client.delete(PODS, "web-0", "shop", grace=0)
        none = {"spec": {"offer": {"storageClasses": None}}}
        await self.client.patch(ADVERTISEMENTS, "advertisement-c2", none)
        _, err, _ = await self.outcome(*MOVE, "--to", "milan")
        self.assertIn("StorageNotOffered", err)
        _, err, _ = await self.outcome(*MOVE, "--to", "home")
        self.assertIn("AlreadyThere", err)
        _, err, status = await self.outcome(*MOVE)
        self.assertEqual(status, 2)
        self.assertEqual(await self.names(CONFIGMAPS), [])
