"""The truth table of acceptance, and what holds for every set of offers."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.pipeline import Ruling, judge, rule_all
from liqod.acceptance.stages import AcceptanceRules, OfferCase, Policy
from liqod.acceptance.verdict import Accept, Defer, Refuse
from liqod.model.ids import ClusterID

ONE = OfferCase(peer=ClusterID("c1"))
cases = st.lists(
    st.builds(
        OfferCase,
        peer=st.integers(0, 30).map(lambda number: ClusterID(f"c{number}")),
        first_seen=st.integers(0, 9).map(str),
        seated=st.booleans(),
        decision=st.sampled_from(["Auto", "Accept", "Refuse"]),
        enabled=st.booleans(),
        trusted=st.booleans(),
        problem=st.sampled_from(["", "resources.cpu: bad"]),
        withdrawn=st.sampled_from(["", "Stopping"]),
        expired=st.booleans(),
    ),
    unique_by=lambda case: case.peer,
)
rules = st.builds(
    AcceptanceRules, policy=st.sampled_from(["Manual", "AutoAcceptAll", "AutoAcceptMax"]), maximum=st.integers(0, 8)
)


def plain(count: int) -> list[OfferCase]:
    return [OfferCase(peer=ClusterID(f"c{number}"), first_seen=str(number)) for number in range(count)]


def phases(rulings: dict[ClusterID, Ruling]) -> dict[str, str]:
    return {str(peer): ruling.phase for peer, ruling in rulings.items()}


def seated_again(given_cases: list[OfferCase], rulings: dict[ClusterID, Ruling]) -> list[OfferCase]:
    return [attrs.evolve(case, seated=rulings[case.peer].seated) for case in given_cases]


class JudgeTests(SynchronousTestCase):
    """One offer at a time."""

    def test_each_policy_says_what_it_should(self) -> None:
        """Manual defers, AutoAcceptAll accepts, AutoAcceptMax accepts while there is room."""
        table: list[tuple[Policy, int, int, type]] = [
            ("Manual", 5, 0, Defer),
            ("AutoAcceptAll", 0, 99, Accept),
            ("AutoAcceptMax", 5, 4, Accept),
            ("AutoAcceptMax", 5, 5, Refuse),
            ("AutoAcceptMax", 0, 0, Refuse),
        ]
        for policy, maximum, accepted, expected in table:
            verdict = judge(ONE, AcceptanceRules(policy, maximum), accepted).verdict
            self.assertIsInstance(verdict, expected, f"{policy}, {maximum}, {accepted}")

    def test_the_user_outranks_the_policy_but_not_the_checks(self) -> None:
        """Accept and Refuse by the user win over any policy; an invalid offer is refused whatever the user says."""
        accept = attrs.evolve(ONE, decision="Accept")
        self.assertIsInstance(judge(accept, AcceptanceRules("Manual"), 0).verdict, Accept)
        self.assertIsInstance(judge(accept, AcceptanceRules("AutoAcceptMax", 0), 9).verdict, Accept)
        refuse = attrs.evolve(ONE, decision="Refuse", seated=True)
        said_no = judge(refuse, AcceptanceRules("AutoAcceptAll"), 0).verdict
        assert isinstance(said_no, Refuse)
        self.assertEqual(said_no.reason, "RefusedByUser")
        invalid = attrs.evolve(accept, problem="resources.cpu: '-1' is negative")
        self.assertEqual(
            judge(invalid, AcceptanceRules(), 0).verdict, Refuse("InvalidOffer", "resources.cpu: '-1' is negative")
        )

    def test_each_obstacle_has_its_reason(self) -> None:
        """Untrusted, disabled and withdrawn are distinguished."""
        for change, reason in (
            ({"trusted": False}, "NotTrusted"),
            ({"enabled": False}, "PeeringDisabled"),
            ({"withdrawn": "maintenance"}, "Withdrawn"),
        ):
            verdict = judge(attrs.evolve(ONE, **change), AcceptanceRules(), 0).verdict
            assert isinstance(verdict, Refuse)
            self.assertEqual(verdict.reason, reason)

    def test_the_trace_tells_how_far_it_got(self) -> None:
        """The last stage in the trace is the one that ended the matter."""
        self.assertEqual(judge(attrs.evolve(ONE, enabled=False), AcceptanceRules(), 0).trace[-1], "wanted")
        self.assertEqual(judge(ONE, AcceptanceRules(), 0).trace[-1], "by_policy")


class RuleAllTests(SynchronousTestCase):
    """All offers together."""

    def test_room_goes_to_those_seen_first(self) -> None:
        """AutoAcceptMax(2) accepts the first two of four."""
        self.assertEqual(
            phases(rule_all(reversed(plain(4)), AcceptanceRules("AutoAcceptMax", 2))),
            {"c0": "Accepted", "c1": "Accepted", "c2": "Refused", "c3": "Refused"},
        )

    def test_lowering_the_maximum_evicts_nobody(self) -> None:
        """One that holds a place keeps it when N drops to zero; newcomers are refused."""
        before = plain(3)
        after = seated_again(before, rule_all(before, AcceptanceRules("AutoAcceptMax", 3)))
        rulings = rule_all(
            [*after, OfferCase(peer=ClusterID("late"), first_seen="9")], AcceptanceRules("AutoAcceptMax", 0)
        )
        self.assertEqual(phases(rulings), {"c0": "Accepted", "c1": "Accepted", "c2": "Accepted", "late": "Refused"})

    def test_a_place_that_becomes_free_goes_to_the_next_in_line(self) -> None:
        """When an accepted offer is withdrawn, the one refused for room first is accepted."""
        before = plain(3)
        after = seated_again(before, rule_all(before, AcceptanceRules("AutoAcceptMax", 1)))
        after[0] = attrs.evolve(after[0], withdrawn="gone")
        self.assertEqual(
            phases(rule_all(after, AcceptanceRules("AutoAcceptMax", 1))),
            {"c0": "Withdrawn", "c1": "Accepted", "c2": "Refused"},
        )

    def test_an_expired_offer_keeps_its_place(self) -> None:
        """A lost peer's place is not given away: it comes back by itself."""
        lost = OfferCase(peer=ClusterID("c0"), first_seen="0", seated=True, expired=True)
        rulings = rule_all([lost, OfferCase(peer=ClusterID("c1"), first_seen="1")], AcceptanceRules("AutoAcceptMax", 1))
        self.assertEqual(phases(rulings), {"c0": "Expired", "c1": "Refused"})
        self.assertTrue(rulings[ClusterID("c0")].seated)

    @given(cases, rules)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_policy_never_accepts_more_than_there_is_room_for(
        self, given_cases: list[OfferCase], given_rules: AcceptanceRules
    ) -> None:
        """Newly and automatically accepted offers never bring the count over the maximum."""
        rulings = rule_all(given_cases, given_rules)
        new = [
            case for case in given_cases if rulings[case.peer].seated and not case.seated and case.decision == "Auto"
        ]
        seated = sum(ruling.seated for ruling in rulings.values())
        if given_rules.policy == "Manual":
            self.assertEqual(new, [])
        if given_rules.policy == "AutoAcceptMax" and new:
            self.assertLessEqual(seated, given_rules.maximum)

    @given(cases, rules)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_deciding_again_decides_the_same(self, given_cases: list[OfferCase], given_rules: AcceptanceRules) -> None:
        """A second run over the outcome of the first changes no phase."""
        first = rule_all(given_cases, given_rules)
        second = rule_all(seated_again(given_cases, first), given_rules)
        self.assertEqual(phases(first), phases(second))

    @given(cases, rules, st.randoms())
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_order_of_records_does_not_matter(
        self, given_cases: list[OfferCase], given_rules: AcceptanceRules, random: object
    ) -> None:
        """Shuffled records are ruled alike."""
        shuffled = list(given_cases)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        self.assertEqual(rule_all(given_cases, given_rules), rule_all(shuffled, given_rules))
