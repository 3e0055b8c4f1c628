"""The gate between what is missing at home and its deletion at the lender."""

from __future__ import annotations

from unittest import TestCase

from twisted.internet.task import Clock

from liqod.flow.observe import Latest
from liqod.kubelet.namespaces.deletion_gate import LONGEST, RECENT, SETTLE, DeletionGate
from liqod.kubelet.namespaces.deletion_judge import MISSING, WENT_BACK, LossEvidence
from liqod.model.ids import Key

PODS = "shadowpods"


def key(number: int) -> Key:
    return Key("shop", f"web-{number}")


class GateTests(TestCase):
    """Two hundred ShadowPods at a lender."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.evidence = LossEvidence()
        self.gate = DeletionGate(self.clock, "milan", lambda: self.evidence)
        self.enqueued: list[Key] = []
        self.gate.register(PODS, lambda: 200, self.enqueued.append)

    def ask(self, numbers: range) -> int:
        """Ask for these objects; return how many may be deleted."""
        return sum(self.gate.may_delete(PODS, key(number), "u") for number in numbers)

    def observation(self) -> str:
        held = self.gate.state.value
        assert held is not None
        return held.observation

    def test_watched_deletions_go_on(self) -> None:
        """What was seen to be deleted may be deleted at once, whatever its number; a successor of its name may not."""
        for number in range(200):
            self.gate.observe_deletion(PODS, key(number), "u")
        self.assertEqual(self.ask(range(200)), 200)
        self.assertFalse(self.gate.may_delete(PODS, key(0), "another"))

    def test_a_few_go_after_a_moment(self) -> None:
        """Twenty that are merely missing are deleted once no more came for a moment."""
        self.assertEqual(self.ask(range(20)), 0)
        self.clock.advance(SETTLE)
        self.assertEqual(len(self.enqueued), 20)
        self.assertEqual(self.ask(range(20)), 20)

    def test_a_surge_is_held_as_a_whole(self) -> None:
        """Of two hundred that come one by one none is deleted, and after a confirmation all are."""
        for number in range(200):
            self.ask(range(number, number + 1))
            self.clock.advance(0.05)
        self.clock.advance(LONGEST)
        self.assertEqual((self.ask(range(200)), self.enqueued), (0, []))
        self.gate.confirm("something else")
        self.assertEqual(self.ask(range(200)), 0)
        self.gate.confirm(self.observation())
        self.assertIsNone(self.gate.state.value)
        self.assertEqual((self.ask(range(200)), len(self.enqueued)), (200, 200))

    def test_a_confirmation_is_for_one_surge(self) -> None:
        """What goes missing after a confirmation is held again, under another name."""
        self.ask(range(100))
        self.clock.advance(SETTLE)
        first = self.observation()
        self.gate.confirm(first)
        self.ask(range(100, 200))
        self.clock.advance(SETTLE)
        self.assertNotEqual(self.observation(), first)
        self.gate.confirm(first)
        self.assertEqual(self.ask(range(100, 200)), 0)

    def test_a_surge_in_small_pieces(self) -> None:
        """Pieces of twenty within ten minutes count together; later ones begin a new count."""
        self.ask(range(20))
        self.clock.advance(SETTLE)
        self.assertEqual(self.ask(range(20)), 20)
        for number in range(20):
            self.gate.forget(PODS, key(number), gone=True)
        self.ask(range(20, 30))
        self.clock.advance(SETTLE)
        self.assertEqual(self.ask(range(20, 30)), 0)
        self.clock.advance(RECENT + 1)
        self.ask(range(30, 31))
        self.clock.advance(SETTLE)
        self.assertEqual(self.ask(range(20, 31)), 11)

    def test_what_comes_back_ends_the_hold(self) -> None:
        """When the objects are at home again nothing is held, and nothing was deleted."""
        self.ask(range(100))
        self.clock.advance(SETTLE)
        self.assertTrue(self.observation())
        for number in range(100):
            self.gate.forget(PODS, key(number))
        self.clock.advance(SETTLE)
        self.assertIsNone(self.gate.state.value)
        self.assertEqual(self.enqueued, [])

    def test_a_namespace_that_is_not_reflected_any_more(self) -> None:
        """Its objects need not be deleted one by one, and hold nothing back; those of others are held as before."""
        self.ask(range(100))
        other = Key("another", "one")
        self.assertFalse(self.gate.may_delete(PODS, other, "u"))
        self.clock.advance(SETTLE)
        self.assertTrue(self.observation())
        self.gate.forget_namespace(PODS, key(0).namespace)
        self.clock.advance(SETTLE)
        self.assertIsNone(self.gate.state.value)
        self.assertTrue(self.gate.may_delete(PODS, other, "u"))

    def test_evidence_holds_a_single_one(self) -> None:
        """When home went back one missing object is held; once that was confirmed, ordinary rules hold again."""
        self.evidence = LossEvidence(went_back=1)
        self.ask(range(1))
        self.clock.advance(SETTLE)
        self.gate.confirm(self.observation())
        self.assertEqual(self.ask(range(1)), 1)
        self.ask(range(1, 2))
        self.clock.advance(SETTLE)
        self.assertEqual(self.ask(range(1, 2)), 1)
        self.evidence = LossEvidence(went_back=2)
        self.ask(range(2, 3))
        self.clock.advance(SETTLE)
        self.assertEqual(self.ask(range(2, 3)), 0)
        self.assertTrue(self.observation())

    def test_what_was_accepted_outlives_the_gate(self) -> None:
        """A later gate of the same virtual node takes what was confirmed as that; that of another does not."""
        accepted = Latest(LossEvidence())
        self.evidence = LossEvidence(went_back=1)
        for count, shared, is_held in ((0, accepted, True), (1, accepted, False), (2, None, True)):
            self.gate = DeletionGate(self.clock, "milan", lambda: self.evidence, accepted=shared)
            self.gate.register(PODS, lambda: 200, self.enqueued.append)
            self.ask(range(count, count + 1))
            self.clock.advance(SETTLE)
            self.assertEqual(self.gate.state.value is not None, is_held, count)
            if count == 0:
                self.gate.confirm(self.observation())

    def test_a_hold_of_an_earlier_process(self) -> None:
        """That versions went back, as the record says, holds until it is confirmed; another reason is judged again."""
        for shown, held in ((WENT_BACK, True), (MISSING, False)):
            self.gate = DeletionGate(self.clock, "milan", lambda: self.evidence, shown=shown)
            self.gate.register(PODS, lambda: 200, self.enqueued.append)
            self.ask(range(1))
            self.clock.advance(SETTLE)
            self.assertEqual(self.gate.state.value is not None, held, shown)
            if held:
                self.gate.confirm(self.observation())
                self.ask(range(1, 2))
                self.clock.advance(SETTLE)
            self.assertIsNone(self.gate.state.value)

    def test_a_namespace_counts_with_its_contents(self) -> None:
        """A namespace with fifty pods is held for its pods; an empty one is not."""
        self.gate.register("namespaces", lambda: 3, self.enqueued.append)
        self.assertFalse(self.gate.may_delete("namespaces", Key("", "old")))
        self.clock.advance(SETTLE)
        self.assertTrue(self.gate.may_delete("namespaces", Key("", "old")))
        self.gate.may_delete("namespaces", Key("", "shop"), contents={PODS: 50})
        self.clock.advance(SETTLE)
        self.assertTrue(self.observation())
        self.assertFalse(self.gate.may_delete("namespaces", Key("", "shop")))
