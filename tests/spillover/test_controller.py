"""The return of pods against a sandbox's API server, where some evictions are refused."""

from __future__ import annotations

from typing import Any

import msgspec
from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import OffloadingSettings
from liqod.demo.access import client_config
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import Invalid, KubeError, ServerError, Throttled, Unreachable
from liqod.kube.resources import NAMESPACES, NODES, PODS, Resource
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object
from liqod.spillover.controller import ReturnController
from liqod.spillover.planner import ATTEMPTS
from tests.hosting.side import Events

reactor: Any = _reactor
CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController", True)


class ReturnTests(TestCase):
    """A node with room, a virtual node with pods, and a controller that tries again every few milliseconds."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        cluster = SandboxCluster(reactor, "home", [SandboxNode("node", cpu="64", memory="64Gi")])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.client = Client(client_config(cluster), reactor)
        self.addCleanup(self.client.close)
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        labels = {TYPE_LABEL: VIRTUAL_NODE_TYPE}
        await self.client.create(NODES, {"metadata": {"name": "liqo-milan", "labels": labels}})
        owner = {"metadata": {"name": "web"}, "spec": {"replicas": 0}}
        self.owner = await self.client.create(CONTROLLERS, owner, "shop")
        self.refusals: dict[str, KubeError] = {}
        self.tried: list[str] = []
        create = self.client.create

        async def create_or_refuse(resource: Resource, body: Any, *where: Any, **more: Any) -> Any:
            if more.get("subresource") == "eviction":
                self.tried.append(more["name"])
                if (refusal := self.refusals.get(more["name"])) is not None:
                    raise refusal
            return await create(resource, body, *where, **more)

        self.patch(self.client, "create", create_or_refuse)

    async def pod(self, name: str, owner_uid: str = "", *, phase: str = "Running") -> None:
        """Have a pod on the virtual node, of the one owner or of another; it runs, if not said otherwise."""
        spec = {"nodeName": "liqo-milan", "containers": [{"name": "main", "image": "localhost/busybox:1"}]}
        owner = {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "name": "web",
            "uid": owner_uid or self.owner["metadata"]["uid"],
            "controller": True,
        }
        meta = {"name": name, "ownerReferences": [owner]}
        await self.client.create(PODS, {"metadata": meta, "spec": spec}, "shop")
        await self.client.patch(PODS, name, {"status": {"phase": phase}}, "shop", subresource="status", view=None)

    async def run_controller(self) -> ReturnController:
        """Start the controller; all pods of the namespace may return at once."""
        informers = Informers(self.client, reactor)
        controller = ReturnController(
            reactor,
            informers,
            settings=msgspec.structs.replace(
                OffloadingSettings(), spillover="Return", return_interval=0.02, return_after=0.0
            ),
            enabled=informers.of(NAMESPACES, Object, fields="metadata.name=shop"),
            recorder=Events(),
        )
        informers.startService()
        controller.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self._end(controller, informers)))
        return controller

    async def _end(self, controller: ReturnController, informers: Informers) -> None:
        await controller.stopService()
        await informers.stopService()

    async def returned(self, name: str) -> None:
        """Wait until a pod was evicted."""
        while not (await self.client.get(PODS, name, "shop", view=Object)).metadata.deleting:
            await deferLater(reactor, 0.02)

    async def test_refused_pods_block_nobody(self) -> None:
        """Pods whose eviction is refused, by a budget or by a webhook, are passed over: the others return."""
        refusals = (Throttled, Invalid, ServerError)
        for number in range(2 * ATTEMPTS):
            name = f"blocked-{number}"
            await self.pod(name)
            self.refusals[name] = refusals[number % len(refusals)](429, "TooManyRequests", "the budget says no")
        await self.pod("zz-free")
        controller = await self.run_controller()
        await self.returned("zz-free")
        await deferLater(reactor, 0.2)
        self.assertEqual(sorted(self.tried), sorted([*self.refusals, "zz-free"]))
        self.assertEqual(controller.returns, {"refused": 2 * ATTEMPTS, "evicted": 1})

    async def test_lost_answers(self) -> None:
        """An eviction without an answer may have been done: the step ends with it, and the next is not earlier."""
        for name, lost in {
            "a": Unreachable("time-out"),
            "b": ServerError(504, "Timeout", "time-out"),
            "c": Throttled(429, "TooManyRequests", "the budget says no"),
            "d": Throttled(429, "TooManyRequests", "the budget says no"),
        }.items():
            await self.pod(name)
            self.refusals[name] = lost
        steps: list[list[str]] = []
        reconcile = ReturnController.reconcile

        async def noted(controller: ReturnController, key: str) -> Any:
            before = len(self.tried)
            try:
                return await reconcile(controller, key)
            finally:
                steps.append(self.tried[before:])

        self.patch(ReturnController, "reconcile", noted)
        controller = await self.run_controller()
        while len(steps) < 5:
            self.assertEqual(controller.failing, {})
            await deferLater(reactor, 0.02)
        self.assertEqual(steps[:5], [[], ["a"], ["b"], ["c", "d"], []])
        self.assertEqual(controller.returns, {"refused": 2})

    async def test_a_successor_that_leaves_again(self) -> None:
        """Who owns a pod that went away again after its return keeps its pods there for a while; others return."""
        await self.pod("web-1")
        controller = await self.run_controller()
        await self.returned("web-1")
        await self.client.delete(PODS, "web-1", "shop", grace=0)
        await self.pod("web-2")
        await deferLater(reactor, 0.2)
        self.assertEqual(self.tried, ["web-1"])
        await self.pod("other", "another-owner")
        await self.returned("other")
        await deferLater(reactor, 0.1)
        self.assertEqual(self.tried, ["web-1", "other"])
        self.assertEqual(controller.returns, {"evicted": 2})

    async def test_a_successor_that_does_not_run_yet(self) -> None:
        """It went away again, though its image is still being pulled: its owner's other pods stay meanwhile."""
        for name in ("web-1", "web-2"):
            await self.pod(name)
        self.refusals["web-2"] = Throttled(429, "TooManyRequests", "the budget says no")
        controller = await self.run_controller()
        await self.returned("web-1")
        await self.pod("web-3", phase="Pending")
        await self.client.delete(PODS, "web-1", "shop", grace=0)
        await deferLater(reactor, 0.2)
        self.refusals.clear()
        controller.passed_over.clear()
        await deferLater(reactor, 0.2)
        self.assertEqual(controller.returns["evicted"], 1)

    async def test_a_pod_that_goes_is_forgotten(self) -> None:
        """What is known of a refused pod goes with the pod."""
        await self.pod("blocked")
        self.refusals["blocked"] = Throttled(429, "TooManyRequests", "the budget says no")
        controller = await self.run_controller()
        while not controller.passed_over:
            await deferLater(reactor, 0.02)
        await self.client.delete(PODS, "blocked", "shop", grace=0)
        while controller.passed_over:
            await deferLater(reactor, 0.02)
