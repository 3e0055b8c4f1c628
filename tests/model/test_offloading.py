"""Node selectors and what a NamespaceOffloading means."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.naming import choose_remote
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection, UnknownNode, select
from liqod.model.ids import ClusterID
from liqod.model.objects.node_selector import Term, selects
from liqod.model.records.offloading import BOTH, LOCAL, REMOTE, NamespaceOffloading, OffloadingPolicy, policy_of

LABELS = {"region": "eu", "tier": "3", "odd": "03", "word": "x1"}
HOME = ClusterID("rome")


def offloading(**spec: Any) -> NamespaceOffloading:
    return msgspec.convert({"metadata": {"name": "offloading", "namespace": "shop"}, "spec": spec}, NamespaceOffloading)


def term(*requirements: tuple[Any, ...], fields: tuple[tuple[Any, ...], ...] = ()) -> Term:
    def rendered(found: tuple[tuple[Any, ...], ...]) -> list[dict[str, Any]]:
        return [{"key": one[0], "operator": one[1], "values": list(one[2:])} for one in found]

    return msgspec.convert({"matchExpressions": rendered(requirements), "matchFields": rendered(fields)}, Term)


class SelectorTests(SynchronousTestCase):
    def test_operators(self) -> None:
        """Each operator means what it means to the scheduler; what is malformed never holds."""
        table: list[tuple[tuple[Any, ...], bool]] = [
            (("region", "In", "eu", "us"), True),
            (("region", "In", "us"), False),
            (("gone", "In", "eu"), False),
            (("region", "NotIn", "us"), True),
            (("region", "NotIn", "eu"), False),
            (("gone", "NotIn", "eu"), True),
            (("region", "Exists"), True),
            (("gone", "Exists"), False),
            (("gone", "DoesNotExist"), True),
            (("region", "DoesNotExist"), False),
            (("tier", "Gt", "2"), True),
            (("tier", "Gt", "3"), False),
            (("odd", "Lt", "4"), True),
            (("word", "Gt", "0"), False),
            (("tier", "Gt", "one"), False),
            (("tier", "Gt"), False),
            (("tier", "Lt", "9" * 30), False),
            (("region", "Near", "eu"), False),
        ]
        for requirement, expected in table:
            self.assertEqual(selects([term(requirement)], "liqo-milan", LABELS), expected, requirement)

    def test_terms(self) -> None:
        """One term has to hold, with all its requirements; an empty term holds nowhere; fields know the name only."""
        both = term(("region", "In", "eu"), ("tier", "In", "1"))
        self.assertFalse(selects([both], "n", LABELS))
        self.assertTrue(selects([both, term(("tier", "Exists"))], "n", LABELS))
        self.assertFalse(selects([Term()], "n", LABELS))
        self.assertFalse(selects([], "n", LABELS))
        named = term(fields=(("metadata.name", "In", "liqo-milan"),))
        self.assertTrue(selects([named], "liqo-milan", {}))
        self.assertFalse(selects([named], "liqo-paris", {"metadata.name": "liqo-milan"}))


class MeaningTests(SynchronousTestCase):
    def test_the_label_alone(self) -> None:
        """Without an object, or with one that is being deleted, all clusters, here and there, the default name."""
        leaving = msgspec.structs.replace(
            offloading(podOffloadingStrategy="Local"),
            metadata=msgspec.structs.replace(offloading().metadata, deletion_timestamp="now"),
        )
        for found in (None, offloading(), leaving, offloading(clusterSelector={}), offloading(clusterSelector=None)):
            self.assertEqual(policy_of("shop", found), OffloadingPolicy(BOTH, None, ""))

    def test_names(self) -> None:
        """The strategies name the namespace as they say."""
        self.assertEqual(policy_of("shop", offloading(namespaceMappingStrategy="EnforceSameName")).remote_name, "shop")
        selected = offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="market")
        self.assertEqual(policy_of("shop", selected).remote_name, "market")
        self.assertEqual(policy_of("shop", offloading(namespaceMappingStrategy="FromTheFuture")).remote_name, "")

    def test_an_unknown_placement_keeps_pods_here(self) -> None:
        """A placement of a later release is not guessed at."""
        self.assertEqual(policy_of("shop", offloading(podOffloadingStrategy="Moon")).placement, LOCAL)
        self.assertEqual(policy_of("shop", offloading(podOffloadingStrategy="Remote")).placement, REMOTE)


class SelectTests(SynchronousTestCase):
    def ask(self, found: NamespaceOffloading | None, *, enabled: bool = True, labels: Any = LABELS) -> Selection:
        return select("shop", enabled=enabled, offloading=found, node="liqo-milan", labels=labels)

    def test_the_table(self) -> None:
        """The label is the switch; Local is nowhere else; a selector goes by the node's labels."""
        eu = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}]}
        us = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["us"]}]}]}
        self.assertEqual(self.ask(None), Included())
        self.assertEqual(self.ask(None, labels=None), Included())
        self.assertEqual(self.ask(offloading(clusterSelector=eu)), Included())
        same = offloading(clusterSelector=eu, namespaceMappingStrategy="EnforceSameName")
        self.assertEqual(self.ask(same), Included("shop"))
        self.assertEqual(self.ask(offloading(clusterSelector=eu), labels=None), UnknownNode())
        for excluded, word in (
            (self.ask(None, enabled=False), "liqo.io/enabled=true"),
            (self.ask(offloading(), enabled=False, labels=None), "liqo.io/enabled=true"),
            (self.ask(offloading(podOffloadingStrategy="Local")), "Local"),
            (self.ask(offloading(podOffloadingStrategy="Local", clusterSelector=eu), labels=None), "Local"),
            (self.ask(offloading(clusterSelector=us)), "does not select the node liqo-milan"),
        ):
            assert isinstance(excluded, Excluded)
            self.assertIn(word, excluded.message)

    def test_a_namespace_that_may_not_leave(self) -> None:
        """Rules of this cluster come before what a namespace asks for; the label is still the switch."""
        for found in (None, offloading(podOffloadingStrategy="Remote")):
            chosen = select("shop", enabled=True, offloading=found, node="liqo-milan", labels=LABELS, stays="rule 2")
            assert isinstance(chosen, Excluded)
            self.assertIn("rule 2", chosen.message)
        off = select("shop", enabled=False, offloading=None, node="liqo-milan", labels=LABELS, stays="rule 2")
        assert isinstance(off, Excluded)
        self.assertNotIn("rule 2", off.message)

    @given(st.sampled_from(["", "market"]), st.dictionaries(st.sampled_from(["market", "shop-rome"]), st.just("other")))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_name_has_one_meaning(self, wanted: str, taken: dict[str, str]) -> None:
        """A remote name never stands for two namespaces; one that users chose is never replaced by another."""
        chosen = choose_remote("shop", HOME, taken, wanted)
        if chosen is None:
            self.assertIn(wanted, taken)
        else:
            self.assertNotIn(chosen, taken)
            self.assertTrue(not wanted or chosen == wanted)


class SpilloverTests(SynchronousTestCase):
    def test_the_mode(self) -> None:
        """A namespace's own mode counts before the configuration's; where pods run in one place only, none does."""
        table: list[tuple[NamespaceOffloading | None, str, str]] = [
            (None, "None", "None"),
            (None, "Return", "Return"),
            (offloading(), "HomeFirst", "HomeFirst"),
            (offloading(spillover={}), "None", "HomeFirst"),
            (offloading(spillover={"mode": "None"}), "Return", "None"),
            (offloading(spillover={"mode": "Return"}), "None", "Return"),
            (offloading(spillover={"mode": "Later"}), "Return", "None"),
            (offloading(spillover={}, podOffloadingStrategy="Local"), "Return", "None"),
            (offloading(podOffloadingStrategy="Remote"), "Return", "None"),
        ]
        for found, default, expected in table:
            self.assertEqual(policy_of("shop", found, default).spillover.mode, expected, (found, default))
