"""What comes before what in acceptance: which obstacle counts, who takes a place first, what a quota is about."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.pipeline import judge, rule_all
from liqod.acceptance.stages import AcceptanceRules, OfferCase
from liqod.acceptance.verdict import Accept, Refuse
from liqod.model.ids import ClusterID

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OBSTACLES: Final = (
    ("InvalidOffer", {"problem": "resources.cpu: bad"}),
    ("Withdrawn", {"withdrawn": "Stopping"}),
    ("NotTrusted", {"trusted": False}),
    ("PeeringDisabled", {"enabled": False}),
    ("RefusedByUser", {"decision": "Refuse"}),
)
"""Reasons to refuse, the weightier first: no word of the user's, and no earlier acceptance, counts against one."""
OVERRULED: Final = OBSTACLES[:-1]
"""Those that the user's Accept does not overrule."""


class ObstacleTests(SynchronousTestCase):
    """One offer, and what stands against it."""

    @given(st.sets(st.sampled_from(range(len(OBSTACLES))), min_size=1), st.booleans(), st.booleans())
    @STEADILY
    def test_the_weightiest_obstacle_is_the_reason(self, which: set[int], seated: bool, expired: bool) -> None:
        """However many there are, and whether or not the offer holds a place."""
        case = OfferCase(peer=ClusterID("c1"), seated=seated, expired=expired)
        for number in which:
            case = attrs.evolve(case, **OBSTACLES[number][1])
        verdict = judge(case, AcceptanceRules("AutoAcceptAll"), 0).verdict
        assert isinstance(verdict, Refuse)
        self.assertEqual(verdict.reason, OBSTACLES[min(which)][0])

    @given(st.sampled_from(OVERRULED), st.booleans())
    @STEADILY
    def test_the_users_accept_overrules_no_obstacle(self, obstacle: tuple[str, dict[str, Any]], seated: bool) -> None:
        """Who says Accept to one offer has not said that this cluster borrows from the peer, or trusts it, at all."""
        reason, changes = obstacle
        case = attrs.evolve(OfferCase(peer=ClusterID("c1"), decision="Accept", seated=seated), **changes)
        verdict = judge(case, AcceptanceRules("AutoAcceptAll"), 0).verdict
        assert isinstance(verdict, Refuse)
        self.assertEqual(verdict.reason, reason)

    def test_the_users_accept_needs_no_fresh_offer(self) -> None:
        """It comes before the time to live, the demands and the policy."""
        case = OfferCase(peer=ClusterID("c1"), decision="Accept", expired=True, resources={"cpu": Fraction(9)})
        rules = AcceptanceRules("Manual", quota={"cpu": Fraction(1)})
        self.assertIsInstance(judge(case, rules, 9).verdict, Accept)


class PlaceTests(SynchronousTestCase):
    """All offers, and a limited number of places."""

    @given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
    @STEADILY
    def test_offers_that_the_user_accepted_take_their_places_first(
        self, by_user: int, others: int, maximum: int, random: object
    ) -> None:
        """Whenever each was seen: what the policy accepts gets what they leave of AutoAcceptMax."""
        seen = list(range(by_user + others))
        random.shuffle(seen)  # type: ignore[attr-defined]
        cases = [
            OfferCase(peer=ClusterID(f"c{at}"), first_seen=str(at), decision="Accept" if number < by_user else "Auto")
            for number, at in enumerate(seen)
        ]
        rulings = rule_all(cases, AcceptanceRules("AutoAcceptMax", maximum))
        seated = {case.peer for case in cases if rulings[case.peer].seated}
        wanted = {case.peer for case in cases if case.decision == "Accept"}
        self.assertLessEqual(wanted, seated)
        self.assertEqual(len(seated - wanted), min(others, max(0, maximum - by_user)))


class QuotaTests(SynchronousTestCase):
    """How much may be borrowed in all."""

    @given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
    @STEADILY
    def test_a_quota_is_about_offers_that_have_some_of_it(self, offered: int, taken: int, most: int) -> None:
        """An offer without the resource is taken though the quota is passed already; another when it fits."""
        case = OfferCase(peer=ClusterID("c1"), resources={"cpu": Fraction(offered), "memory": Fraction(1)})
        case = attrs.evolve(case, taken={"cpu": Fraction(taken)})
        verdict = judge(case, AcceptanceRules("AutoAcceptAll", quota={"cpu": Fraction(most)}), 0).verdict
        self.assertEqual(isinstance(verdict, Accept), offered == 0 or taken + offered <= most)
        if isinstance(verdict, Refuse):
            self.assertEqual(verdict.reason, "BorrowingQuotaExceeded")
