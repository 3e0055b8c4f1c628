"""How a virtual node is removed: what is waited for, and what stays on record, under a clock of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import ServerError
from liqod.kube.resources import NATTINGTABLES, PODS
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.ports import HomeRecords
from liqod.kubelet.retirement import DELETE_AGAIN, DRAIN_DEADLINE, EVICTION_DEADLINE, RELEASE_DEADLINE, Retirement
from liqod.model.ids import ClusterID, Key
from liqod.model.names import advertisement_name
from liqod.model.records.unpeering import ORDER
from liqod.model.records.views import Advertisement, ForeignCluster

LENDER = ClusterID("milan")


class Cache:
    """An informer that holds what it is given."""

    def __init__(self) -> None:
        self.held: dict[Key, Any] = {}
        self.subscribers: list[Callable[..., None]] = []

    def get(self, key: Key) -> Any:
        return self.held.get(key)

    def items(self) -> list[Any]:
        return list(self.held.values())

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def put(self, new: Any) -> None:
        self.held[new.metadata.key] = new
        self.changed()

    def changed(self) -> None:
        for subscriber in list(self.subscribers):
            subscriber(None, None, None)


class Steps:
    """The namespaces, the other nodes and the API server in one; keeps what was done, and when pods were deleted."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.done: list[str] = []
        self.deleted: list[tuple[str, int | None, float]] = []
        self.occupied = True
        self.synced = True
        self.shared = False
        self.releases = False
        """Whether the lender releases what it is asked to."""
        self.failing = ""
        """The step that fails."""
        self.release_time = 0.0
        """Seconds that the lender was given to release everything."""

    def do(self, step: str) -> None:
        self.done.append(step)
        if step == self.failing:
            raise ServerError(500, "InternalError", step)

    def retire(self) -> None:
        self.do("drain")

    def mappings(self) -> dict[str, str]:
        return {"shop": "shop-rome"}

    async def release_all(self, deadline: float) -> bool:
        self.release_time = deadline - self.clock.seconds()
        self.do("release")
        return self.releases

    async def note_unreleased(self) -> None:
        self.do("note what is owed")

    def exist(self) -> bool:
        return self.shared

    def leave(self) -> None:
        self.do("leave")

    async def delete(self, resource: Any, name: str, namespace: str = "", **options: Any) -> None:
        if resource is NATTINGTABLES:
            self.do("delete the table")
        else:
            assert resource is PODS
            assert options["grace"] == 0 or self.clock.seconds() < DRAIN_DEADLINE, "the drain is over"
            self.deleted.append((name, options["grace"], self.clock.seconds()))


class Node:
    """The virtual node."""

    node_name = "liqo-milan"

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    async def cordon(self) -> None:
        self.steps.do("cordon")

    async def retire(self) -> None:
        self.steps.do("remove the node")


class RetirementTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.steps = Steps(self.clock)
        names = ("virtual_nodes", "offers", "tables", "enabled", "offloadings", "nodes", "peers")
        self.caches = {name: Cache() for name in names}
        self.pods = Cache()
        record = {"metadata": {"name": LENDER}, "spec": {"clusterID": LENDER, "fingerprint": "sha256:1"}}
        self.peer = record
        self.caches["peers"].put(msgspec.convert(record, ForeignCluster))
        offer = {"metadata": {"name": advertisement_name(LENDER)}, "spec": {"clusterId": LENDER}}
        self.caches["offers"].put(msgspec.convert(offer, Advertisement))

    def end_peering(self, order: str = "") -> None:
        """Have an administrator delete the peer's record."""
        annotations = {ORDER: order} if order else {}
        meta = {"name": LENDER, "deletionTimestamp": "2030-01-01T00:00:00Z", "annotations": annotations}
        self.caches["peers"].put(msgspec.convert({**self.peer, "metadata": meta}, ForeignCluster))

    def put_pod(self, name: str, namespace: str = "shop", **meta: Any) -> None:
        body = {"metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}", **meta}}
        self.pods.put(msgspec.convert(body, HomePod))

    def run_it(self) -> Deferred[None]:
        one = cast(Any, self.steps)
        retirement = Retirement(
            self.clock,
            one,
            HomeRecords(**cast(Any, self.caches)),
            lender=LENDER,
            node=cast(Any, Node(self.steps)),
            namespaces=one,
            others=one,
            pods=cast(Any, self.pods),
        )
        return Deferred.fromCoroutine(retirement.run())

    def vacate(self) -> None:
        """Have the last namespace be released."""
        self.steps.occupied = False
        self.caches["tables"].changed()

    def last_steps(self) -> list[str]:
        """Return what is done about what the virtual nodes of a lender share, once this one is gone."""
        self.steps.occupied = False
        self.successResultOf(self.run_it())
        return self.steps.done[self.steps.done.index("remove the node") + 1 :]

    # What stays on record

    def test_nothing_is_owed(self) -> None:
        """Where the lender released everything there is no table any more, though a node is made again."""
        self.steps.releases = True
        self.assertEqual(self.last_steps(), ["release", "delete the table"])

    def test_a_lender_that_owes(self) -> None:
        """What it did not release stays on record for the node that is made next."""
        self.assertEqual(self.last_steps(), ["release", "note what is owed"])

    def test_a_lender_that_owes_and_does_not_come_back(self) -> None:
        """No node is made again: a table would stay for ever."""
        self.end_peering()
        self.assertEqual(self.last_steps(), ["release", "delete the table"])

    def test_shared_with_another_node(self) -> None:
        """What the lender's other node uses is neither released nor forgotten."""
        self.steps.shared = True
        self.assertEqual(self.last_steps(), ["leave"])

    def test_how_long_the_release_may_take(self) -> None:
        """A lender has some seconds; one that is dead for good has none."""
        self.last_steps()
        self.assertEqual(self.steps.release_time, RELEASE_DEADLINE)
        self.steps.done.clear()
        self.end_peering("dead")
        self.last_steps()
        self.assertEqual(self.steps.release_time, 0.0)

    def test_a_step_that_fails(self) -> None:
        """The other steps are taken all the same; the failure of one that leaves something is raised."""
        for failing, is_raised in (
            ("cordon", False),
            ("remove the node", True),
            ("note what is owed", True),
        ):
            self.steps = Steps(self.clock)
            self.steps.occupied, self.steps.failing = False, failing
            running = self.run_it()
            if is_raised:
                self.assertIn(failing, str(self.failureResultOf(running, ServerError)))
            else:
                self.successResultOf(running)
            wanted = ["cordon", "drain", "remove the node", "release", "note what is owed"]
            self.assertEqual(self.steps.done, wanted, failing)

    # What is waited for

    def test_it_waits_for_the_namespaces(self) -> None:
        """While one is in use the node stays, for as long as a drain may take; it goes at once when none is."""
        running = self.run_it()
        self.clock.advance(EVICTION_DEADLINE - 0.1)
        self.assertNoResult(running)
        self.assertEqual(self.steps.done, ["cordon", "drain"])
        self.vacate()
        self.successResultOf(running)

    def test_an_empty_node(self) -> None:
        """Nothing is waited for where nothing is in use."""
        self.steps.occupied = False
        self.successResultOf(self.run_it())

    def test_a_lender_that_never_answers(self) -> None:
        """Pods that stay are deleted with their grace period, then by force, and the node goes."""
        self.put_pod("web")
        self.put_pod("ending", deletionTimestamp="2030-01-01T00:00:00Z")
        self.put_pod("elsewhere", "other")
        running = self.run_it()
        self.clock.advance(EVICTION_DEADLINE - 0.5)
        self.assertEqual(self.steps.deleted, [])
        while self.clock.seconds() < DRAIN_DEADLINE:
            self.assertNoResult(running)
            self.clock.advance(0.5)
        self.successResultOf(running)
        times = int((DRAIN_DEADLINE - EVICTION_DEADLINE) / DELETE_AGAIN)
        softly = [("web", None, EVICTION_DEADLINE + number * DELETE_AGAIN) for number in range(times)]
        by_force = [("web", 0, DRAIN_DEADLINE), ("ending", 0, DRAIN_DEADLINE)]
        self.assertEqual(self.steps.deleted, [*softly, *by_force])

    def test_a_lender_that_is_dead_for_good(self) -> None:
        """It is not waited for, from the moment on when somebody says so; but the caches are: pods are to be found."""
        running = self.run_it()
        self.end_peering("dead")
        self.successResultOf(running)
        self.assertLess(self.clock.seconds(), EVICTION_DEADLINE)
        self.steps = Steps(self.clock)
        self.steps.synced = False
        running = self.run_it()
        self.assertNoResult(running)
        self.steps.synced = True
        self.caches["tables"].changed()
        self.successResultOf(running)

    def test_an_end_that_gives_nobody_up(self) -> None:
        """A lender with which the peering ends in the usual way is waited for."""
        self.end_peering()
        running = self.run_it()
        self.clock.advance(EVICTION_DEADLINE - 0.1)
        self.assertNoResult(running)
        self.vacate()
        self.successResultOf(running)
