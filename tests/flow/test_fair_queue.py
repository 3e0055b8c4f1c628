"""Tests of liqod.flow.fair_queue."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.fair_queue import FairQueue


def all_of(fair: FairQueue[str]) -> str:
    """Return what waits, in the order of the turns."""
    return " ".join(fair.next() for _ in range(len(fair)))


class FairTests(SynchronousTestCase):
    """Flows take turns; within a flow the one that came first is first."""

    def test_turns(self) -> None:
        """Two that came after many of another flow have the second and the fourth turn; equals keep their order."""
        for waiting, turns in (
            ("", ""),
            ("a1", "a1"),
            ("a1 a2 a3", "a1 a2 a3"),
            ("a1 a2 a3 a4 b1 b2", "a1 b1 a2 b2 a3 a4"),
            ("a1 b1 a2 c1 c2 a3", "a1 b1 c1 a2 c2 a3"),
        ):
            fair: FairQueue[str] = FairQueue()
            for one in waiting.split():
                fair.add(one[0], one)
            self.assertEqual(all_of(fair), turns)
            self.assertEqual((len(fair), fair.tenants), (0, 0))

    def test_a_flow_does_not_gain_by_leaving_and_coming_back(self) -> None:
        """One that always has one waiting has a turn as often as the one that has many."""
        fair: FairQueue[str] = FairQueue()
        for one in ("a1", "a2", "a3", "b1"):
            fair.add(one[0], one)
        turns = []
        for number in range(2, 5):
            turns += [fair.next(), fair.next()]
            fair.add("b", f"b{number}")
        self.assertEqual(turns, ["a1", "b1", "a2", "b2", "a3", "b3"])

    def test_nothing_waits(self) -> None:
        """Asking when nothing waits, and taking away what does not wait, are errors."""
        fair: FairQueue[str] = FairQueue()
        self.assertRaises(KeyError, fair.next)
        self.assertRaises(KeyError, fair.remove, "a1")

    @settings(deadline=None)
    @given(st.binary(max_size=80))
    def test_fairness(self, steps: bytes) -> None:
        """Whatever comes, goes and has its turn: nothing is lost or doubled, the order within a flow is kept, the flow
        whose turn is longest ago is next, and no flow is remembered of which nothing waits.
        """
        fair: FairQueue[tuple[str, int]] = FairQueue()
        lines: dict[str, list[tuple[str, int]]] = {}
        since: dict[str, int] = {}
        for number, step in enumerate(steps):
            what, which = step % 3, step // 3
            there = [one for line in lines.values() for one in line]
            if what == 0:
                flow = "abcd"[which % 4]
                if not lines.setdefault(flow, []):
                    since[flow] = number
                lines[flow].append((flow, number))
                fair.add(flow, (flow, number))
            elif what == 1 and there:
                gone = there[which % len(there)]
                lines[gone[0]].remove(gone)
                fair.remove(gone)
            elif there:
                flow = min((flow for flow, line in lines.items() if line), key=since.__getitem__)
                since[flow] = number
                self.assertEqual(fair.next(), lines[flow].pop(0))
            self.assertEqual(len(fair), sum(map(len, lines.values())))
            self.assertEqual(fair.tenants, sum(1 for line in lines.values() if line))
