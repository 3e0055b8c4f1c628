"""Pods that slipped by the webhook, on an API server that keeps only pods: who is mended, and who is told how often."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import Invalid, NotFound
from liqod.kube.resources import PODS
from liqod.model.objects.meta import Object
from liqod.model.records.offloading import REMOTE, Policy
from liqod.webhook import backfill
from liqod.webhook.backfill import PlacedPod, Slipped


def pod(name: str, version: str = "1", node: str = "") -> PlacedPod:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node} if node else {}}, PlacedPod)


@attrs.frozen
class Listing:
    """What a list answers."""

    items: list[Any]


class Server:
    """Has pods and one enabled namespace; ``refuses`` is what a patch is answered with."""

    def __init__(self) -> None:
        self.pods: dict[str, PlacedPod] = {}
        self.current: dict[str, PlacedPod] | None = None
        self.patched: list[str] = []
        self.refuses: Exception | None = None

    async def list(self, resource: Any, *args: Any, **options: Any) -> Listing:
        if resource is PODS:
            return Listing(list(self.pods.values()))
        return Listing([msgspec.convert({"metadata": {"name": "shop"}}, Object)])

    async def get(self, resource: Any, name: str, namespace: str, *, view: Any) -> PlacedPod:
        found = (self.pods if self.current is None else self.current).get(name)
        if found is None:
            raise NotFound(404, "NotFound", "there is none")
        return found

    async def patch(self, resource: Any, name: str, *args: Any, **options: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.patched.append(name)


class BackfillTests(SynchronousTestCase):
    """A search, and another one."""

    def setUp(self) -> None:
        self.server = Server()
        self.told: list[str] = []
        self.slipped = Slipped(cast(Any, self.server), cast(Any, self), lambda namespace: Policy(REMOTE))

    def emit(self, regarding: Any, type: str, reason: str, message: str) -> None:
        self.told.append(str(regarding["name"]))

    def has(self, *pods: PlacedPod) -> None:
        self.server.pods = {each.metadata.name: each for each in pods}

    def look(self, *, at_home: bool = False) -> int:
        work = self.slipped.look_at_home(["shop"]) if at_home else self.slipped.look()
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_who_can_be_mended_is(self) -> None:
        """With the toleration there is nothing to tell."""
        self.has(pod("web"))
        self.assertEqual(self.look(), 1)
        self.assertEqual((self.server.patched, self.told), (["web"], []))

    def test_who_cannot_be_mended_is_told_once(self) -> None:
        """If it is still the pod that was judged: one that changed or went meanwhile is looked at anew."""
        self.server.refuses = Invalid(422, "Invalid", "the affinity may not be changed")
        self.has(pod("web"))
        for current in ({"web": pod("web", "2")}, {}):
            self.server.current = current
            self.look()
            self.assertEqual(self.told, [])
        self.server.current = None
        for _ in range(3):
            self.look()
        self.assertEqual(self.told, ["web"])

    def test_who_runs_at_home_is_told_once(self) -> None:
        """However often it is looked at."""
        self.has(*(pod(f"web-{number}", node="worker-1") for number in range(3)))
        for _ in range(3):
            self.assertEqual(self.look(at_home=True), 3)
        self.assertEqual(sorted(self.told), ["web-0", "web-1", "web-2"])
        self.assertEqual(self.server.patched, [])

    def test_what_is_remembered_is_bounded(self) -> None:
        """Beyond a number of pods some are told once more, rather than all of them kept for ever."""
        self.patch(backfill, "MAX_TOLD", 3)
        for number in range(20):
            self.has(pod(f"web-{number}", node="worker-1"))
            self.look(at_home=True)
            self.assertLessEqual(len(self.slipped._told_at_home), 3)
        self.assertEqual(len(self.told), 20)
