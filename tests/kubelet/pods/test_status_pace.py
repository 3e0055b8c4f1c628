"""How often the status of a pod that changes all the time is written home."""

from __future__ import annotations

from itertools import pairwise
from unittest import TestCase

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from liqod.kubelet.common.views import HomePod
from liqod.kubelet.pods.status_pace import (
    FREE,
    LONGEST,
    LONGEST_URGENT,
    PER_MINUTE,
    Pace,
    StatusBudget,
    is_urgent,
    size_of,
)
from liqod.model.objects.meta import ObjectMeta


def flood(seconds: float, *, urgent: bool) -> list[float]:
    """Return when a status that changes 25 times a second for so long is written."""
    pace, written = Pace(), []
    for step in range(round(seconds * 25)):
        now = 1000.0 + step / 25
        if not pace.wait(now, urgent=urgent):
            pace = pace.written(now, urgent=urgent)
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
        """Phase and readiness are never later than two seconds, however often anything else changes."""
        pace, now = Pace(), 1000.0
        for _ in range(200):
            now += pace.wait(now, urgent=False)
            pace = pace.written(now, urgent=False)
            self.assertLessEqual(pace.wait(now, urgent=True), LONGEST_URGENT)

    def test_readiness_that_goes_on_changing(self) -> None:
        """It is written ever later as well, the first times at once; when it is quiet again, as soon as before."""
        written = flood(600.0, urgent=True)
        gaps = [later - earlier for earlier, later in pairwise(written)]
        self.assertLess(len(written), 40)
        self.assertLess(max(gaps[:9]), 0.1)
        self.assertGreaterEqual(gaps[-1], LONGEST)
        pace, now = Pace(), 1000.0
        for _ in range(100):
            now += pace.wait(now, urgent=True) + 0.1
            pace = pace.written(now, urgent=True)
        self.assertGreater(pace.wait(now, urgent=True), LONGEST - 1)
        self.assertEqual(pace.wait(now + 180.0, urgent=True), 0.0)

    def test_a_pod_that_flaps_slowly(self) -> None:
        """Readiness that changes every ten seconds, as probes do by default, is never delayed."""
        pace = Pace()
        for step in range(1000):
            self.assertEqual(pace.wait(step * 10.0, urgent=True), 0.0)
            pace = pace.written(step * 10.0, urgent=True)

    def test_the_whole_pod_is_charged(self) -> None:
        """etcd keeps all of a pod for each status that is written."""
        spec = msgspec.json.encode({"containers": [{"name": "main", "args": ["x" * 10_000]}]})
        metadata = ObjectMeta(name="web", annotations={"note": "y" * 5000})
        pod = HomePod(metadata=metadata, spec=msgspec.Raw(spec))
        self.assertGreater(size_of(pod, {"message": "z" * 1000}), 16_000)
        self.assertLess(size_of(pod, {}), 20_000)

    def test_an_ordinary_life_is_not_delayed(self) -> None:
        """The changes from creation to ready, and after some rest the next ones, are due at once."""
        pace, now = Pace(), 0.0
        for _ in range(5):
            for step in range(round(FREE)):
                self.assertEqual(pace.wait(now, urgent=step % 2 == 0), 0.0)
                pace = pace.written(now, urgent=step % 2 == 0)
                now += 0.1
            now += 120.0

    @given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans()), max_size=60))
    def test_nothing_waits_longer_than_the_limits(self, changes: list[tuple[float, bool]]) -> None:
        """However the changes come, none waits longer than the maximum, and an urgent one never longer than another."""
        pace, now = Pace(), 0.0
        for gap, flips in changes:
            now += gap
            wait, urgent = pace.wait(now, urgent=False), pace.wait(now, urgent=True)
            self.assertTrue(0.0 <= urgent <= wait + 1e-6 <= LONGEST + 1e-5)
            if not (urgent if flips else wait):
                pace = pace.written(now, urgent=flips)

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
