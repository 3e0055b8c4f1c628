"""What is offered out of what is free, and which changes are worth telling."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.check import check
from liqod.model.objects import quantity
from liqod.model.records.offer import MAX_LABELS, Offer
from liqod.peering.lending.advert import compose, free, is_device, reclaimed, round_down, share, terms, worth_sending

GPU = "nvidia.com/gpu"
names = st.sampled_from(["cpu", "memory", "pods", GPU, "hugepages-2Mi", "ephemeral-storage"])
amounts = st.fractions(min_value=0, max_value=10**12)
resources = st.dictionaries(names, amounts, max_size=6)


def of(**amounts: str) -> dict[str, Fraction]:
    return quantity.parse_all(amounts)


class FreeTests(SynchronousTestCase):
    """Free capacity over nodes."""

    def test_an_overcommitted_node_takes_nothing_from_its_neighbours(self) -> None:
        """Each node is floored at zero before the sum."""
        nodes = [(of(cpu="4", memory="8Gi"), of(cpu="6", memory="2Gi")), (of(cpu="2"), of(cpu="500m"))]
        self.assertEqual(free(nodes), of(cpu="1500m", memory="6Gi"))

    def test_no_nodes_have_nothing(self) -> None:
        """An empty cluster offers an empty list."""
        self.assertEqual(free([]), {})


class ShareTests(SynchronousTestCase):
    """The percentage, what the peer already uses, and the limits."""

    def test_thirty_percent_of_what_is_free_plus_what_is_used(self) -> None:
        """The formula of the specification."""
        self.assertEqual(
            share(of(cpu="10", memory="10Gi", pods="100"), of(cpu="2"), 30, {}),
            of(cpu="5", memory="3Gi", pods="30"),
        )

    def test_what_is_used_stays_offered_when_nothing_is_free(self) -> None:
        """With every node cordoned the peer is offered exactly what its pods use."""
        self.assertEqual(share({}, of(cpu="2", memory="1Gi"), 30, {}), of(cpu="2", memory="1Gi"))

    def test_using_an_offer_does_not_shrink_it_below_what_is_used(self) -> None:
        """A peer that uses all it was offered is still offered that much."""
        offered = share(of(cpu="10"), {}, 30, {})
        after = share(of(cpu="7"), of(cpu="3"), 30, {})
        self.assertGreaterEqual(after["cpu"], offered["cpu"])

    def test_the_last_device_is_offered(self) -> None:
        """30 % of one GPU is one GPU; of none, none; and nothing at 0 %."""
        self.assertEqual(share({GPU: Fraction(1)}, {}, 30, {}), {GPU: Fraction(1)})
        self.assertEqual(share({GPU: Fraction(0)}, {}, 30, {}), {GPU: Fraction(0)})
        self.assertEqual(share({GPU: Fraction(1)}, {}, 0, {}), {GPU: Fraction(0)})

    def test_limits_cap_the_sum(self) -> None:
        """What the peer uses counts against the limit as well."""
        self.assertEqual(share(of(cpu="10"), of(cpu="3"), 50, of(cpu="4")), of(cpu="4"))

    def test_quantities_are_rounded_to_what_they_are_counted_in(self) -> None:
        """Milli-cores, mebibytes, pages, pieces."""
        self.assertEqual(round_down("cpu", Fraction(12345, 10000)), Fraction(1234, 1000))
        self.assertEqual(round_down("memory", Fraction((3 << 20) + 5)), Fraction(3 << 20))
        self.assertEqual(round_down("hugepages-2Mi", Fraction(5 << 20)), Fraction(4 << 20))
        self.assertEqual(round_down("pods", Fraction(7, 2)), Fraction(3))
        self.assertTrue(is_device(GPU) and not is_device("cpu"))

    def test_a_peer_may_have_terms_of_its_own(self) -> None:
        """Its percentage replaces the general one, its limits come on top; one that cannot be read lends nothing."""
        general = of(cpu="4", memory="8Gi")
        self.assertEqual(terms(30, general, None, {}), (30, general))
        self.assertEqual(terms(30, general, 0, {"cpu": "2"}), (0, of(cpu="2", memory="8Gi")))
        self.assertEqual(terms(30, general, 250, {"cpu": "all"}), (100, {**general, "cpu": Fraction(0)}))

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(resources, resources, st.integers(0, 100), resources)
    def test_offers_are_bounded(
        self, unused: dict[str, Fraction], used: dict[str, Fraction], percentage: int, limits: dict[str, Fraction]
    ) -> None:
        """Never negative, never above a limit, never more than free and used together."""
        for name, value in share(unused, used, percentage, limits).items():
            self.assertGreaterEqual(value, 0)
            self.assertLessEqual(value, unused.get(name, Fraction(0)) + used.get(name, Fraction(0)))
            if name in limits:
                self.assertLessEqual(value, limits[name])


class ReclaimedTests(SynchronousTestCase):
    """An offer that is taken back."""

    BY = datetime(2030, 1, 1, 0, 10, tzinfo=UTC)

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(resources, st.integers(0, MAX_LABELS))
    def test_any_borrower_takes_it(self, lent: dict[str, Fraction], count: int) -> None:
        """Nothing is left of any resource, the moment comes along where there is room for a label, and the rules by
        which borrowers judge offers, those of a release before this one too, hold.
        """
        before = compose(lent, {f"l{number}": "x" for number in range(count)}, {})
        after = reclaimed(before, self.BY)
        self.assertEqual(after.resources, dict.fromkeys(before.resources, "0"))
        checked = check(after)
        self.assertEqual(checked.resources, after.resources)
        self.assertEqual(checked.reclaimed_by, self.BY if count < MAX_LABELS else None)
        self.assertLessEqual(before.labels.items(), after.labels.items())

    def test_it_is_sent_at_once(self) -> None:
        """Whatever the threshold, and also where nothing was left before; the same order is sent once."""
        before = compose(of(cpu="4"), {}, {})
        after = reclaimed(before, self.BY)
        self.assertTrue(worth_sending(before, after, 100))
        self.assertTrue(worth_sending(compose(of(cpu="0"), {}, {}), after, 100))
        self.assertFalse(worth_sending(after, reclaimed(before, self.BY), 0))
        self.assertTrue(worth_sending(after, before, 100))

    def test_without_a_date(self) -> None:
        """An order that cannot be read lends nothing, and says no moment."""
        after = reclaimed(compose(of(cpu="4"), {"region": "eu"}, {}), None)
        self.assertEqual((after.resources, after.labels), ({"cpu": "0"}, {"region": "eu"}))


class WorthSendingTests(SynchronousTestCase):
    """Hysteresis."""

    def test_five_percent_is_the_edge(self) -> None:
        """A change of 4.9 % is kept quiet, one of 5 % is reported, in both directions."""
        old = Offer(resources={"cpu": "1000m"})
        for text, reported in (("1049m", False), ("1050m", True), ("951m", False), ("950m", True)):
            self.assertEqual(worth_sending(old, Offer(resources={"cpu": text}), 5), reported, text)

    def test_to_and_from_zero_and_new_names_are_reported(self) -> None:
        """What appears or vanishes is reported whatever the percentage; so are labels and prices."""
        old = Offer(resources={"cpu": "1", GPU: "0"})
        for new in (
            Offer(resources={"cpu": "0", GPU: "0"}),
            Offer(resources={"cpu": "1", GPU: "1"}),
            Offer(resources={"cpu": "1"}),
            Offer(resources={"cpu": "1", GPU: "0"}, labels={"region": "north"}),
        ):
            self.assertTrue(worth_sending(old, new, 100), new)

    def test_nothing_new_is_not_news(self) -> None:
        """An equal offer is not worth sending; the first one is."""
        offer = compose(of(cpu="1"), {"a": "b"}, {"cpu": "2", "gold": "1"})
        self.assertEqual(offer.prices, {"cpu": "2"})
        self.assertFalse(worth_sending(offer, offer, 0))
        self.assertTrue(worth_sending(None, offer, 100))
