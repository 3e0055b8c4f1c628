"""Which rule decides what may leave home."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import EgressKind, Verdict
from liqod.kubelet.common.egress import Egress, EgressRule
from liqod.model.objects.label_selector import matches, parse

KINDS = get_args(EgressKind)
names = st.sampled_from(["shop", "payments", "team-a"])
selectors = st.sampled_from(["", "tier=gold", "!tier", "tier in (gold, silver)", "tier!=gold"])
labels = st.dictionaries(st.just("tier"), st.sampled_from(["gold", "silver", "tin"]), max_size=1)
verdicts: st.SearchStrategy[Verdict] = st.sampled_from(get_args(Verdict))
rules = st.lists(
    st.builds(
        EgressRule,
        number=st.just(1),
        verdict=verdicts,
        kinds=st.frozensets(st.sampled_from(KINDS), max_size=2),
        namespaces=st.lists(st.sampled_from(["shop", "pay*", "team-*", "*"]), max_size=2).map(tuple),
        labels=selectors.map(parse),
        peers=st.frozensets(st.sampled_from(["milan", "rome"]), max_size=1),
        peer_labels=selectors.map(parse),
    ),
    max_size=4,
)


def rule(verdict: Verdict, number: int = 1, **fields: Any) -> EgressRule:
    return EgressRule(verdict=verdict, number=number, **fields)


class EgressTests(SynchronousTestCase):
    """Rules, in their order."""

    def stays(self, found: list[EgressRule], kind: str = "secret", namespace: str = "shop", **labels: str) -> bool:
        return bool(Egress.to("milan", {"tier": "gold"}, found, "allow").objection(kind, namespace, labels))

    def test_without_rules(self) -> None:
        """Everything may leave, or nothing."""
        for kind in KINDS:
            self.assertEqual(Egress().objection(kind, "shop", {}), "")
            self.assertIn("no rule", Egress(default="deny").objection(kind, "shop", {}))

    def test_what_a_rule_asks_for(self) -> None:
        """Each field of a rule has to hold, and one that is not named holds for all."""
        for fields, expected in (
            ({}, True),
            ({"kinds": frozenset({"secret"})}, True),
            ({"kinds": frozenset({"configmap"})}, False),
            ({"namespaces": ("sh*",)}, True),
            ({"namespaces": ("sho",)}, False),
            ({"namespaces": ("other", "shop")}, True),
            ({"labels": parse("app=web")}, True),
            ({"labels": parse("app=db")}, False),
            ({"peers": frozenset({"milan"})}, True),
            ({"peers": frozenset({"rome"})}, False),
            ({"peer_labels": parse("tier=gold")}, True),
            ({"peer_labels": parse("!tier")}, False),
            ({"kinds": frozenset({"secret"}), "peer_labels": parse("!tier")}, False),
        ):
            self.assertEqual(self.stays([rule("deny", **fields)], app="web"), expected, fields)

    def test_the_first_one_counts(self) -> None:
        """An exception stands before the rule; the reason names the rule that decided by its place in the settings."""
        exception = rule("allow", 1, namespaces=("shop",))
        found = Egress.to("milan", {}, [exception, rule("deny", 2)], "allow")
        self.assertEqual(found.objection("secret", "shop", {}), "")
        self.assertIn("rule 2 under [egress]", found.objection("secret", "bank", {}))
        self.assertTrue(self.stays([rule("deny"), exception]))

    def test_a_number_is_that_of_the_settings(self) -> None:
        """Rules about other peers are left out, and do not change what the others are called."""
        found = Egress.to("milan", {}, [rule("deny", 1, peers=frozenset({"rome"})), rule("deny", 2)], "allow")
        self.assertIn("rule 2 ", found.objection("secret", "shop", {}))

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(found=rules, default=verdicts, kind=st.sampled_from(KINDS), namespace=names, own=labels, of_peer=labels)
    def test_as_one_reads_them(
        self,
        *,
        found: list[EgressRule],
        default: Verdict,
        kind: str,
        namespace: str,
        own: dict[str, str],
        of_peer: dict[str, str],
    ) -> None:
        """The verdict is that of the first rule of which every field holds, else the default."""

        def holds(one: EgressRule) -> bool:
            beginnings = [pattern for pattern in one.namespaces if pattern.endswith("*")]
            named = namespace in one.namespaces or any(namespace.startswith(each[:-1]) for each in beginnings)
            return (
                (not one.kinds or kind in one.kinds)
                and (not one.namespaces or named)
                and (not one.peers or "milan" in one.peers)
                and matches(one.labels, own)
                and matches(one.peer_labels, of_peer)
            )

        expected = next((one.verdict for one in found if holds(one)), default)
        objection = Egress.to("milan", of_peer, found, default).objection(kind, namespace, own)
        self.assertEqual("deny" if objection else "allow", expected)
