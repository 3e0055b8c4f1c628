"""The compiler of NetworkPolicies with one thing taken away: the table of home's policies and the bounds sees it."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.networkpolicies import compiler, written
from liqod.hosting.networkpolicies.blocks import Block
from liqod.hosting.networkpolicies.compiler import FLOOR, Compiled
from liqod.hosting.networkpolicies.facts import Bounds
from liqod.hosting.networkpolicies.opened import EVERYTHING, OpenedRule
from liqod.hosting.networkpolicies.ports import RulePorts
from liqod.hosting.tenants.bounds import NAME
from tests.hosting.networkpolicies import test_table

_OF_BOUNDS: Final = compiler._of_bounds
_SPEC: Final = compiler._Compiling.spec
_RENDERED: Final = written.WrittenRules.rendered


def _without_the_floor(bounds: Bounds) -> Iterator[dict[str, Any]]:
    return (one for one in _OF_BOUNDS(bounds) if one["metadata"]["name"] != FLOOR)


def _for_isolated_pods_too(bounds: Bounds) -> Iterator[dict[str, Any]]:
    for one in _OF_BOUNDS(bounds):
        yield {**one, "spec": {**one["spec"], "podSelector": {}}} if one["metadata"]["name"] == NAME else one


def _one_way(direction: str) -> Callable[..., dict[str, Any]]:
    def spec(self: Any, policy: Any) -> dict[str, Any]:
        made = _SPEC(self, policy)
        kinds = [one for one in made["policyTypes"] if one != direction]
        return {key: value for key, value in {**made, "policyTypes": kinds}.items() if key != direction.lower()}

    return spec


def _rules(change: Callable[[dict[str, Any], str], dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """Return what renders rules, each changed."""

    def rendered(self: Any, end: str) -> list[dict[str, Any]]:
        return [change(one, end) for one in _RENDERED(self, end)]

    return rendered


def _everybodys_pods(rule: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Return a rule whose peers are of any namespace, and not the tenant's alone."""
    peers = [{**one, "namespaceSelector": {}} if "namespaceSelector" in one else one for one in rule[end]]
    return {**rule, end: peers}


def _any_of_the_tenants(rule: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Return a rule whose peers are all pods of the namespaces that it names."""
    return {**rule, end: [{key: one[key] for key in one if key != "podSelector"} for one in rule[end]]}


_WEAKER: Final[Mapping[str, tuple[Any, str, Any]]] = {
    "the bounds": (OpenedRule, "of", classmethod(lambda cls, rule, tenant: EVERYTHING)),
    "the floor under all pods": (compiler, "_of_bounds", _without_the_floor),
    "the selector of the default": (compiler, "_of_bounds", _for_isolated_pods_too),
    "the label of isolated pods": (Compiled, "isolated", lambda self, labels: ""),
    "home's policies for what comes in": (compiler._Compiling, "spec", _one_way("Ingress")),
    "home's policies for what goes out": (compiler._Compiling, "spec", _one_way("Egress")),
    "peers": (written.WrittenRules, "rendered", _rules(lambda rule, end: {**rule, end: []})),
    "ports": (RulePorts, "rendered", lambda self: None),
    "exceptions of networks": (Block, "rendered", lambda self: {"ipBlock": {"cidr": str(self.network)}}),
    "the tenant's label of namespaces": (written.WrittenRules, "rendered", _rules(_everybodys_pods)),
    "the labels of pods": (written.WrittenRules, "rendered", _rules(_any_of_the_tenants)),
    "pods of home by their addresses": (
        compiler._Compiling,
        "__init__",
        lambda self, facts, bounds, first=compiler._Compiling.__init__: first(
            self, attrs.evolve(facts, pods=()), bounds
        ),
    ),
}
"""What a copy of the compiler is without: what is replaced, and by what."""
_TABLE: Final = ("test_home_and_bounds", "test_a_pod_without_its_label")


class WeakenedCompilerTests(SynchronousTestCase):
    """Each copy makes the table fail, and the compiler as it is does not."""

    def fails(self) -> bool:
        """Return whether the table reports something; raises AssertionError for what is no report."""
        for name in _TABLE:
            result = unittest.TestResult()
            test_table.TableTests(name).run(result)
            self.assertEqual(result.errors, [], name)
            if result.failures:
                return True
        return False

    def test_as_it_is(self) -> None:
        """Nothing is reported of the whole compiler."""
        self.assertFalse(self.fails())

    def test_each_is_seen(self) -> None:
        """Whatever is taken away, something passes that home or the bounds close, or nothing does that they open."""
        for without, (where, name, instead) in _WEAKER.items():
            patch = self.patch(where, name, instead)
            self.assertTrue(self.fails(), f"the table does not see a compiler without {without}")
            patch.restore()
