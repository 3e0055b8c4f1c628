"""What is lent is taken back: which pods go, when, and at what pace."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.reclaim import LOOK, PASSED_OVER, Reclaims, next_step
from liqod.hosting.tenants.quota.reclaim_orders import FASTEST, PACE, SPAN, ReclaimOrders, lasts, pace_of
from liqod.hosting.views import Pod
from liqod.kube.errors import from_status
from liqod.kube.resources import PODS, SHADOWPODS, Resource
from liqod.model.ids import Key
from liqod.model.names import DELETION_GRACE_ANNOTATION
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.records.offer import RECLAIMED
from liqod.model.records.views import ForeignCluster, ShadowPod
from tests.hosting.shadowpods.test_controller import Cache
from tests.hosting.side import Events
from tests.hosting.test_slices_of_services import IndexedCache
from tests.peering.clusters import RecordedAudit

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


class PaceTests(SynchronousTestCase):
    """How fast a tenant's pods go."""

    def test_the_table(self) -> None:
        """One in a second where that is enough, else so fast that they are gone in ten minutes, up to a bound."""
        for since, left, pace in (
            (0.0, 0, PACE),
            (0.0, 1, PACE),
            (0.0, 600, PACE),
            (0.0, 1200, 0.5),
            (300.0, 600, 0.5),
            (300.0, 10, PACE),
            (0.0, 1_000_000, FASTEST),
            (SPAN, 1, FASTEST),
            (10 * SPAN, 5, FASTEST),
        ):
            self.assertEqual(pace_of(since, left), pace, (since, left))

    def test_what_is_said_before(self) -> None:
        """It is what the pace comes to."""
        for pods, seconds in ((0, 0.0), (3, 3 * PACE), (600, SPAN), (5000, SPAN), (24_000, 2 * SPAN)):
            self.assertAlmostEqual(lasts(pods), seconds)
        at, left = 0.0, 5000
        while left:
            at, left = at + pace_of(at, left), left - 1
        self.assertAlmostEqual(at, lasts(5000), delta=FASTEST)


class Shadows(IndexedCache):
    """The ShadowPods of all tenants; counts how often one of them is looked at."""

    looks = 0

    def get(self, key: Key) -> Any:
        self.looks += 1
        return super().get(key)

    def by_index(self, name: str, value: Hashable) -> list[Any]:
        found = super().by_index(name, value)
        self.looks += len(found)
        return found

    def items(self) -> list[Any]:
        self.looks += len(self.held)
        return super().items()


class Granted:
    """Namespaces: shop is milan's, other is rome's, default is nobody's."""

    def __init__(self) -> None:
        self.informer = Cache()

    def granted(self, peer: str) -> list[Object]:
        names = [name for name, tenant in (("shop", "milan"), ("other", "rome")) if tenant == peer]
        return [Object(metadata=ObjectMeta(name=name)) for name in names]


class ReclaimTests(SynchronousTestCase):
    """The pods of a tenant go after the notice, one at a time."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.foreign, self.shadows, self.pods = Cache(), Shadows(), Cache()
        self.server = Server(self.clock, self.shadows, self.pods)
        self.events, self.audit = Events(), RecordedAudit()
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
            audit=self.audit,
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

    def test_security_events(self) -> None:
        """An order and its end are one event each, however often it is looked at and whichever moment it names."""
        for by in ("2030-01-01T00:01:00Z", "2030-01-01T00:00:30Z", None, None):
            self.order(by)
            self.run_for(3)
        found = [(one.type, one.reason, one.peer) for one in self.audit.events]
        self.assertEqual(
            found, [("AccessRevoked", "ReclaimOrdered", "milan"), ("AccessGranted", "ReclaimEnded", "milan")]
        )

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

    def test_many(self) -> None:
        """However many pods there are, they are gone in the time that is said; few go one in a second."""
        for number in range(1200):
            self.shadows.put(shadow(f"n{number}", "shop"))
            self.pods.put(pod(f"n{number}", "shop"))
        self.order("2030-01-01T00:01:00Z")
        self.clock.advance(60)
        self.clock.pump([0.125] * int((SPAN + 30) / 0.125))
        self.assertEqual(len(self.server.evicted), 1203)
        times = [at - 60 for _, at in self.server.evicted]
        self.assertGreater(times[-1], SPAN / 2)
        self.assertLess(times[-1], SPAN + 10)

    def test_only_what_is_open(self) -> None:
        """Nothing of another tenant is looked at, and of one's own nothing that is over, nor anything each second."""
        for number in range(500):
            self.shadows.put(shadow(f"over{number}", "shop", phase="Succeeded"))
            self.shadows.put(shadow(f"theirs{number}", "other"))
        self.server.protected = {"a"}
        self.order("2030-01-01T00:00:00Z")
        self.run_for(5)
        self.assertEqual(self.names(), ["b", "c"])
        self.shadows.looks = 0
        self.run_for(60)
        self.assertLess(self.shadows.looks, 300)

    def test_one_that_is_protected_while_others_go(self) -> None:
        """It is asked for again before all others are gone."""
        for number in range(60):
            self.shadows.put(shadow(f"n{number}", "shop"))
            self.pods.put(pod(f"n{number}", "shop"))
        self.server.protected = {"a"}
        self.order("2030-01-01T00:00:00Z")
        self.run_for(5)
        self.server.protected = set()
        self.run_for(PASSED_OVER)
        self.assertIn("a", self.names())
        self.assertLess(len(self.names()), 30)

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
