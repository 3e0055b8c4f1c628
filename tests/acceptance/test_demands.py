"""What the settings ask of a new offer: labels, price, quota, time of the week."""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.pipeline import judge, rule_all
from liqod.acceptance.stages import AcceptanceRules, OfferCase
from liqod.acceptance.verdict import Accept, Defer, Refuse, Verdict
from liqod.config.schema import AcceptanceSettings
from liqod.model.ids import ClusterID
from liqod.model.objects import label_selector, quantity
from liqod.model.records import hours
from liqod.peering.borrowing.acceptance_loop import rules_of

ALL = AcceptanceRules("AutoAcceptAll")
CASE = OfferCase(
    peer=ClusterID("c1"),
    resources=quantity.parse_all({"cpu": "4", "memory": "8Gi"}),
    prices={"cpu": Fraction(1, 10)},
    labels={"region": "eu", "tier": "gold"},
)


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text + "+00:00").timestamp()


class DemandTests(SynchronousTestCase):
    """One offer, one demand."""

    def said(self, case: OfferCase, **demands: Any) -> tuple[type[Verdict], str]:
        verdict = judge(case, attrs.evolve(ALL, **demands), 0).verdict
        return type(verdict), verdict.reason

    def test_labels(self) -> None:
        """The labels must match the whole selector, and the verdict names what does not."""
        for selector, expected in (
            ("region=eu", (Accept, "Accepted")),
            ("region in (us, eu), tier, !spot", (Accept, "Accepted")),
            ("region=us", (Refuse, "LabelsDoNotMatch")),
            ("spot", (Refuse, "LabelsDoNotMatch")),
        ):
            self.assertEqual(self.said(CASE, selector=label_selector.parse(selector)), expected, selector)

    def test_price(self) -> None:
        """A price at the ceiling is taken, one above is not; no price is free."""
        self.assertEqual(self.said(CASE, ceilings={"cpu": Fraction(1, 10)})[0], Accept)
        self.assertEqual(self.said(CASE, ceilings={"cpu": Fraction(99, 1000)}), (Refuse, "TooExpensive"))
        self.assertEqual(self.said(CASE, ceilings={"memory": Fraction(0), "gpu": Fraction(0)})[0], Accept)

    def test_hours(self) -> None:
        """Outside the hours an offer waits; inside it is accepted."""
        windows = (hours.parse("Mon-Fri 08:00-18:00"),)
        inside, outside = at("2026-11-20T12:00:00"), at("2026-11-21T12:00:00")
        self.assertEqual(self.said(attrs.evolve(CASE, now=inside), windows=windows)[0], Accept)
        self.assertEqual(self.said(attrs.evolve(CASE, now=outside), windows=windows), (Defer, "OutsideHours"))

    def test_neither_the_user_nor_what_is_accepted_is_asked(self) -> None:
        """Demands are about new offers that nobody decided about."""
        demands = {"selector": label_selector.parse("region=us"), "quota": {"cpu": Fraction(0)}}
        self.assertEqual(self.said(attrs.evolve(CASE, decision="Accept"), **demands)[0], Accept)
        self.assertEqual(self.said(attrs.evolve(CASE, seated=True), **demands)[0], Accept)


class QuotaTests(SynchronousTestCase):
    """What all accepted offers lend together."""

    def test_first_come_first_served(self) -> None:
        """Offers are taken while they fit; a later one that fits is taken although an earlier one did not."""
        sizes = {"a": "6", "b": "6", "c": "4"}
        offers = [
            OfferCase(peer=ClusterID(name), first_seen=name, resources=quantity.parse_all({"cpu": size}))
            for name, size in sizes.items()
        ]
        rulings = rule_all(offers, attrs.evolve(ALL, quota=quantity.parse_all({"cpu": "10"})))
        found = {str(peer): (ruling.phase, ruling.reason) for peer, ruling in rulings.items()}
        self.assertEqual(
            found,
            {"a": ("Accepted", "Accepted"), "b": ("Refused", "BorrowingQuotaExceeded"), "c": ("Accepted", "Accepted")},
        )

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=8), st.integers(0, 40))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_new_offers_never_pass_the_quota(self, offers: list[tuple[bool, int]], most: int) -> None:
        """Whatever is accepted already stays, and nothing is added beyond the quota."""
        cases = [
            OfferCase(peer=ClusterID(f"c{at}"), first_seen=f"{at}", seated=seated, resources={"cpu": Fraction(size)})
            for at, (seated, size) in enumerate(offers)
        ]
        rulings = rule_all(cases, attrs.evolve(ALL, quota={"cpu": Fraction(most)}))
        before = sum(size for seated, size in offers if seated)
        after = sum(size for at, (_, size) in enumerate(offers) if rulings[ClusterID(f"c{at}")].seated)
        self.assertLessEqual(after, max(most, before))
        self.assertGreaterEqual(after, before)


class HoursTests(SynchronousTestCase):
    """Times of the week."""

    def test_windows(self) -> None:
        """Days and times, over midnight, over the end of the week, and every day."""
        for text, moment, expected in (
            ("Mon-Fri 08:00-18:00", "2026-11-20T08:00:00", True),
            ("Mon-Fri 08:00-18:00", "2026-11-20T18:00:00", False),
            ("Mon-Fri 08:00-18:00", "2026-11-22T12:00:00", False),
            ("22:00-06:00", "2026-11-22T23:30:00", True),
            ("Fri 22:00-06:00", "2026-11-21T05:59:59", True),
            ("Fri 22:00-06:00", "2026-11-22T05:59:59", False),
            ("Sat-Mon 00:00-24:00", "2026-11-23T12:00:00", True),
            ("Sat-Mon 00:00-24:00", "2026-11-24T00:00:00", False),
        ):
            self.assertIs(hours.is_open([hours.parse(text)], at(moment)), expected, (text, moment))

    def test_nonsense(self) -> None:
        """Whatever is not a window is refused with an example."""
        for text in ("", "Mon", "Mon 8-18", "Xyz 08:00-18:00", "25:00-26:00", "08:00-08:00", "08:61-09:00"):
            with self.assertRaises(ValueError):
                hours.parse(text)

    @given(st.integers(0, 2 * 10**9), st.integers(0, 6), st.integers(0, 1439), st.integers(1, 1440))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_nothing_changes_before_the_announced_moment(self, now: int, day: int, start: int, end: int) -> None:
        """Until then it stays open or closed; then it may not."""
        if start == end:
            return
        windows = [hours.Window(frozenset((day,)), start, end)]
        rest = hours.until_change(windows, now)
        assert rest is not None
        self.assertGreater(rest, 0)
        state = hours.is_open(windows, now)
        self.assertIs(hours.is_open(windows, now + rest / 2), state)
        self.assertIs(hours.is_open(windows, now + rest - 1), state)
        self.assertIsNot(hours.is_open(windows, now + rest), state)


class SelectorTests(SynchronousTestCase):
    """Label selectors."""

    def test_terms(self) -> None:
        """Each kind of term, for a label that is there, has another value, or is absent."""
        for text, expected in (
            ("", (True, True, True)),
            ("a=b", (True, False, False)),
            ("a == b", (True, False, False)),
            ("a!=b", (False, True, True)),
            ("a in (b, d)", (True, False, False)),
            ("a notin (b,d)", (False, True, True)),
            ("a", (True, True, False)),
            ("!a", (False, False, True)),
            ("example.com/a=", (False, False, False)),
        ):
            terms = label_selector.parse(text)
            found = tuple(label_selector.matches(terms, labels) for labels in ({"a": "b"}, {"a": "c"}, {}))
            self.assertEqual(found, expected, text)

    @given(st.text(max_size=80))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_text_is_a_selector_or_refused(self, text: str) -> None:
        """Only ValueError comes out."""
        try:
            label_selector.parse(text)
        except ValueError:
            return

    def test_settings_become_rules(self) -> None:
        """All that can be configured arrives."""
        rules = rules_of(
            AcceptanceSettings(
                quota={"cpu": "10"}, price_ceiling={"cpu": "0.1"}, selector="a=b", hours=["Sun 10:00-11:00"]
            )
        )
        self.assertEqual((rules.quota, rules.ceilings), ({"cpu": Fraction(10)}, {"cpu": Fraction(1, 10)}))
        self.assertEqual(
            (rules.selector, rules.windows), (label_selector.parse("a=b"), (hours.parse("Sun 10:00-11:00"),))
        )
