"""One key at a time for each place, in the order in which they asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.exclusive_queue import ExclusiveQueue


class TurnsTests(SynchronousTestCase):
    def test_in_order(self) -> None:
        """Those who wait follow in the order in which they asked, each place by itself."""
        queue: ExclusiveQueue[str] = ExclusiveQueue()
        self.assertEqual(
            [queue.acquire("a", key) for key in ("1", "2", "3", "1", "2")], [True, False, False, True, False]
        )
        self.assertTrue(queue.acquire("b", "4"))
        self.assertEqual([queue.waits(key) for key in ("1", "2", "4", "5")], [False, True, False, False])
        self.assertEqual([queue.place_of(key) for key in ("2", "4", "5")], ["a", "b", None])
        self.assertEqual([queue.release(key) for key in ("1", "1", "4", "2", "3")], ["2", None, None, "3", None])

    def test_one_that_does_not_wait_any_more(self) -> None:
        """A key that leaves while it waits is passed over, and ends nobody's turn."""
        queue: ExclusiveQueue[str] = ExclusiveQueue()
        for key in ("1", "2", "3"):
            queue.acquire("a", key)
        self.assertIsNone(queue.release("2"))
        self.assertEqual(queue.release("1"), "3")

    def test_nobody_is_forgotten(self) -> None:
        """In whichever order keys ask and leave, each that waits has its turn, and nothing is kept in the end."""

        @given(st.lists(st.tuples(st.sampled_from(["take", "leave"]), st.integers(0, 6))))
        def check(steps: list[tuple[str, int]]) -> None:
            queue: ExclusiveQueue[int] = ExclusiveQueue()
            has_turn: dict[int, int] = {}
            asked: set[int] = set()
            for what, key in [*steps, *(("leave", key) for key in range(7))]:
                place = key % 2
                if what == "take":
                    asked.add(key)
                    self.assertEqual(queue.acquire(place, key), has_turn.setdefault(place, key) == key)
                    continue
                asked.discard(key)
                following = queue.release(key)
                if has_turn.get(place) != key:
                    self.assertIsNone(following)
                    continue
                del has_turn[place]
                left = {one for one in asked if one % 2 == place}
                self.assertEqual(following is None, not left)
                if following is not None:
                    self.assertIn(following, left)
                    has_turn[place] = following
            self.assertEqual(vars(queue), vars(ExclusiveQueue()))

        check()
