"""Tests of liqod.flow.clocks."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.internet import selectreactor
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.base import ReactorBase
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.clocks import SimulatedWallClock, boot_seconds, use_monotonic_time


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


class Stopped(selectreactor.SelectReactor):
    """A reactor that nobody runs and that needs no wakers."""

    def installWaker(self) -> None:
        """Need none."""


class MonotonicTimeTests(SynchronousTestCase):
    """The reactor's time, on a host whose clock is set."""

    def reactor(self) -> ReactorBase:
        return Stopped()

    def test_timers_do_not_move_when_the_clock_is_set(self) -> None:
        """With time that nobody sets, what was to be called in 10 s is due in 10 s, before the change and after."""
        reactor = self.reactor()
        wall, steady = [1_700_000_000.0], [500.0]
        reactor.seconds = lambda: wall[0]
        calls: list[str] = []
        reactor.callLater(10.0, calls.append, "early")
        use_monotonic_time(reactor, lambda: steady[0])
        later = reactor.callLater(20.0, calls.append, "later")
        for step in (-3600.0, 7200.0):
            wall[0] += step
            self.assertEqual(reactor.timeout(), 10.0)
        steady[0] += 10.5
        reactor.runUntilCurrent()
        self.assertEqual(calls, ["early"])
        self.assertEqual(reactor.timeout(), 9.5)
        later.reset(1.0)
        steady[0] += 1.1
        reactor.runUntilCurrent()
        self.assertEqual(calls, ["early", "later"])

    def test_time_since_boot(self) -> None:
        """It goes on, and is not the date."""
        one = boot_seconds()
        self.assertGreaterEqual(boot_seconds(), one)
        self.assertLess(one, 1_000_000_000.0)

    def test_the_asyncio_reactor_reads_its_own_clock(self) -> None:
        """The reactor that the daemon runs on schedules by ``self.seconds`` like every other one."""
        self.assertNotIn("seconds", vars(AsyncioSelectorReactor))
        self.assertIs(AsyncioSelectorReactor.timeout, ReactorBase.timeout)
