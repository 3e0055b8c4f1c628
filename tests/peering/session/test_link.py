"""When a link dials: its machine under a clock."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.peering.session.link import SPACING, LinkCore, make_link


class LinkTests(SynchronousTestCase):
    """Traces of attempts."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.trace: list[str] = []
        core = LinkCore(self.clock, lambda: self.trace.append("attempt"), lambda: self.trace.append("abandon"))
        self.link = make_link(core)

    def wake(self) -> None:
        self.link.wake()
        self.clock.advance(0)

    def test_it_dials_only_when_woken(self) -> None:
        """Nothing happens by itself; the first hint dials at once."""
        self.clock.advance(1000)
        self.assertEqual(self.trace, [])
        self.wake()
        self.assertEqual(self.trace, ["attempt"])

    def test_a_failed_attempt_is_repeated_after_its_delay(self) -> None:
        """The delay that comes with the failure is kept."""
        self.wake()
        self.link.retry(5.0)
        self.clock.advance(4.9)
        self.assertEqual(len(self.trace), 1)
        self.clock.advance(0.2)
        self.assertEqual(len(self.trace), 2)

    def test_a_hint_cuts_the_wait_short(self) -> None:
        """A long back-off ends with the first hint, and its own timer with it."""
        self.wake()
        self.link.retry(300.0)
        self.clock.advance(10)
        self.wake()
        self.assertEqual(len(self.trace), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hints_do_not_make_a_storm(self) -> None:
        """However many hints come, attempts begin at most every 200 ms."""
        for _ in range(100):
            self.link.wake()
            self.clock.advance(0.01)
            if self.trace and len(self.trace) < 50:
                self.link.retry(0)
        self.assertLessEqual(len(self.trace), 1 + 1.0 / SPACING)

    def test_a_hint_during_an_attempt_is_not_lost(self) -> None:
        """If the attempt fails after the hint, the next follows at once instead of after the back-off."""
        self.wake()
        self.clock.advance(1)
        self.link.wake()
        self.link.retry(60.0)
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertEqual(self.trace, ["attempt", "attempt"])

    def test_a_resting_link_waits_for_a_hint(self) -> None:
        """Where dialling makes no sense nothing is dialled until something changed."""
        self.wake()
        self.link.rest()
        self.clock.advance(1e6)
        self.assertEqual(len(self.trace), 1)
        self.wake()
        self.assertEqual(len(self.trace), 2)

    def test_a_session_ends_all_dialling(self) -> None:
        """Once there is a session, hints and old timers do nothing; its end starts over."""
        self.wake()
        self.link.retry(3.0)
        self.link.connected()
        self.link.wake()
        self.clock.advance(100)
        self.assertEqual(len(self.trace), 1)
        self.link.retry(1.0)
        self.clock.advance(1.0)
        self.assertEqual(len(self.trace), 2)

    def test_a_stopped_link_stays_stopped(self) -> None:
        """Stopping abandons a running attempt, cancels timers, and nothing wakes it again."""
        self.wake()
        self.link.stop()
        self.assertEqual(self.trace, ["attempt", "abandon"])
        self.wake()
        self.link.retry(1.0)
        self.link.rest()
        self.link.connected()
        self.clock.advance(100)
        self.assertEqual(len(self.trace), 2)

    def test_every_input_is_answered_in_every_state(self) -> None:
        """No sequence of what may happen is illegal."""
        inputs = ["wake", "connected", "retry", "rest"]
        for one in inputs:
            for two in inputs:
                for three in inputs:
                    self.setUp()
                    for name in (one, two, three):
                        if name == "retry":
                            self.link.retry(1.0)
                        else:
                            getattr(self.link, name)()
                    self.clock.pump([0.3] * 10)
                    self.link.stop()
                    self.assertEqual(self.clock.getDelayedCalls(), [])
