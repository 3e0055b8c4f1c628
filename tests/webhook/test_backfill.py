"""Pods created without the webhook, on an API server with pods alone: which get a toleration, which get an event."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import Invalid, NotFound
from liqod.kube.resources import PODS
from liqod.model.objects.meta import Object
from liqod.model.records.offloading import LOCAL, REMOTE, OffloadingPolicy
from liqod.webhook import backfill
from liqod.webhook.backfill import SEARCH_EVERY, Backfill, PlacedPod, until_search
from liqod.webhook.placement import TOLERATION


def pod(name: str, version: str = "1", node: str = "", **more: str) -> PlacedPod:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": version, **more}
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


class UntilSearchTests(SynchronousTestCase):
    """When is searched next."""

    def test_when_all_is_stored_then_every_so_often(self) -> None:
        """Right when the last pod that was missed must be stored, and from then on at the usual times."""
        self.assertEqual([until_search(left) for left in (9.0, 0.1, 0.0, -4.0)], [9.0, 0.1, SEARCH_EVERY, SEARCH_EVERY])


class BackfillTests(SynchronousTestCase):
    """A search, and another one."""

    def setUp(self) -> None:
        self.server = Server()
        self.reported: list[str] = []
        self.backfill = Backfill(cast(Any, self.server), cast(Any, self), lambda namespace: OffloadingPolicy(REMOTE))

    def record_event(self, regarding: Any, type: str, reason: str, message: str, source: Any = None) -> None:
        self.reported.append(str(regarding["name"]))

    def has(self, *pods: PlacedPod) -> None:
        self.server.pods = {each.metadata.name: each for each in pods}

    def search(self, *, local: bool = False) -> int:
        work = self.backfill.search_local(["shop"]) if local else self.backfill.search()
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_a_missed_pod_gets_its_toleration(self) -> None:
        """With the toleration there is nothing to record."""
        self.has(pod("web"))
        self.assertEqual(self.search(), 1)
        self.assertEqual((self.server.patched, self.reported), (["web"], []))

    def test_a_pod_that_asks_for_a_virtual_node_at_home(self) -> None:
        """Where the namespace stays home, a pod with the RuntimeClass waits at a virtual node."""
        self.backfill = Backfill(cast(Any, self.server), cast(Any, self), lambda namespace: OffloadingPolicy(LOCAL))
        spec = {"tolerations": [dict(TOLERATION)], "runtimeClassName": "liqo"}
        for given, missed in ((spec, 0), ({**spec, "runtimeClassName": "gvisor"}, 1)):
            self.has(
                msgspec.convert(
                    {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": given}, PlacedPod
                )
            )
            self.assertEqual(self.search(), missed)

    def test_a_toleration_that_is_refused_is_one_event(self) -> None:
        """If it is still the pod that was read: one that changed or went meanwhile is left to the next search."""
        self.server.refuses = Invalid(422, "Invalid", "the affinity may not be changed")
        self.has(pod("web"))
        for current in ({"web": pod("web", "2")}, {}):
            self.server.current = current
            self.search()
            self.assertEqual(self.reported, [])
        self.server.current = None
        for _ in range(3):
            self.search()
        self.assertEqual(self.reported, ["web"])

    def test_a_pod_that_runs_locally_is_one_event(self) -> None:
        """However often it is found."""
        self.has(*(pod(f"web-{number}", node="worker-1") for number in range(3)))
        for _ in range(3):
            self.assertEqual(self.search(local=True), 3)
        self.assertEqual(sorted(self.reported), ["web-0", "web-1", "web-2"])
        self.assertEqual(self.server.patched, [])

    def test_what_is_remembered_is_bounded(self) -> None:
        """Beyond a number of pods some get a second event, rather than all of them being remembered for ever."""
        self.patch(backfill, "MAX_REPORTED", 3)
        for number in range(20):
            self.has(pod(f"web-{number}", node="worker-1"))
            self.search(local=True)
            self.assertLessEqual(len(self.backfill._reported_local), 3)
        self.assertEqual(len(self.reported), 20)
        self.has(*(pod(f"job-{number}", node="worker-1") for number in range(20)))
        self.search(local=True)
        self.assertLessEqual(len(self.backfill._reported_local), 3)

    def test_a_pod_that_is_being_deleted(self) -> None:
        """It is neither changed nor complained of, wherever it is."""
        for node in ("", "worker-1"):
            self.has(pod("web", node=node, deletionTimestamp="2030-01-01T00:00:00Z"))
            self.assertEqual(self.search(local=bool(node)), 0)
        self.assertEqual((self.server.patched, self.reported), ([], []))

    def test_a_pod_that_is_gone_is_forgotten(self) -> None:
        """A pod is remembered as long as it is found, however many there were before."""
        for number in range(20):
            self.has(pod("stays", node="worker-1"), pod(f"web-{number}", node="worker-1"))
            self.search(local=True)
        self.assertEqual(self.backfill._reported_local, {"uid-stays", "uid-web-19"})
        self.has()
        self.search(local=True)
        self.assertEqual(self.backfill._reported_local, set())
        self.assertEqual(len(self.reported), 21)
