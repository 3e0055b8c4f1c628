"""Tests of liqod.kube.leader over a server in memory."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.leader import LeaderLease, Lease
from tests.clocks import SimulatedWallClock
from tests.kube.cases import Answer, memory_client, status


class LeaderTests(SynchronousTestCase):
    """Candidates for one lease; each reaches the API server by itself."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.servers: list[Any] = []
        self.lost: list[str] = []
        self.wall = SimulatedWallClock(self.clock)

    def candidate(self, name: str, renew_interval: float = 3) -> tuple[LeaderLease, Any]:
        client, server = memory_client(self.answer, self.clock)
        self.servers.append(server)
        lease = LeaderLease(
            client,
            self.clock,
            namespace="liqo-system",
            name="liqod",
            identity=name,
            lease_duration=9,
            renew_interval=renew_interval,
            retry_interval=2,
            on_lost=lambda: self.lost.append(name),
            wall=self.wall,
            random=lambda: 0.0,
        )
        return lease, server

    def answer(self, request: Request) -> Answer:
        assert request.content is not None
        content = request.content.read()
        if request.method == b"GET":
            return (200, self.lease) if self.lease else (404, status(404, "NotFound"))
        body = json.loads(content)
        if request.method == b"POST":
            if self.lease is not None:
                return (409, status(409, "AlreadyExists"))
        elif self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return (409, status(409, "Conflict"))
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return (200, body)

    def run_for(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
            for server in self.servers:
                server.flush()

    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"].get("holderIdentity", ""))

    def renewed(self, holder: str) -> None:
        """Have the lease written by a holder, without anybody else having seen it."""
        assert self.lease is not None
        self.version += 1
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease["spec"]["holderIdentity"] = holder

    def test_slow_answers(self) -> None:
        """A busy server whose answers take nearly half of the time left takes the lead from nobody."""
        first, _ = self.candidate("a")
        first.startService()
        self.run_for(1)
        self.assertTrue(first.leading)
        for _ in range(100):
            for _ in range(25):
                self.clock.advance(0.1)
            for server in self.servers:
                server.flush()
        self.assertEqual(self.lost, [])
        self.assertGreater(self.version, 40)

    def test_setting_the_clock_moves_no_lease(self) -> None:
        """An hour forward or back takes the lead from nobody, and a lease that its holder left is taken in time."""
        (first, _), (second, _) = self.candidate("a"), self.candidate("b")
        first.startService()
        self.run_for(0.1)
        second.startService()
        for step in (3600.0, -3600.0):
            self.wall.offset += step
            for _ in range(20):
                self.run_for(1)
                self.assertEqual((first.leading, second.leading, self.lost), (True, False, []))
        self.servers[0].refusing = True
        self.servers[0].cut()
        self.wall.offset -= 3600.0
        self.run_for(12)
        self.assertEqual((first.leading, second.leading, self.lost), (False, True, ["a"]))

    def test_one_leads_and_the_other_stands_by(self) -> None:
        """The first candidate makes the lease and renews it; the second never leads beside it."""
        first, second = self.candidate("a")[0], self.candidate("b")[0]
        first.startService()
        self.run_for(0.1)
        second.startService()
        self.run_for(60)
        self.assertEqual((first.leading, second.leading, self.holder()), (True, False, "a"))
        self.successResultOf(first.when_leading())
        self.assertNoResult(second.when_leading())
        self.assertEqual(self.lease and self.lease["spec"].get("leaseTransitions", 0), 0)

    def test_a_released_lease_is_taken_over_at_once(self) -> None:
        """A leader that stops lets go; the successor need not wait for the lease to expire."""
        first, second = self.candidate("a")[0], self.candidate("b")[0]
        first.startService()
        self.run_for(0.1)
        second.startService()
        self.run_for(1)
        stopped = first.stopService()
        self.run_for(2.1)
        self.successResultOf(stopped)
        self.assertTrue(second.leading)
        self.assertEqual(self.lost, [])

    def test_a_renewal_under_way_does_not_keep_the_lease(self) -> None:
        """A renewal that reached the server although its leader was stopped meanwhile: the lease is let go all the
        same, unless it is another's by then."""
        for holder, left in (("a", ""), ("b", "b")):
            self.lease = None
            first = self.candidate("a")[0]
            first.startService()
            self.run_for(1)
            self.renewed(holder)
            stopped = first.stopService()
            self.run_for(1)
            self.successResultOf(stopped)
            self.assertEqual(self.holder(), left)

    def test_a_leader_that_is_cut_off_stops_before_another_begins(self) -> None:
        """Cut off, the leader gives up after two thirds of the lease; only later the standby takes over."""
        first, server = self.candidate("a")
        second = self.candidate("b")[0]
        first.startService()
        self.run_for(0.1)
        second.startService()
        self.run_for(1)
        server.cut()
        server.refusing = True
        for _ in range(140):
            self.run_for(0.1)
            self.assertFalse(first.leading and second.leading)
        self.assertEqual((self.lost, first.leading, second.leading), (["a"], False, True))
        self.assertEqual(self.lease and self.lease["spec"]["leaseTransitions"], 1)

    def test_no_interval_outlasts_the_lead(self) -> None:
        """However long the interval is, the lead of a cut-off leader ends at two thirds of the lease."""
        first, server = self.candidate("a", renew_interval=8.9)
        first.startService()
        self.run_for(1)
        self.assertTrue(first.leading)
        server.cut()
        server.refusing = True
        self.run_for(5.3)
        self.assertEqual((first.leading, self.lost), (False, ["a"]))

    def test_a_leader_that_was_replaced_says_so_at_once(self) -> None:
        """When another holds the lease in spite of all, the next renewal tells."""
        first = self.candidate("a")[0]
        first.startService()
        self.run_for(0.2)
        assert self.lease is not None
        self.lease["spec"]["holderIdentity"] = "intruder"
        self.lease["metadata"]["resourceVersion"] = "99"
        self.run_for(3.1)
        self.assertEqual((first.leading, self.lost, first.holder.value), (False, ["a"], "intruder"))

    def test_clocks_are_never_compared(self) -> None:
        """A lease whose times are far in the past is respected until our own clock saw it unchanged for as long."""
        self.version = 1
        self.lease = {
            "metadata": {"name": "liqod", "namespace": "liqo-system", "resourceVersion": "1"},
            "spec": {
                "holderIdentity": "x",
                "leaseDurationSeconds": 9,
                "renewTime": "1999-01-01T00:00:00.000000Z",
            },
        }
        candidate = self.candidate("a")[0]
        candidate.startService()
        self.run_for(8.5)
        self.assertFalse(candidate.leading)
        self.run_for(3)
        self.assertTrue(candidate.leading)

    def test_who_learns_of_the_lead_may_stop_at_once(self) -> None:
        """Stopping from inside the callback of ``when_leading`` ends the candidate and releases the lease."""
        first = self.candidate("a")[0]
        stopped: list[Any] = []
        first.when_leading().addCallback(lambda _: stopped.append(first.stopService()))
        first.startService()
        self.run_for(1)
        self.successResultOf(stopped[0])
        self.assertEqual(self.holder(), "")

    def test_a_failure_that_nobody_foresaw_ends_no_campaign(self) -> None:
        """A candidate that stands by tries again and leads later; a leader leads on while its lease lasts."""
        first = self.candidate("a")[0]
        wall = self.wall

        def broken() -> Any:
            raise ValueError("no time of day")

        first._wall = cast(Any, broken)
        first.startService()
        self.run_for(10)
        self.assertEqual((first.leading, len(self.flushLoggedErrors(ValueError))), (False, 1))
        self.assertIn("no time of day", first.error)
        first._wall = wall
        self.run_for(6)
        self.successResultOf(first.when_leading())
        first._wall = cast(Any, broken)
        self.run_for(2.9)
        self.assertEqual((first.leading, self.lost), (True, []))
        self.run_for(7)
        self.assertEqual((first.leading, self.lost), (False, ["a"]))
        self.flushLoggedErrors(ValueError)
        first._wall = wall
        self.run_for(12)
        self.assertTrue(first.leading)

    def taken(self, name: str, version: int) -> Lease:
        """Return the Lease as a watch shows it when a holder wrote it, and have the server show the same."""
        self.lease = {
            "metadata": {"name": "liqod", "namespace": "liqo-system", "resourceVersion": str(version)},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 9,
                "renewTime": f"2026-01-01T00:00:{version:02}.000000Z",
            },
        }
        return msgspec.convert(self.lease, Lease, strict=False)

    def test_the_moment_at_which_a_lease_ends(self) -> None:
        """A standby leads at the end of the lease as a watch showed its last renewal, not up to a pause later."""
        self.taken("x", 1)
        candidate = self.candidate("a")[0]
        candidate.startService()
        self.run_for(0.5)
        renewal = self.taken("x", 2)
        candidate.note(renewal)
        self.run_for(8.8)
        self.assertFalse(candidate.leading)
        self.run_for(0.4)
        self.assertTrue(candidate.leading)

    def test_a_lease_that_is_let_go_while_it_is_watched(self) -> None:
        """A standby takes it in the moment it sees that; what is older than what it knows says nothing."""
        self.taken("x", 2)
        candidate = self.candidate("a")[0]
        candidate.startService()
        self.run_for(0.1)
        old, released = self.taken("", 1), self.taken("", 3)
        candidate.note(old)
        self.assertEqual(candidate.holder.value, "x")
        candidate.note(released)
        self.run_for(0.1)
        self.assertTrue(candidate.leading)

    def test_what_is_noted_by_who_does_not_stand_by(self) -> None:
        """A leader goes by its own renewals alone, and one that was not started by nothing."""
        first = self.candidate("a")[0]
        first.note(self.taken("x", 1))
        self.assertEqual(first.holder.value, "")
        self.lease = None
        first.startService()
        self.run_for(0.5)
        first.note(self.taken("intruder", 99))
        self.assertEqual((first.leading, first.holder.value), (True, "a"))
