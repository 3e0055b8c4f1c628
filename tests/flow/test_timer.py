"""Tests of liqod.flow.timer."""

from __future__ import annotations

import gc
from collections.abc import Callable
from weakref import ref

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.timer import Timer


class TimerTests(SynchronousTestCase):
    """One call at most is pending, and the last word about it holds."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.timer = Timer(self.clock)
        self.calls: list[tuple[float, str]] = []

    def note(self, what: str = "") -> None:
        self.calls.append((self.clock.seconds(), what))

    def test_calls_once(self) -> None:
        """The function is called once, with its arguments, when the seconds are over."""
        self.assertFalse(self.timer.running)
        self.timer.start(2.0, self.note, "a")
        self.assertTrue(self.timer.running)
        self.clock.pump([1.5, 0.5, 10.0])
        self.assertEqual(self.calls, [(2.0, "a")])
        self.assertFalse(self.timer.running)

    def test_started_again(self) -> None:
        """A second start replaces the first one, be it earlier or later."""
        for seconds in (1.0, 3.0):
            self.timer.start(2.0, self.note, "first")
            self.timer.start(seconds, self.note, "second")
            self.assertEqual(len(self.clock.getDelayedCalls()), 1)
            self.clock.pump([1.0] * 4)
        self.assertEqual(self.calls, [(1.0, "second"), (7.0, "second")])

    def test_started_unless_running(self) -> None:
        """A pending call stays as it is; otherwise this is a start."""
        self.timer.start_unless_running(2.0, self.note, "first")
        self.timer.start_unless_running(1.0, self.note, "second")
        self.clock.pump([1.0, 1.0])
        self.timer.start_unless_running(1.0, self.note, "third")
        self.clock.advance(1.0)
        self.assertEqual(self.calls, [(2.0, "first"), (3.0, "third")])

    def test_started_if_earlier(self) -> None:
        """Of several times the earliest counts; of equal ones the first that was given."""
        self.timer.start_if_earlier(3.0, self.note, "first")
        self.clock.advance(1.0)
        self.timer.start_if_earlier(2.0, self.note, "equal")
        self.timer.start_if_earlier(4.0, self.note, "later")
        self.clock.advance(2.0)
        self.timer.start_if_earlier(3.0, self.note, "idle")
        self.timer.start_if_earlier(1.0, self.note, "earlier")
        self.clock.pump([1.0] * 4)
        self.assertEqual(self.calls, [(3.0, "first"), (4.0, "earlier")])

    def test_cancelled(self) -> None:
        """A cancelled call is never made, and an idle timer may be cancelled, too."""
        self.timer.cancel()
        self.timer.start(1.0, self.note)
        self.timer.cancel()
        self.timer.cancel()
        self.assertEqual((self.timer.running, self.clock.getDelayedCalls()), (False, []))
        self.timer.start(1.0, self.note, "again")
        self.clock.advance(1.0)
        self.timer.cancel()
        self.assertEqual(self.calls, [(1.0, "again")])

    def test_the_function_may_start_and_cancel(self) -> None:
        """The timer is idle when the function is called: each way to start it works from there, and cancelling does."""

        def work(start: Callable[..., None]) -> None:
            self.note("running" if self.timer.running else "idle")
            self.timer.cancel()
            if len(self.calls) % 2:
                start(1.0, work, start)

        for start in (self.timer.start, self.timer.start_unless_running, self.timer.start_if_earlier):
            start(1.0, work, start)
            self.clock.pump([1.0] * 3)
        self.assertEqual(self.calls, [(when, "idle") for when in (1.0, 2.0, 4.0, 5.0, 7.0, 8.0)])

    def test_a_function_that_raises(self) -> None:
        """The timer is idle afterwards, and can be started again."""
        self.timer.start(1.0, lambda: 1 // 0)
        self.assertRaises(ZeroDivisionError, self.clock.advance, 1.0)
        self.assertFalse(self.timer.running)
        self.timer.start(1.0, self.note)
        self.clock.advance(1.0)
        self.assertEqual(self.calls, [(2.0, "")])

    def test_an_idle_timer_makes_no_cycle(self) -> None:
        """An object with a timer that calls its own method is freed with its last reference, without the collector."""

        class Owner:
            def __init__(self, clock: Clock) -> None:
                self.timer = Timer(clock)
                self.timer.start(1.0, self.work)

            def work(self) -> None:
                pass

        gc.disable()
        self.addCleanup(gc.enable)
        fired, cancelled = Owner(self.clock), Owner(self.clock)
        cancelled.timer.cancel()
        self.clock.advance(1.0)
        gone = ref(fired), ref(cancelled)
        del fired, cancelled
        self.assertEqual([one() for one in gone], [None, None])

    def test_pending_calls_say_whose_they_are(self) -> None:
        """A list of the reactor's pending calls shows the function, not the timer alone."""
        self.timer.start(1.0, self.note)
        self.assertIn("TimerTests.note", str(self.clock.getDelayedCalls()[0]))
