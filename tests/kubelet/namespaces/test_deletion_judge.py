"""Which deletions of what is missing at home are held: a truth table, and properties."""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from liqod.kubelet.namespaces.deletion_judge import (
    MISSING,
    OTHER_CLUSTER,
    WENT_BACK,
    Item,
    LossEvidence,
    Surge,
    judge,
    observation_of,
    why_kept,
)
from liqod.model.ids import Key

SAME = LossEvidence()
BACK = LossEvidence(went_back=True)
OTHER = LossEvidence(other_cluster=True)
BOTH = LossEvidence(went_back=True, other_cluster=True)


def items(count: int) -> list[Item]:
    return [("shadowpods", Key("shop", f"web-{number}")) for number in range(count)]


class NodeTests(TestCase):
    """A virtual node whose record is missing."""

    def test_table(self) -> None:
        """It stays where versions went back or the records are another cluster's, with many pods, and with volumes."""
        for pods, volumes, evidence, part in (
            (0, 0, SAME, ""),
            (20, 0, SAME, ""),
            (21, 0, SAME, "21 pods"),
            (0, 1, SAME, "1 volumes"),
            (0, 0, BACK, "was restored"),
            (0, 0, OTHER, "another cluster"),
        ):
            why = why_kept(pods, volumes, evidence)
            self.assertEqual(bool(why), bool(part))
            self.assertIn(part, why)


class JudgeTests(TestCase):
    """What is held, and why."""

    def test_table(self) -> None:
        """Evidence holds everything that is missing; without it more than twenty and more than a tenth are held."""
        for missing, total, evidence, reason in (
            (0, 200, SAME, ""),
            (0, 200, BOTH, ""),
            (1, 1, SAME, ""),
            (20, 20, SAME, ""),
            (21, 21, SAME, MISSING),
            (21, 209, SAME, MISSING),
            (21, 210, SAME, ""),
            (200, 200, SAME, MISSING),
            (200, 2000, SAME, ""),
            (201, 2000, SAME, MISSING),
            (1, 1000, BACK, WENT_BACK),
            (1, 1000, OTHER, OTHER_CLUSTER),
            (1, 1000, BOTH, OTHER_CLUSTER),
            (200, 200, BACK, WENT_BACK),
        ):
            with self.subTest(missing=missing, total=total, evidence=evidence):
                held = judge(items(missing), {"shadowpods": Surge(missing, total)}, evidence)
                self.assertEqual(held.reason if held is not None else "", reason)

    def test_one_kind_is_enough(self) -> None:
        """Many objects of another kind do not hide that all pods are missing."""
        surges = {"shadowpods": Surge(200, 200), "configmaps": Surge(3, 9000)}
        held = judge(items(200), surges, SAME)
        assert held is not None
        self.assertIn("3 of 9000 configmaps, 200 of 200 shadowpods", held.message)

    @given(st.integers(0, 300), st.integers(0, 3000), st.booleans(), st.booleans())
    def test_more_missing_is_never_less_held(self, missing: int, others: int, back: bool, other: bool) -> None:
        """What is held stays held when one more object of the same ones is missing."""
        evidence = LossEvidence(went_back=back, other_cluster=other)
        total = missing + others
        held = judge(items(missing), {"shadowpods": Surge(missing, total)}, evidence)
        if held is not None and others:
            self.assertIsNotNone(judge(items(missing + 1), {"shadowpods": Surge(missing + 1, total)}, evidence))

    @given(st.sets(st.integers(0, 50), min_size=1), st.sets(st.integers(0, 50), min_size=1))
    def test_an_observation_names_its_objects(self, left: set[int], right: set[int]) -> None:
        """Two observations are equal if and only if they are about the same objects, in whatever order."""
        of = [[("shadowpods", Key("shop", str(number))) for number in numbers] for numbers in (left, right)]
        same = observation_of(MISSING, of[0]) == observation_of(MISSING, reversed(of[1]))
        self.assertEqual(same, left == right)
        self.assertNotEqual(observation_of(MISSING, of[0]), observation_of(WENT_BACK, of[0]))
