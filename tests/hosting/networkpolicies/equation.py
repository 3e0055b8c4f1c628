"""The equation that holds at the lender: what passes there is what home allows and what the bounds allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.networkpolicies.compiler import Compiled
from tests.hosting.networkpolicies.evaluator import Cluster
from tests.hosting.networkpolicies.world import End, Level, is_open, lender_cluster

PORTS: Final = [("TCP", 80), ("TCP", 8080), ("TCP", 8081), ("TCP", 9090), ("UDP", 53), ("UDP", 52), ("SCTP", 80)]
DIRECTIONS: Final = ("Ingress", "Egress")


class EquationCase(SynchronousTestCase):
    """Compares the verdicts at the lender with home's and the bounds."""

    def compare(self, home: Cluster, made: Compiled, pod: End, level: Level, **ends: Any) -> None:
        """Check one pod and the other end ``end`` named ``name``, by IPv6 where ``six`` is 1.

        Where something is refused it is closed, so that less may pass than home and the bounds allow.
        """
        name, end, six = ends["name"], ends["end"], ends["six"]
        here = pod.at_lender(six, made.isolated(pod.labels))
        there = end.at_lender(six, made.isolated(end.labels) if end.namespace == "shop" else "")
        is_less = any(one.reason != "BlockNotKnown" for one in made.refused)
        for direction in DIRECTIONS:
            for port in PORTS:
                wanted = home.allows(direction, pod.at_home(six), end.at_home(six), port)
                wanted = wanted and is_open(direction, level, name, port)
                case = f"{level}, {name}: {direction} {end.lender[six]} {port}"
                for blocks_match in (True, False):
                    found = lender_cluster(made, blocks_match=blocks_match).allows(direction, here, there, port)
                    # Nothing but an ipBlock could name a node; where the plugin does not match it, it stays closed.
                    if is_less or (end.node and not blocks_match):
                        self.assertLessEqual(found, wanted, case)
                    else:
                        self.assertEqual(found, wanted, case)

    def names_peers(self, made: Compiled) -> None:
        """Check that no rule is without peers, which would be one for everybody, and no namespace without a name."""
        for one in made.policies:
            for side, end in (("ingress", "from"), ("egress", "to")):
                for rule in one["spec"].get(side, ()):
                    self.assertTrue(rule[end], f"{one['metadata']['name']} has a rule for everybody")
                    for term in (term for peer in rule[end] for term in namespace_terms(peer)):
                        self.assertNotIn("", term["values"])


def namespace_terms(peer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the matchExpressions for namespaces of a peer."""
    found: list[dict[str, Any]] = peer.get("namespaceSelector", {}).get("matchExpressions", [])
    return found
