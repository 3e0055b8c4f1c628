"""How often the status of a pod that changes all the time is written home."""

from __future__ import annotations

from itertools import pairwise
from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from liqod.kubelet.pods.status_pace import FREE, LONGEST, LONGEST_URGENT, PER_MINUTE, Pace, StatusBudget, is_urgent


def flood(seconds: float, *, urgent: bool) -> list[float]:
    """Return when a status that changes 25 times a second for so long is written."""
    pace, written = Pace(), []
    for step in range(round(seconds * 25)):
        now = 1000.0 + step / 25
        if not pace.wait(now, urgent=urgent):
            pace = pace.written(now)
            written.append(now)
    return written


class StatusPaceTests(TestCase):
    """The writes of one status."""

    def test_a_flood_becomes_a_write_in_half_a_minute(self) -> None:
        """A lender that changes a message 25 times a second has it written a few times, then twice a minute."""
        written = flood(600.0, urgent=False)
        self.assertLess(len(written), 40)
        self.assertGreaterEqual(written[-1] - written[-2], LONGEST)

    def test_readiness_comes_first(self) -> None:
        """Phase and readiness are never later than two seconds, and bounded as well."""
        written = flood(600.0, urgent=True)
        gaps = [later - earlier for earlier, later in pairwise(written)]
        self.assertLessEqual(max(gaps), LONGEST_URGENT + 0.05)
        self.assertLess(len(written), 400)

    def test_an_ordinary_life_is_not_delayed(self) -> None:
        """The changes from creation to ready, and after some rest the next ones, are due at once."""
        pace, now = Pace(), 0.0
        for _ in range(5):
            for _ in range(round(FREE)):
                self.assertEqual(pace.wait(now, urgent=False), 0.0)
                pace = pace.written(now)
                now += 0.1
            now += 120.0

    @given(st.lists(st.floats(0.0, 100.0), max_size=60))
    def test_nothing_waits_longer_than_the_limits(self, gaps: list[float]) -> None:
        """However the changes come, none waits longer than the maximum, and an urgent one never longer than another."""
        pace, now = Pace(), 0.0
        for gap in gaps:
            now += gap
            wait, urgent = pace.wait(now, urgent=False), pace.wait(now, urgent=True)
            self.assertTrue(0.0 <= urgent <= wait <= LONGEST)
            self.assertLessEqual(urgent, LONGEST_URGENT)
            if not wait:
                pace = pace.written(now)

    def test_a_budget_for_all_pods(self) -> None:
        """However many pods flood, a lender has so many bytes a minute; phase and readiness are written before."""
        budget, spent = StatusBudget(), 0
        for step in range(6000):
            now = 1000.0 + step / 10
            for _ in range(100):
                if not budget.wait(16 << 10, now, urgent=False):
                    budget.spend(16 << 10)
                    spent += 16 << 10
        self.assertLessEqual(spent, 11 * PER_MINUTE)
        self.assertGreater(spent, 9 * PER_MINUTE)
        self.assertGreater(budget.wait(16 << 10, now, urgent=False), 0.0)
        self.assertEqual(budget.wait(16 << 10, now, urgent=True), 0.0)

    def test_what_is_urgent(self) -> None:
        """A change of phase or readiness is urgent, one of a message is not."""
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for old, new, urgent in (
            (ready, {**ready, "message": "x"}, False),
            (ready, {**ready, "phase": "Failed"}, True),
            (ready, {"phase": "Running"}, True),
            ({}, {"phase": "Pending"}, True),
        ):
            self.assertEqual(is_urgent(old, new), urgent)
