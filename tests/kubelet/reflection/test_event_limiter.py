"""Which events of a lender are reported at once, which wait, and which are dropped."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.event_limiter import BURST, PER_SECOND, RESERVE, WAITING, EventLimiter, Urgency

ORDINARY, WARNING, VERDICT = Urgency.ORDINARY, Urgency.WARNING, Urgency.VERDICT


class EventLimiterTests(SynchronousTestCase):
    """Numbers stand for events."""

    def setUp(self) -> None:
        self.turns: EventLimiter[int] = EventLimiter(0.0)

    def full(self) -> None:
        """Tell warnings until there is no room."""
        for number in range(int(BURST)):
            self.assertTrue(self.turns.add(-number, -number, WARNING, 0.0))

    def later(self, seconds: int) -> list[int]:
        """Return what is reported in so many seconds, one look a second."""
        return [due for now in range(1, seconds + 1) if (due := self.turns.due(float(now))) is not None]

    def test_ordinary_ones_leave_room(self) -> None:
        """Ordinary events use the burst but for what is kept for warnings, and are dropped then."""
        reported = [self.turns.add(number, number, ORDINARY, 0.0) for number in range(30)]
        self.assertEqual(sum(reported), BURST - RESERVE)
        self.assertEqual(self.turns.dropped, 30 - sum(reported))
        self.assertIsNone(self.turns.wait(0.0))
        self.assertTrue(self.turns.add(100, 100, WARNING, 0.0))

    def test_warnings_wait(self) -> None:
        """Warnings without room are reported later, in their order, one a second."""
        self.full()
        for number in (1, 2, 3):
            self.assertFalse(self.turns.add(number, number, WARNING, 0.0))
        self.assertEqual(self.turns.wait(0.0), 1 / PER_SECOND)
        self.assertEqual(self.later(10), [1, 2, 3])
        self.assertEqual((self.turns.dropped, self.turns.wait(10.0)), (0, None))

    def test_verdicts_first(self) -> None:
        """What the lender's liqod says is reported before other warnings that came earlier."""
        self.full()
        for number, urgency in ((1, WARNING), (2, VERDICT), (3, WARNING), (4, VERDICT)):
            self.turns.add(number, number, urgency, 0.0)
        self.assertEqual(self.later(10), [2, 4, 1, 3])

    def test_none_overtakes(self) -> None:
        """While some wait, a new one of no greater urgency is not reported before them."""
        self.full()
        self.turns.add(1, 1, WARNING, 0.0)
        self.assertFalse(self.turns.add(2, 2, WARNING, 1.0))
        self.assertFalse(self.turns.add(3, 3, ORDINARY, 30.0))
        self.assertEqual([self.turns.due(31.0), self.turns.due(31.0), self.turns.due(31.0)], [1, 2, None])

    def test_the_latest_of_a_key(self) -> None:
        """Of an event that is counted up while it waits, the latest form is reported, once."""
        self.full()
        self.turns.add("x", 1, WARNING, 0.0)
        self.turns.add("x", 2, WARNING, 0.5)
        self.assertEqual(self.later(10), [2])

    def test_bounded(self) -> None:
        """Of more warnings than may wait, the earliest make room."""
        self.full()
        for number in range(WAITING + 3):
            self.turns.add(number, number, WARNING, 0.0)
        self.assertEqual((len(self.turns), self.turns.dropped), (WAITING, 3))
        self.assertEqual(self.turns.due(1.0), 3)

    @given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(Urgency), st.integers(0, 3)), max_size=50))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_rate(self, events: list[tuple[int, Urgency, int]]) -> None:
        """Whatever comes: the rate holds, and each is reported, replaced by a later one, or dropped for its kind."""
        turns: EventLimiter[int] = EventLimiter(0.0)
        now, reported, taken = 0.0, 0, 0
        for key, urgency, pause in events * 2:
            now += pause / 4
            reported += turns.due(now) is not None
            before = len(turns)
            done = turns.add((urgency, key), key, urgency, now)
            reported += done
            taken += done or len(turns) > before
            self.assertLessEqual(reported, BURST + now * PER_SECOND + 1)
            self.assertEqual(turns.wait(now) is None, len(turns) == 0)
        while len(turns):
            now += max(turns.wait(now) or 0.0, 1e-3)
            reported += turns.due(now) is not None
        self.assertEqual(reported, taken)
