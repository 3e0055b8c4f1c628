"""The plan of a soak is that of its seed, and its verdict finds what grows, and nothing else."""

from __future__ import annotations

from itertools import islice
from random import Random

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.real.soak.events import MAKERS
from tests.real.soak.plan import KINDS, LONGEST_CUT, MOST_PODS, SHORTEST_CUT, SIDES, plan
from tests.real.soak.verdict import Finding, Reading, Sample, growth, judge, parse, passed, report, slope

HOURS = 3
MIB = 1024


def samples(minutes: int, *, memory: float = 0.0, descriptors: float = 0.0, objects: float = 0.0) -> list[Sample]:
    """Return a sample for each minute, by how much things grow in an hour; memory and descriptors vary by chance."""
    chance = Random(1)
    found = []
    for minute in range(minutes + 1):
        hours = minute / 60
        # Caches fill in the first hour, whatever comes after.
        resident = 90 * MIB * (1 + min(hours, 1.0) * 0.2) * (1 + memory * hours) + chance.randint(-300, 300)
        one = Reading(
            pid=7,
            birth="100",
            resident=round(resident),
            descriptors=30 + int(descriptors * hours) + chance.randint(0, 1),
        )
        killed = Reading(pid=minute, birth=str(minute // 5), resident=60 * MIB, descriptors=20)
        found.append(
            Sample(
                at=60.0 * minute,
                event="rest at rome",
                rested=True,
                waited=2.0,
                daemons={"c1-one": one, "c1-two": killed},
                counts={"c1 configmap": 40 + int(objects * hours), "c1 routes": 30},
            )
        )
    return found


def bad(found: list[Finding]) -> list[str]:
    """Return what is bad."""
    return [one.subject for one in found if one.outcome == "bad"]


class PlanTests(SynchronousTestCase):
    """What happens when."""

    def test_same(self) -> None:
        """The same seed gives the same events, another one others."""
        first, same, other = (list(islice(plan(seed), 100)) for seed in (1, 1, 2))
        self.assertEqual(first, same)
        self.assertNotEqual(first, other)

    def test_round(self) -> None:
        """Every round has every kind on both sides, within the bounds; each can be made."""
        length = len(KINDS) * len(SIDES)
        events = list(islice(plan(5), 3 * length))
        for begin in range(0, len(events), length):
            pairs = {(one.kind, one.side) for one in events[begin : begin + length]}
            self.assertEqual(len(pairs), length)
        self.assertTrue(all(SHORTEST_CUT <= one.seconds <= LONGEST_CUT for one in events))
        self.assertTrue(all(1 <= one.pods <= MOST_PODS for one in events))
        self.assertEqual(set(KINDS), MAKERS.keys())


class VerdictTests(SynchronousTestCase):
    """What is found."""

    def test_flat(self) -> None:
        """Where nothing grows after the first hour nothing is bad, whatever chance does."""
        found = judge(samples(60 * HOURS))
        self.assertEqual(bad(found), [])
        self.assertTrue(passed(found))
        self.assertEqual([one.outcome for one in found if one.subject == "memory of c1-one"], ["good"])

    def test_memory(self) -> None:
        """Memory that grows by two hundredths an hour is found, by half of one is not."""
        self.assertEqual(bad(judge(samples(60 * HOURS, memory=0.02))), ["memory of c1-one"])
        self.assertEqual(bad(judge(samples(60 * HOURS, memory=0.005))), [])

    def test_leaks(self) -> None:
        """A few descriptors, or one object, more in three hours are found."""
        self.assertEqual(bad(judge(samples(60 * HOURS, descriptors=3))), ["descriptors of c1-one"])
        self.assertEqual(bad(judge(samples(60 * HOURS, objects=1))), ["c1 configmap"])

    def test_minutes(self) -> None:
        """A run of minutes says nothing of memory and passes by the rest; one of two samples does not pass."""
        found = judge(samples(12))
        self.assertEqual([one.subject for one in found if one.outcome == "not judged"], ["memory of c1-one"])
        self.assertTrue(passed(found))
        self.assertEqual(bad(judge(samples(12, objects=20))), ["c1 configmap"])
        self.assertFalse(passed([one for one in judge(samples(1)) if one.subject != "rest"]))

    def test_restless(self) -> None:
        """A moment without rest is bad, and so is what went wrong on the way to one; such counts are not compared."""
        some = samples(20)
        some[5] = evolve(some[5], rested=False, note="no tunnel", counts={"c1 routes": 99})
        some[6] = evolve(some[6], note="the pods that run all the time are others")
        self.assertEqual(bad(judge(some)), ["minute 5", "minute 6"])

    def test_first_daemon(self) -> None:
        """A daemon that nobody ended and that is another process is bad; one that is killed all the time is not."""
        some = samples(20)
        for number in range(10, 21):
            other = evolve(some[number].daemons["c1-one"], birth="200")
            some[number] = evolve(some[number], daemons={**some[number].daemons, "c1-one": other})
        self.assertEqual(bad(judge(some)), ["c1-one"])

    def test_lines(self) -> None:
        """Samples are the same after they were written and read, without a line that was cut off."""
        some = samples(3)
        lines = [one.line() for one in some]
        self.assertEqual(parse([*lines, lines[0][:40]]), some)

    def test_report(self) -> None:
        """What is bad stands first."""
        found = judge(samples(60 * HOURS, memory=0.02))
        self.assertEqual(found[0].outcome, "bad")
        self.assertIn("| memory of c1-one | bad |", report(found, "head"))


class FigureTests(SynchronousTestCase):
    """Slopes and growth."""

    def test_slope(self) -> None:
        """A slope is that of the points, and a few that are far off do not change it."""
        points = [(float(number), 5.0 * number) for number in range(2000)]
        points[1000] = (1000.0, 1e9)
        self.assertAlmostEqual(slope(points), 5.0, places=3)
        self.assertEqual(slope([]), 0.0)
        self.assertEqual(slope([(1.0, 2.0)]), 0.0)

    def test_growth(self) -> None:
        """A peak in the middle is no growth, a step is."""
        self.assertEqual(growth([1, 1, 1, 9, 9, 9, 1, 1, 1]), 0)
        self.assertEqual(growth([1, 1, 1, 1, 2, 2, 2, 2, 2]), 1)
