"""Tests of liqod.kube.connection.latency_estimator."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.connection.latency_estimator import KINDS, NOTICEABLE, TIMES, WINDOW, Load

MANY = 10
DURATIONS = st.floats(0.0001, 30.0)


def after(*durations: float, kind: str = "create pods") -> Load:
    """Return what is thought of a server whose answers of one kind took so long."""
    load = Load()
    for number, seconds in enumerate(durations):
        load.took(kind, seconds, float(number))
    return load


class LoadTests(SynchronousTestCase):
    """A server is busy whose answers take much longer than they can."""

    def test_what_is_busy(self) -> None:
        """Many answers that take much longer than the best one mean a busy server; nothing else does."""
        for durations, busy in (
            ((), False),
            ((5.0,), False),
            ((0.1,) * MANY, False),
            ((0.005, *(0.3,) * MANY), True),
            ((0.005, *(0.3,) * MANY, *(0.005,) * MANY), False),
            # A distant server varies by less than a few times, a near one by less than anybody notices.
            ((0.2, *(0.5,) * MANY), False),
            ((0.002, *(0.03,) * MANY), False),
            # One that takes long among many that do not.
            ((0.005, *(0.3, 0.005, 0.005) * MANY), False),
        ):
            self.assertIs(after(*durations).busy, busy, durations)

    def test_kinds_are_measured_by_themselves(self) -> None:
        """A list that takes long by its nature does not make a server busy."""
        load = after(0.005, 0.005)
        for number in range(MANY):
            load.took("list pods", 2.0, float(number))
        self.assertFalse(load.busy)

    def test_the_best_is_forgotten(self) -> None:
        """A way that has become longer for good is no busy server for ever."""
        load, now = after(0.005), 0.0
        for _ in range(int(2 * WINDOW) + MANY):
            now += 1.0
            load.took("create pods", 0.4, now)
            if MANY < now < WINDOW:
                self.assertTrue(load.busy)
        for _ in range(MANY):
            now += 1.0
            load.took("create pods", 0.4, now)
        self.assertFalse(load.busy)

    def test_after_a_long_pause_the_best_is_as_it_is_then(self) -> None:
        """What was measured an hour ago says nothing."""
        load = after(0.005)
        for number in range(MANY):
            load.took("create pods", 0.4, 3600.0 + number)
        self.assertFalse(load.busy)

    def test_it_is_bounded(self) -> None:
        """Of kinds without number only the last ones are remembered."""
        load = Load()
        for number in range(3 * KINDS):
            load.took(number, 0.1, float(number))
        self.assertEqual(len(load), KINDS)

    @settings(deadline=None)
    @given(st.floats(0.0001, 30.0), st.lists(st.floats(1.0, TIMES), max_size=60))
    def test_a_steady_server_is_never_busy(self, best: float, times: list[float]) -> None:
        """However far away it is: as long as answers stay within a few times of the best, it is not busy."""
        self.assertFalse(after(best, *(best * one for one in times)).busy)

    @settings(deadline=None)
    @given(st.floats(0.0001, 5.0), st.lists(DURATIONS, max_size=60))
    def test_whatever_was_before(self, best: float, before: list[float]) -> None:
        """After enough answers that are slow a server counts as busy, and after enough that are at the best it does
        not.
        """
        load = after(best, *before)
        least = min([best, *before])
        for number in range(MANY):
            load.took("create pods", TIMES * least + 2 * NOTICEABLE, 100.0 + number)
        self.assertTrue(load.busy)
        for number in range(MANY):
            load.took("create pods", least, 120.0 + number)
        self.assertFalse(load.busy)
