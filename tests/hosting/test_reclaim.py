"""What is lent is taken back: which pods go, when, and at what pace."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.reclaim import LOOK, PACE, PASSED_OVER, Reclaims, next_step
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders
from liqod.hosting.views import Pod
from liqod.kube.errors import from_status
from liqod.kube.resources import PODS, SHADOWPODS, Resource
from liqod.model.ids import Key
from liqod.model.names import DELETION_GRACE_ANNOTATION
from liqod.model.records.offer import RECLAIMED
from liqod.model.records.views import ForeignCluster, ShadowPod
from tests.hosting.cases import Events
from tests.hosting.shadowpods.test_controller import Cache

START = datetime(2030, 1, 1, tzinfo=UTC)


def shadow(name: str = "web", namespace: str = "shop", **status: str) -> ShadowPod:
    body = {"metadata": {"name": name, "namespace": namespace, "uid": f"s-{name}"}, "status": status}
    return msgspec.convert(body, ShadowPod)


def pod(name: str = "web", namespace: str = "shop", owner: str = "", **more: Any) -> Pod:
    reference = {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "ShadowPod",
        "name": name,
        "uid": owner or f"s-{name}",
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"p-{name}",
        "labels": {"liqo.io/managed-by": "shadowpod"},
        "ownerReferences": [reference],
        **more.pop("metadata", {}),
    }
    return msgspec.convert({"metadata": metadata, "status": {"phase": "Running", **more}}, Pod)


class StepTests(SynchronousTestCase):
    """What is done with one ShadowPod."""

    def test_the_table(self) -> None:
        """A pod that runs is evicted; one that is going, or was never made, is not made again; what its borrower ends,
        or has ended, and what is not of this ShadowPod, is left alone.
        """
        going = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
        ended = msgspec.convert(
            {"metadata": {"uid": "s-web", "annotations": {DELETION_GRACE_ANNOTATION: "30"}}}, ShadowPod
        )
        for given, present, step in (
            (shadow(), pod(), "evict"),
            (shadow(), pod(metadata=going), "finish"),
            (shadow(), None, "finish"),
            (shadow(phase="Pending", reason="QuotaExceeded"), None, "finish"),
            (shadow(), pod(owner="another"), "finish"),
            (shadow(), pod(phase="Succeeded"), ""),
            (shadow(phase="Succeeded"), None, ""),
            (shadow(phase="Failed", reason="Oops"), pod(), ""),
            (shadow(phase="Failed", reason=RECLAIMED), None, ""),
            (shadow(phase="Failed", reason=RECLAIMED), pod(metadata=going), ""),
            # It was being created when its ShadowPod was finished.
            (shadow(phase="Failed", reason=RECLAIMED), pod(), "evict"),
            (ended, pod(), ""),
        ):
            self.assertEqual(next_step(given, present), step, (given.status, present))


class Server:
    """Evicts pods but for those that a budget protects, and stores statuses."""

    def __init__(self, clock: Clock, shadows: Cache, pods: Cache) -> None:
        self.clock = clock
        self.shadows = shadows
        self.pods = pods
        self.protected: set[str] = set()
        self.refuses_statuses: set[str] = set()
        self.evicted: list[tuple[str, float]] = []
        self.attempts = 0

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str, **options: Any) -> None:
        assert (resource, options["subresource"]) == (PODS, "eviction")
        name = options["name"]
        self.attempts += 1
        if name in self.protected:
            raise from_status(429, b'{"reason": "TooManyRequests", "message": "disruption budget"}')
        assert body["deleteOptions"]["preconditions"]["uid"] == f"p-{name}"
        self.evicted.append((name, self.clock.seconds()))
        self.pods.remove(Key(namespace, name))

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str, **options: Any) -> ShadowPod:
        assert (resource, options["subresource"]) == (SHADOWPODS, "status")
        if name in self.refuses_statuses:
            raise from_status(403, b'{"reason": "Forbidden", "message": "a policy"}')
        held = self.shadows.get(Key(namespace, name))
        new = shadow(name, namespace, **body["status"])
        new = msgspec.structs.replace(
            new, metadata=msgspec.structs.replace(held.metadata, resource_version=str(self.attempts + 2))
        )
        self.shadows.put(new)
        return new


class Granted:
    """Namespaces: shop is milan's, other is rome's, default is nobody's."""

    def __init__(self) -> None:
        self.informer = Cache()

    def known_tenant(self, namespace: str) -> str | None:
        return {"shop": "milan", "other": "rome"}.get(namespace, "")


class ReclaimTests(SynchronousTestCase):
    """The pods of a tenant go after the notice, one at a time."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.foreign, self.shadows, self.pods = Cache(), Cache(), Cache()
        self.server = Server(self.clock, self.shadows, self.pods)
        self.events = Events()
        for name, namespace in (("a", "shop"), ("b", "shop"), ("c", "shop"), ("theirs", "other"), ("own", "default")):
            self.shadows.put(shadow(name, namespace))
            self.pods.put(pod(name, namespace))
        self.start()

    def start(self) -> None:
        reclaims = Reclaims(
            cast(Any, self.server),
            self.clock,
            orders=ReclaimOrders(
                cast(Any, self.foreign), self.clock, lambda: START + timedelta(seconds=self.clock.seconds())
            ),
            shadows=cast(Any, self.shadows),
            pods=cast(Any, self.pods),
            namespaces=cast(Any, Granted()),
            recorder=self.events,
        )
        reclaims.startService()
        self.addCleanup(reclaims.stopService)
        self.reclaims = reclaims
        self.clock.advance(0)

    def order(self, by: str | None, **metadata: str) -> None:
        spec = {"reclaim": {"by": by}} if by is not None else {}
        body = {"metadata": {"name": "milan", **metadata}, "spec": spec}
        self.foreign.put(msgspec.convert(body, ForeignCluster))
        self.clock.advance(0)

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.25] * int(seconds * 4))

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.server.evicted)

    def test_notice_and_pace(self) -> None:
        """Nothing goes before the moment; then one pod after the other, and none of another tenant or of nobody's."""
        self.order("2030-01-01T00:01:00Z")
        self.run_for(59)
        self.assertEqual(self.server.attempts, 0)
        self.run_for(20)
        self.assertEqual(self.names(), ["a", "b", "c"])
        times = [at for _, at in self.server.evicted]
        self.assertGreaterEqual(times[0], 60)
        self.assertEqual([later - sooner for sooner, later in itertools.pairwise(times)], [PACE, PACE])
        for one in self.shadows.items():
            expected = ("Failed", RECLAIMED) if one.metadata.namespace == "shop" else ("", "")
            self.assertEqual((one.status.phase, one.status.reason), expected, one.metadata.key)
        self.assertEqual(len([what for what, _ in self.events.seen if RECLAIMED in what]), 3)

    def test_a_budget(self) -> None:
        """A pod that a disruption budget protects stays, and its ShadowPod with it; others go meanwhile; it goes when
        the budget allows that, and is not asked for more often than now and then.
        """
        self.server.protected = {"a"}
        self.order("2029-01-01T00:00:00Z")
        self.run_for(4 * PASSED_OVER)
        self.assertEqual(self.names(), ["b", "c"])
        self.assertEqual(self.shadows.get(Key("shop", "a")).status.phase, "")
        self.assertLessEqual(self.server.attempts, 2 + 5)
        self.server.protected = set()
        self.run_for(PASSED_OVER + LOOK)
        self.assertEqual(self.names(), ["a", "b", "c"])

    def test_a_status_that_is_refused(self) -> None:
        """It keeps no other pod here."""
        self.server.refuses_statuses = {"a"}
        self.order("2029-01-01T00:00:00Z")
        self.run_for(10)
        self.assertEqual(self.names(), ["a", "b", "c"])

    def test_one_that_comes_meanwhile(self) -> None:
        """A ShadowPod that was still being made when the offer was taken back ends, too."""
        self.order("2029-01-01T00:00:00Z")
        self.run_for(10)
        self.shadows.put(shadow("late", "shop", phase="Pending", reason="QuotaExceeded"))
        self.run_for(LOOK + PACE)
        self.assertEqual(self.shadows.get(Key("shop", "late")).status.reason, RECLAIMED)

    def test_taken_back(self) -> None:
        """An order that is taken back before its moment, or half-way, or of a peering that ends, evicts no more."""
        self.order("2030-01-01T00:01:00Z")
        self.run_for(30)
        self.order(None)
        self.run_for(60)
        self.assertEqual(self.server.attempts, 0)
        self.order("2029-01-01T00:00:00Z")
        self.order(None)
        self.run_for(60)
        self.assertEqual(self.names(), ["a"])
        self.order("2029-01-01T00:00:00Z", deletionTimestamp="2030-01-01T00:00:00Z")
        self.run_for(60)
        self.assertEqual(self.names(), ["a"])

    def test_a_restart(self) -> None:
        """A daemon that starts after the moment goes on where the one before stopped."""
        self.order("2030-01-01T00:01:00Z")
        self.reclaims.stopService()
        self.run_for(120)
        self.assertEqual(self.server.attempts, 0)
        self.start()
        self.run_for(10)
        self.assertEqual(self.names(), ["a", "b", "c"])

    def test_not_a_date(self) -> None:
        """An order without a moment evicts nothing."""
        for by in ("", "soon", "2029-01-01"):
            self.order(by)
            self.run_for(60)
            self.assertEqual(self.server.attempts, 0, by)
