"""Tests of liqod.flow.clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from twisted.internet import selectreactor
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.base import ReactorBase
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.clocks import LearnedDates, steady_clock, use_steady_time
from tests.clocks import HostClock, SimulatedWallClock


class WallClockTests(SynchronousTestCase):
    """Dates."""

    def test_simulated_time(self) -> None:
        """A wall clock on simulated time runs with it, and is set without moving it."""
        clock = Clock()
        wall = SimulatedWallClock(clock, 1_000_000_000.0)
        moment = wall()
        self.assertEqual(moment, datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC))
        clock.advance(60)
        self.assertEqual((wall() - moment).total_seconds(), 60.0)
        wall.offset += 3600
        self.assertEqual((clock.seconds(), (wall() - moment).total_seconds()), (60.0, 3660.0))


class LearnedDateTests(SynchronousTestCase):
    """Dates of others, on a host whose clock is set."""

    def test_once(self) -> None:
        """A date is converted when it is first seen with its key, and again when it is another one or was dropped."""
        clock = HostClock(1_000_000_000.0)
        dates: LearnedDates[str] = LearnedDates(clock)
        first, later = "2001-09-09T01:47:40Z", "2001-09-09T01:48:40Z"
        self.assertEqual(dates.at("a", first), 60.0)
        clock.set_date(3600.0)
        clock.advance(10.0)
        self.assertEqual((dates.at("a", first), dates.at("b", first)), (60.0, -3540.0))
        self.assertEqual(dates.at("a", later), -3480.0)
        clock.set_date(-3600.0)
        dates.retain({"b"})
        self.assertEqual((dates.at("a", first), dates.at("b", first)), (60.0, -3540.0))
        dates.forget("b")
        self.assertEqual(dates.at("b", first), 60.0)
        for none in ("", None, "soon", "2001-09-09T01:47:40"):
            self.assertIsNone(dates.at("b", none))


class Stopped(selectreactor.SelectReactor):
    """A reactor that nobody runs and that needs no wakers."""

    def installWaker(self) -> None:
        """Need none."""


class MonotonicTimeTests(SynchronousTestCase):
    """The reactor's time, on a host whose clock is set."""

    def setUp(self) -> None:
        self.date, self.steady = 1_700_000_000.0, 1_700_000_500.0
        self.patch(Stopped, "seconds", lambda _: self.date)
        self.reactor = Stopped()

    def test_timers_do_not_move_when_the_clock_is_set(self) -> None:
        """With time that nobody sets, what was to be called in 10 s is due in 10 s, before the change and after."""
        calls: list[str] = []
        self.reactor.callLater(10.0, calls.append, "early")
        use_steady_time(self.reactor, lambda: self.steady)
        later = self.reactor.callLater(20.0, calls.append, "later")
        for step in (-3600.0, 7200.0):
            self.date += step
            self.assertEqual(self.reactor.timeout(), 10.0)
        self.steady += 10.5
        self.reactor.runUntilCurrent()
        self.assertEqual(calls, ["early"])
        self.assertEqual(self.reactor.timeout(), 9.5)
        later.reset(1.0)
        self.steady += 1.1
        self.reactor.runUntilCurrent()
        self.assertEqual(calls, ["early", "later"])

    def test_without_it_timers_move(self) -> None:
        """This is what Twisted does by itself: an hour back makes what is due in 10 s wait an hour longer."""
        self.reactor.callLater(10.0, lambda: None)
        self.date -= 3600.0
        self.assertEqual(self.reactor.timeout(), 3610.0)

    def test_once(self) -> None:
        """A second call changes nothing, and simulated time is left as it is."""
        use_steady_time(self.reactor, lambda: self.steady)
        use_steady_time(self.reactor, lambda: 0.0)
        self.assertEqual(self.reactor.seconds(), self.steady)
        clock = Clock()
        use_steady_time(clock, lambda: self.steady)
        self.assertEqual(clock.seconds(), 0.0)

    def test_the_hosts_clock(self) -> None:
        """It begins with the date, and goes on."""
        clock = steady_clock()
        self.assertLess(abs(clock() - time.time()), 5.0)
        one = clock()
        self.assertGreaterEqual(clock(), one)

    def test_the_asyncio_reactor_reads_its_own_clock(self) -> None:
        """The reactor that the daemon runs on schedules by ``self.seconds`` like every other one."""
        self.assertNotIn("seconds", vars(AsyncioSelectorReactor))
        self.assertIs(AsyncioSelectorReactor.timeout, ReactorBase.timeout)
