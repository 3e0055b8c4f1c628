"""Tests of liqod.flow.backoff."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.backoff import Backoff


class BackoffTests(SynchronousTestCase):
    """The delays that attempts earn."""

    def test_doubles_until_the_cap(self) -> None:
        """Without jitter the delay doubles with each attempt and stays at the cap."""
        backoff = Backoff(initial=0.5, factor=2.0, cap=3.0, jitter=0.0)
        self.assertEqual([backoff.delay(n) for n in range(5)], [0.5, 1.0, 2.0, 3.0, 3.0])

    def test_an_outage_of_any_length_is_at_the_cap(self) -> None:
        """The attempt may be any number: no overflow."""
        self.assertEqual(Backoff(jitter=0.0).delay(10**9), 60.0)

    @given(st.integers(0, 200), st.integers())
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_jitter_stays_within_its_share(self, attempt: int, seed: int) -> None:
        """The spread is at most the jitter's share of the delay on either side, and ``longest`` is never passed."""
        plain = Backoff(jitter=0.0).delay(attempt)
        backoff = Backoff(jitter=0.2, random=Random(seed).random)
        delay = backoff.delay(attempt)
        self.assertTrue(plain * 0.8 - 1e-9 <= delay <= plain * 1.2 + 1e-9)
        self.assertLessEqual(delay, backoff.longest)

    def test_no_two_wait_equally_long(self) -> None:
        """A thousand that fail together are not tried again together, though nobody gave them any randomness."""
        backoff = Backoff(initial=5.0)
        delays = sorted(backoff.delay(0) for _ in range(1000))
        self.assertGreater(delays[-1] - delays[0], 1.0)
        self.assertGreater(len(set(delays)), 990)
