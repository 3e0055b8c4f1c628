"""One virtual node of a lender at a time reflects a namespace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.model.ids import ClusterID

MILAN, TURIN = ClusterID("milan"), ClusterID("turin")


class TurnsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.election = WriterElection()
        self.took: list[str] = []

    def join(self, name: str, lender: ClusterID = MILAN, local: str = "shop") -> Callable[[], None]:
        return self.election.join(lender, local, lambda: self.took.append(name))

    def test_the_first_one_reflects(self) -> None:
        """The first node has the turn at once, the next one when it leaves, and each only once."""
        first, second, third = (self.join(name) for name in ("a", "b", "c"))
        self.assertEqual(self.took, ["a"])
        second()
        self.assertEqual(self.took, ["a"])
        first()
        first()
        self.assertEqual(self.took, ["a", "c"])
        third()
        self.join("d")
        self.assertEqual(self.took, ["a", "c", "d"])

    def test_each_namespace_and_lender(self) -> None:
        """Namespaces do not wait for one another, and neither do lenders."""
        for place, (lender, local) in enumerate(((MILAN, "shop"), (TURIN, "shop"), (MILAN, "bank"))):
            self.join(str(place), lender, local)
        self.assertEqual(self.took, ["0", "1", "2"])

    def test_all_stop(self) -> None:
        """When all nodes of the daemon stop nobody takes over."""
        first, _ = self.join("a"), self.join("b")
        self.election.close()
        first()
        self.assertEqual(self.took, ["a"])

    @given(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=30))
    def test_exactly_one(self, steps: list[int | None]) -> None:
        """Whichever nodes come and go, one of those that are there has the turn."""
        election, active, leaves = WriterElection(), set[int](), dict[int, Callable[[], None]]()
        for name, step in enumerate(steps):
            if step is None:
                leaves[name] = election.join(MILAN, "shop", partial(active.add, name))
            elif leaves:
                gone = list(leaves)[step % len(leaves)]
                active.discard(gone)
                leaves.pop(gone)()
            self.assertEqual(len(active), min(1, len(leaves)))
            self.assertLessEqual(active, leaves.keys())
