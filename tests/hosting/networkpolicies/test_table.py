"""What home allows and what the lender allows: both hold at the lender, for each pod, end, port and direction."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final

import attrs

from liqod.hosting.networkpolicies.compiler import FLOOR
from liqod.hosting.networkpolicies.facts import PodElsewhere, StandIn
from liqod.hosting.tenants.bounds import NAME
from liqod.model.names import ISOLATED_LABEL
from tests.hosting.networkpolicies.equation import DIRECTIONS, PORTS, EquationCase
from tests.hosting.networkpolicies.world import (
    ENDS,
    HERE,
    HOME_NETWORKS,
    LEVELS,
    WEB,
    both,
    bounds,
    compile_all,
    facts,
    home_cluster,
    is_open,
    lender_cluster,
    policy,
)

TYPES: Final = list(DIRECTIONS)
PRIVATE: Final = [
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7"]}},
]


HOME: Final[dict[str, list[dict[str, Any]]]] = {
    "none": [],
    "deny all": [policy("deny", {"podSelector": {}, "policyTypes": TYPES})],
    "own namespace": [policy("own", both([{"podSelector": {}}]))],
    "gold of team a": [
        policy(
            "gold",
            both(
                [
                    {
                        "namespaceSelector": {"matchLabels": {"team": "a"}},
                        "podSelector": {
                            "matchExpressions": [
                                {"key": "tier", "operator": "Exists"},
                                {"key": "app", "operator": "NotIn", "values": ["cache"]},
                            ]
                        },
                    }
                ]
            ),
        )
    ],
    "internet": [policy("internet", both(PRIVATE))],
    "allow all": [
        policy("deny", {"podSelector": {}, "policyTypes": TYPES}),
        policy("all", {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}], "egress": [{}]}),
    ],
    "ports": [
        policy(
            "ports",
            both(
                [{"namespaceSelector": {}}],
                [{"port": "http"}, {"port": 9000, "endPort": 9100}, {"protocol": "UDP", "port": 53}],
            ),
        )
    ],
    "ingress of home's network": [
        policy(
            "web",
            {
                "podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [{"from": [{"ipBlock": {"cidr": one}} for one in HOME_NETWORKS]}],
            },
        )
    ],
}


class TableTests(EquationCase):
    """Eight sets of home's policies, three bounds, every end, both directions, both IP versions."""

    def test_home_and_bounds(self) -> None:
        """Each verdict is home's and the lender's, and nothing is refused."""
        for name, policies in HOME.items():
            for level in LEVELS:
                made = compile_all(policies, level, facts(ENDS.values()))
                self.assertEqual(made.refused, (), name)
                self.names_peers(made)
                for other, end in ENDS.items():
                    for six in (0, 1):
                        self.compare(home_cluster(policies), made, WEB, level, name=other, end=end, six=six)

    def test_the_table_has_both_verdicts(self) -> None:
        """Each set of home's but none and all of it allows something and refuses something."""
        for name, policies in HOME.items():
            home = home_cluster(policies)
            found = {
                home.allows(direction, WEB.at_home(0), end.at_home(0), port)
                for end in ENDS.values()
                for direction in DIRECTIONS
                for port in PORTS
            }
            wanted = {"none": {True}, "allow all": {True}, "deny all": {False}}.get(name, {True, False})
            self.assertEqual(found, wanted, name)

    def test_bounds_alone(self) -> None:
        """Where home has no policies the lender has those that it had before."""
        for level in LEVELS:
            egress = bounds(level).egress
            made = compile_all([], level, facts(ENDS.values()))
            self.assertEqual(made.policies, () if egress is None else (egress,))
            self.assertEqual(made.isolated({"app": "web"}), "")

    def test_ports_by_name(self) -> None:
        """A name is the port of the pod that is called, whether the rule has pods by labels, addresses or everybody."""
        home = [{"ipBlock": {"cidr": one}} for one in HOME_NETWORKS]
        here = [{"ipBlock": {"cidr": one}} for one in HERE]
        named: list[list[dict[str, Any]]] = [[], home, [*home, *here], [{"podSelector": {}}]]
        for peers in named:
            for more in ([], [{"protocol": "UDP", "port": 53}]):
                policies = [policy("named", both(peers, [{"port": "http"}, *more]))]
                for level in LEVELS:
                    made = compile_all(policies, level, facts(ENDS.values()))
                    self.assertEqual(made.refused, ())
                    for name, end in ENDS.items():
                        self.compare(home_cluster(policies), made, WEB, level, name=name, end=end, six=1)

    def test_a_block_without_addresses(self) -> None:
        """A block whose exceptions are all of it is nobody, not everybody."""
        empty = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9", "10.128.0.0/9"]}}
        policies = [policy("empty", both([empty]))]
        for level in LEVELS:
            made = compile_all(policies, level, facts(ENDS.values()))
            self.assertEqual(made.refused, ())
            for name, end in ENDS.items():
                self.compare(home_cluster(policies), made, WEB, level, name=name, end=end, six=0)

    def test_a_pod_without_its_label(self) -> None:
        """A label that is late or wrong opens nothing beyond the bounds."""
        for name, policies in HOME.items():
            for level in LEVELS[:2]:
                made = compile_all(policies, level, facts(ENDS.values()))
                lender = lender_cluster(made, blocks_match=True)
                for label in ("", "ingress", "egress", "both", "x"):
                    for other, end in ENDS.items():
                        for port in PORTS:
                            if not is_open("Egress", level, other, port):
                                passes = lender.allows("Egress", WEB.at_lender(0, label), end.at_lender(0), port)
                                self.assertFalse(passes, f"{name}, {level}, {label}, {other}, {port}")

    def test_names(self) -> None:
        """The default policy keeps its name; home's differ as theirs do, also long ones."""
        long = [policy(letter * 250, {"podSelector": {}}) for letter in "ab"]
        made = compile_all([*HOME["deny all"], *long], "internet", facts(()))
        names = [one["metadata"]["name"] for one in made.policies]
        self.assertEqual(len(set(names)), 5)
        self.assertEqual((names[0], names[1], names[-1]), (FLOOR, "liqod-home-deny", NAME))
        self.assertLessEqual(max(map(len, names)), 253)

    def test_adjacent_addresses(self) -> None:
        """They are written as one network."""
        pods = [
            PodElsewhere(namespace="shop", labels={"n": str(one)}, addresses=[ip_address(f"10.64.0.{one}")])
            for one in (6, 7)
        ]
        spec = {"policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]}
        made = compile_all([policy("x", spec)], "all", attrs.evolve(facts(()), pods=pods))
        (rule,) = made.policies[0]["spec"]["ingress"]
        self.assertEqual([one for one in rule["from"] if "ipBlock" in one], [{"ipBlock": {"cidr": "10.64.0.6/31"}}])

    def test_which_pods_are_isolated(self) -> None:
        """The label says the directions; a policy without policyTypes isolates egress where it has rules for it."""
        made = compile_all(
            [
                policy("a", {"podSelector": {"matchLabels": {"app": "in"}}}),
                policy("b", {"podSelector": {"matchLabels": {"app": "out"}}, "policyTypes": ["Egress"]}),
                policy("c", {"podSelector": {"matchLabels": {"app": "web"}}, "egress": [{}]}),
                policy("d", {"podSelector": {"matchLabels": {"app": "empty"}}, "egress": []}),
            ],
            "internet",
            facts(()),
        )
        found = {app: made.isolated({"app": app}) for app in ("in", "out", "web", "empty", "x")}
        self.assertEqual(found, {"in": "ingress", "out": "egress", "web": "both", "empty": "ingress", "x": ""})
        default = next(one for one in made.policies if one["metadata"]["name"] == NAME)
        (term,) = default["spec"]["podSelector"]["matchExpressions"]
        self.assertEqual(term, {"key": ISOLATED_LABEL, "operator": "NotIn", "values": ["both", "egress"]})

    def test_what_stands_for_home(self) -> None:
        """Who may ask home's name server may ask the one here, at its port; nobody else may."""
        both_versions = [ip_address("10.64.0.53"), ip_address("fd64::53")]
        ports = [("dns", "UDP", 53)]
        dns = PodElsewhere(namespace="away", labels={"k8s-app": "kube-dns"}, addresses=both_versions, ports=ports)
        place = {"ipBlock": {"cidr": "10.201.0.53/32"}}
        known = attrs.evolve(facts(()), stand_ins=[StandIn(dns, 53, [place], [7053])])
        pods = {"podSelector": {"matchLabels": dns.labels}}
        peers = [{"namespaceSelector": {"matchLabels": {"team": "a"}}, **pods}]
        unknown = attrs.evolve(known, namespaces=[one for one in known.namespaces if one.name != "away"])
        asked = {
            "by labels": both(peers, [{"protocol": "UDP", "port": 53}]),
            "by address": both([{"ipBlock": {"cidr": "10.10.0.0/16"}}], [{"protocol": "UDP", "port": 53}]),
            "everybody": both([], [{"protocol": "UDP", "port": 53}]),
            "by a port's name": both(peers, [{"protocol": "UDP", "port": "dns"}]),
            "among others": both(peers, [{"protocol": "UDP", "port": 53}, {"protocol": "UDP", "port": 99}]),
            "another name": both(peers, [{"protocol": "UDP", "port": "metrics"}]),
            "another protocol": both(peers, [{"protocol": "SCTP"}]),
            "another address": both([{"ipBlock": {"cidr": "10.10.1.0/24"}}]),
            "another port": both(peers, [{"protocol": "UDP", "port": 54}]),
            "another pod": both([{"podSelector": {}}], [{"protocol": "UDP", "port": 53}]),
        }
        for name, spec in asked.items():
            made = compile_all([policy("dns", spec)], "internet", known)
            (one,) = [one for one in made.policies if one["metadata"]["name"] == "liqod-home-dns"]
            rule = {"to": [place], "ports": [{"protocol": "UDP", "port": 7053}]}
            self.assertEqual(rule in one["spec"]["egress"], not name.startswith("another"), name)
        made = compile_all([policy("dns", both(peers, [{"protocol": "UDP", "port": 53}]))], "internet", unknown)
        self.assertNotIn("7053", str(made.policies))
