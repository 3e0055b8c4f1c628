"""What counts as a regression of a benchmark, and what is noise or a slower machine."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.compare import Verdict, compare, samples

STEADY = (0.97, 1.0, 1.0, 1.02, 1.03)
NOISY = (0.7, 0.85, 1.0, 1.2, 1.5)


def runs(*, machine: float = 1.0, factor: float = 1.0, noise: tuple[float, ...] = STEADY) -> list[dict[str, Any]]:
    """Return five repetitions on a machine that takes so many times as long; offloading takes ``factor`` times more."""
    found: list[dict[str, Any]] = []
    for number, one in enumerate(noise):
        # The hour differs from repetition to repetition, and with it both rows.
        hour = machine * (1 + number / 5)
        local = {"seconds": 10 * hour, "CPU ms/pod": 20 * hour, "requests/pod lender": 0.0}
        there = {"seconds": 30 * hour * one * factor, "CPU ms/pod": 60 * hour * one, "requests/pod lender": 6.0}
        found += [{"qps": 500, "pods": 1000, "where": "local", **local}]
        found += [{"qps": 500, "pods": 1000, "where": "offloaded", **there}]
    return found


class CompareTests(SynchronousTestCase):
    """Two measurements, each of five repetitions."""

    def verdicts(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Verdict]:
        found = compare(samples(before), samples(after), 0.10)
        return {one.name.removeprefix("500 1000 offloaded "): one.verdict for one in found}

    def test_a_slower_machine_is_no_regression(self) -> None:
        """What takes twice as long for the local pods too is the machine."""
        self.assertEqual(set(self.verdicts(runs(), runs(machine=2.0)).values()), {Verdict.SAME})

    def test_a_regression_of_a_fifth(self) -> None:
        """It is seen at the figure that it is of, and its reverse as well; half of a tenth is none."""
        found = self.verdicts(runs(), runs(factor=1.2))
        self.assertEqual([found["seconds"], found["CPU ms/pod"]], [Verdict.WORSE, Verdict.SAME])
        self.assertEqual(self.verdicts(runs(factor=1.2), runs())["seconds"], Verdict.BETTER)
        self.assertEqual(self.verdicts(runs(), runs(factor=1.05))["seconds"], Verdict.SAME)

    def test_noise_is_no_regression(self) -> None:
        """Medians that differ by less than the repetitions do among themselves."""
        self.assertEqual(self.verdicts(runs(noise=NOISY), runs(factor=1.15, noise=NOISY))["seconds"], Verdict.SAME)
        self.assertEqual(self.verdicts(runs(noise=NOISY), runs(factor=2.0, noise=NOISY))["seconds"], Verdict.WORSE)

    def test_too_few(self) -> None:
        """Of two repetitions nobody knows the noise."""
        self.assertEqual(set(self.verdicts(runs()[:4], runs(factor=3.0)).values()), {Verdict.UNKNOWN})

    def test_one_request_more(self) -> None:
        """Requests are not divided by anything."""
        more = [{**one, "requests/pod lender": one["requests/pod lender"] + 1} for one in runs()]
        self.assertEqual(self.verdicts(runs(), more)["requests/pod lender"], Verdict.WORSE)
