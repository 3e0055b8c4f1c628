"""What a lender decides about slices, by tables, and what holds for any requests."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects import quantity
from liqod.model.records.views import LentSlice
from liqod.peering.lending.advert import share, without
from liqod.peering.lending.slice_decider import (
    SliceAsk,
    SlicePolicy,
    amount_problem,
    amounts,
    decide,
    room,
    settle,
    total,
    unused,
)

GPU = "nvidia.com/gpu"
CLASSES = {"default": {}, "small": quantity.parse_all({"cpu": "2", GPU: "0"})}


def of(**resources: str) -> dict[str, Fraction]:
    return quantity.parse_all(resources)


def ask(name: str = "a", slice_class: str = "default", revision: int = 1, **resources: str) -> SliceAsk:
    return SliceAsk(name, slice_class, resources, revision)


def policy(
    offered: Mapping[str, Fraction],
    *,
    used: Mapping[str, Fraction] | None = None,
    limits: Mapping[str, Fraction] | None = None,
    classes: Mapping[str, Mapping[str, Fraction]] = CLASSES,
) -> SlicePolicy:
    return SlicePolicy(classes=classes, offered=offered, used=used or {}, limits=limits or {})


class AmountTests(SynchronousTestCase):
    """What nobody can ask for."""

    def test_table(self) -> None:
        """Each amount with its reason; None for one that can be asked for."""
        for resources, reason in (
            ({"cpu": "4", "memory": "8Gi", GPU: "1"}, None),
            ({"cpu": "0", "memory": "1Gi"}, None),
            ({}, "NothingAsked"),
            ({"cpu": "0"}, "NothingAsked"),
            ({"cpu": "-1", "memory": "1Gi"}, "NegativeAmount"),
            ({"cpu": "four"}, "BadQuantity"),
            ({"c p u": "4"}, "BadResource"),
            ({GPU: "500m"}, "NotWhole"),
            ({f"r{number}": "1" for number in range(17)}, "TooManyResources"),
        ):
            problem = amount_problem(resources)
            self.assertEqual(problem[0] if problem is not None else None, reason, resources)


class DecisionTests(SynchronousTestCase):
    """One request."""

    def test_table(self) -> None:
        """What is asked for, what it has, what is free, and the decision with what it has then."""
        for request, before, free, decision, reason, then in (
            (ask(cpu="4"), {}, of(cpu="4"), "Granted", "", of(cpu="4")),
            (ask(cpu="5"), {}, of(cpu="4"), "Refused", "TooLarge", {}),
            (ask(cpu="5"), of(cpu="3"), of(cpu="4"), "Refused", "TooLarge", of(cpu="3")),
            (ask(cpu="1"), of(cpu="3"), of(cpu="4"), "Granted", "", of(cpu="1")),
            (ask(cpu="4", memory="1Gi"), {}, of(cpu="4"), "Refused", "TooLarge", {}),
            (ask(slice_class="small", cpu="3"), {}, of(cpu="9"), "Reduced", "ClassLimit", of(cpu="2")),
            (ask(slice_class="small", cpu="3"), {}, of(cpu="1"), "Refused", "TooLarge", {}),
            (ask(slice_class="none", cpu="1"), {}, of(cpu="9"), "Refused", "UnknownClass", {}),
            (ask(cpu="-1"), of(cpu="2"), of(cpu="9"), "Refused", "NegativeAmount", of(cpu="2")),
            (ask(memory="1"), {}, of(memory="1Gi"), "Refused", "NothingAsked", {}),
        ):
            ruling = decide(request, before, CLASSES, free)
            self.assertEqual((ruling.decision, ruling.reason, ruling.resources), (decision, reason, then), request)

    def test_a_class_without_a_resource(self) -> None:
        """Of what a class has nothing of, nothing is granted; alone it is refused."""
        alone = SliceAsk("a", "small", {GPU: "1"}, 1)
        self.assertEqual(decide(alone, {}, CLASSES, quantity.parse_all({GPU: "4"})).reason, "ClassLimit")
        both = SliceAsk("a", "small", {GPU: "1", "cpu": "1"}, 1)
        ruling = decide(both, {}, CLASSES, quantity.parse_all({GPU: "4", "cpu": "4"}))
        self.assertEqual((ruling.decision, ruling.resources), ("Reduced", of(cpu="1")))
        self.assertIn(f"{GPU} 0 of 1", ruling.message)

    def test_what_is_free_of_an_offer(self) -> None:
        """What others have or what pods beside the slice use, whichever is more, is taken."""
        for others, used, own, expected in (
            ([], {}, {}, of(cpu="10")),
            ([of(cpu="4"), of(cpu="3")], {}, {}, of(cpu="3")),
            ([], of(cpu="8"), {}, of(cpu="2")),
            ([of(cpu="4")], of(cpu="8"), {}, of(cpu="2")),
            ([of(cpu="4")], of(cpu="8"), of(cpu="5"), of(cpu="6")),
            ([of(cpu="20")], {}, {}, of(cpu="0")),
        ):
            self.assertEqual(room(of(cpu="10"), others, used, own), expected)


class SettlementTests(SynchronousTestCase):
    """All slices of a borrower, before and after."""

    def settled(self, slices: list[LentSlice], *asks: SliceAsk, **more: object) -> dict[str, str]:
        settlement = settle(slices, asks, policy(**{"offered": of(cpu="10"), **more}))  # type: ignore[arg-type]
        self.slices = list(settlement.slices)
        return {name: f"{ruling.decision} {ruling.reason}".strip() for name, (_, ruling) in settlement.rulings.items()}

    def test_they_divide_the_offer(self) -> None:
        """The first ones get theirs; a later one that does not fit is refused, and a smaller one still fits."""
        rulings = self.settled([], ask("a", cpu="6"), ask("b", cpu="5"), ask("c", cpu="4"))
        self.assertEqual(rulings, {"a": "Granted", "b": "Refused TooLarge", "c": "Granted"})
        self.assertEqual([one.name for one in self.slices], ["a", "c"])

    def test_the_same_request_again_changes_nothing(self) -> None:
        """Also when others have used up what was free since."""
        self.settled([], ask("a", cpu="6"))
        before = self.slices
        self.assertEqual(self.settled(before, ask("a", cpu="6"), used=of(cpu="10")), {"a": "Granted"})
        self.assertEqual(self.slices, before)

    def test_a_refused_change_keeps_what_there_was(self) -> None:
        """It is made once there is room."""
        self.settled([], ask("a", cpu="6"), ask("b", cpu="4"))
        before = self.slices
        larger = ask("a", revision=2, cpu="7")
        self.assertEqual(self.settled(before, larger), {"a": "Refused TooLarge", "b": "Granted"})
        self.assertEqual([amounts(one) for one in self.slices], [of(cpu="6"), of(cpu="4")])
        self.assertEqual(self.settled(self.slices[:1], larger), {"a": "Granted"})
        self.assertEqual([amounts(one) for one in self.slices], [of(cpu="7")])

    def test_lowered_settings(self) -> None:
        """A class or a limit that was lowered reduces what slices have, the oldest last; one without a class ends."""
        self.settled([], ask("a", cpu="6"), ask("b", cpu="4"))
        before = self.slices
        self.assertEqual(self.settled(before, limits=of(cpu="8")), {"a": "Granted", "b": "Reduced LimitReached"})
        self.assertEqual([amounts(one) for one in self.slices], [of(cpu="6"), of(cpu="2")])
        lowered = {"default": of(cpu="5")}
        self.assertEqual(self.settled(before, classes=lowered), {"a": "Reduced ClassLimit", "b": "Granted"})
        gone = {"a": "Refused UnknownClass", "b": "Refused UnknownClass"}
        self.assertEqual(self.settled(before, classes={"x": {}}), gone)
        self.assertEqual(self.slices, [])

    def test_a_reduced_one_grows_again(self) -> None:
        """Once the class has more, the same request is granted in full."""
        lowered = {"default": of(cpu="5")}
        self.assertEqual(self.settled([], ask("a", cpu="6"), classes=lowered), {"a": "Reduced ClassLimit"})
        self.assertEqual(self.settled(self.slices, ask("a", cpu="6")), {"a": "Granted"})
        self.assertEqual([amounts(one) for one in self.slices], [of(cpu="6")])

    @given(
        st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-2, 12), st.sampled_from(("default", "small", "x")))),
        st.integers(0, 20),
        st.integers(0, 20),
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_never_more_than_the_offer(self, asked: list[tuple[str, int, str]], offered: int, used: int) -> None:
        """Whatever is asked for in whatever order, slices together are a part of the offer, and settling is stable."""
        terms = policy(of(cpu=str(offered)), used=of(cpu=str(used)))
        slices: list[LentSlice] = []
        for revision, (name, cpu, slice_class) in enumerate(asked):
            one = SliceAsk(name, slice_class, {"cpu": str(cpu)}, revision)
            slices = list(settle(slices, [one], terms).slices)
            self.assertLessEqual(total(slices).get("cpu", 0), offered)
            self.assertEqual(list(settle(slices, [], terms).slices), slices)


class PromiseTests(SynchronousTestCase):
    """What offers have of slices."""

    def test_a_slice_stays_offered(self) -> None:
        """Also when nothing is free any more; the limit of the settings counts all the same."""
        self.assertEqual(share({}, {}, 30, {}, of(cpu="4")), of(cpu="4"))
        self.assertEqual(share(of(cpu="10"), of(cpu="5"), 30, {}, of(cpu="4")), of(cpu="8"))
        self.assertEqual(share({}, {}, 30, of(cpu="3"), of(cpu="4")), of(cpu="3"))

    def test_others_are_not_offered_it(self) -> None:
        """What a slice has and its borrower does not use yet is free on nodes, and for nobody else."""
        slices = [LentSlice(name="a", resources={"cpu": "4"}), LentSlice(name="b", resources={"cpu": "2"})]
        self.assertEqual(unused(slices, of(cpu="5")), of(cpu="1"))
        self.assertEqual(unused(slices, of(cpu="9")), of(cpu="0"))
        self.assertEqual(without(of(cpu="3", memory="1Gi"), of(cpu="5")), of(cpu="0", memory="1Gi"))
