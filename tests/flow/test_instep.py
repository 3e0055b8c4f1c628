"""Tests of liqod.flow.aligned_timer."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.aligned_timer import PARTS, in_step

NOW = st.floats(0, 4e9)
EVERY = st.floats(0.5, 3600)


class InStepTests(SynchronousTestCase):
    """The moments at which timers of one period fall due."""

    def test_what_began_at_different_times_falls_due_together(self) -> None:
        """Sixty-four timers of ten seconds have four moments among them, and keep them."""
        first = {round(now + in_step(now, 10.0), 3) for now in (1000.0 + n / 6.4 for n in range(64))}
        self.assertEqual(first, {1010.0, 1012.5, 1015.0, 1017.5})
        self.assertEqual({round(due % 10.0, 3) for due in first}, {0.0, 2.5, 5.0, 7.5})
        self.assertEqual({in_step(due, 10.0) for due in first}, {10.0})

    def test_a_timer_that_fires_late_does_not_drift(self) -> None:
        """However late each of them is, a thousand rounds end on the grid, with none left out."""
        now = due = 2000.0
        for _ in range(1000):
            now = due + 0.4
            due = now + in_step(now, 10.0)
        self.assertAlmostEqual(due, 12000.0, places=3)

    @given(NOW, EVERY)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_wait_is_at_most_a_quarter_shorter_and_never_longer(self, now: float, every: float) -> None:
        """One that counts on the period counts on no more than it gets."""
        wait = in_step(now, every)
        self.assertTrue(every * (1 - 1 / PARTS) - 2e-3 <= wait <= every + 2e-3, wait)

    @given(NOW, st.sampled_from([1.0, 8.0, 10.0, 60.0]))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_shift_keeps_two_grids_apart(self, now: float, every: float) -> None:
        """What is shifted by half a step falls due half a step from what is not."""
        step = every / PARTS
        due = now + in_step(now, every, step / 2)
        self.assertAlmostEqual((due % step) / step, 0.5, places=4)
