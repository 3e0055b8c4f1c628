"""Tests of liqod.kube.connection.went_back."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.connection.went_back import AGAIN, SETTLED, WentBack


class WentBackTests(SynchronousTestCase):
    """When all informers list again."""

    def setUp(self) -> None:
        self.counted = WentBack(lambda: 0.5)
        self.notified: list[tuple[int, float]] = []
        self.counted.subscribe(lambda count: self.notified.append((count, self.counted.list_at)))

    def test_at_once_and_then_rarely(self) -> None:
        """The first lower versions lead to a list at once, the next ones after a growing time, up to a bound."""
        now, waits = 0.0, []
        for count in range(1, 12):
            self.assertTrue(self.counted.observed(count, now))
            waits.append(self.counted.list_at - now)
            now = self.counted.list_at
        self.assertEqual(waits[:5], [0.0, 5.0, 10.0, 20.0, 40.0])
        self.assertEqual(waits[-1], AGAIN.cap)

    def test_all_are_counted(self) -> None:
        """Lower versions before the next list count too, for they are evidence, and do not put that list off."""
        self.assertEqual([self.counted.observed(count, count) for count in (1, 2, 3)], [True, True, False])
        self.assertEqual((self.counted.value, self.notified), (3, [(1, 1.0), (2, 7.0), (3, 7.0)]))

    def test_settled(self) -> None:
        """Versions that did not go back for long lead to a list at once again; before that they do not."""
        for quiet, waited in ((SETTLED - 1, 5.0), (SETTLED, 0.0)):
            counted = WentBack(lambda: 0.5)
            counted.observed(1, 0.0)
            counted.observed(2, quiet)
            self.assertEqual(counted.list_at - quiet, waited)

    def test_clients_differ(self) -> None:
        """The times of different clients are spread."""
        times = set()
        for fraction in (0.0, 0.5, 0.9):
            counted = WentBack(lambda fraction=fraction: fraction)  # type: ignore[misc]
            counted.observed(1, 0.0)
            counted.observed(2, 0.0)
            times.add(round(counted.list_at, 3))
        self.assertEqual(times, {4.0, 5.0, 5.8})
