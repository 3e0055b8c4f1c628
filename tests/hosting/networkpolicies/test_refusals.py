"""What a peer may not send, what cannot be said here, and more than there is room for: it is closed, and said."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any, Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.hosting.networkpolicies.checks import MAX_POLICIES, MAX_TERMS
from liqod.hosting.networkpolicies.compiler import MAX_ENTRIES, Compiled, compiled
from liqod.hosting.networkpolicies.facts import Bounds, HomeFacts, KnownNamespace, PodElsewhere
from liqod.hosting.tenants.bounds import KnownNetworks, network_policy
from liqod.hosting.tenants.contract import Contract
from liqod.model.names import ISOLATED_LABEL
from liqod.model.records.network import MAX_PODS
from tests.hosting.networkpolicies.world import ENDS, both, compile_all, facts, policy

OPEN = policy("open", {"podSelector": {"matchLabels": {"app": "open"}}, "ingress": [{}], "egress": [{}]})


BAD_PEERS: Final[list[dict[str, Any]]] = [
    {},
    {"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}},
    {"ipBlock": {"cidr": "10.0.0.0"}},
    {"ipBlock": {"cidr": "10.0.0.0/255.0.0.0"}},
    {"ipBlock": {"cidr": "::ffff:10.0.0.0/104"}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}},
    {"podSelector": {"matchLabels": {"a b": "c"}}},
    {"podSelector": {"matchLabels": {"a": "b, c"}}},
    {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
    {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
    {"podSelector": {"matchExpressions": [{"key": "a in (b)", "operator": "Exists"}]}},
    {"podSelector": {"matchExpressions": [{"key": "!a", "operator": "Exists"}]}},
    {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
]
"""Peers that no API server accepts."""
BAD_PORTS: Final[list[dict[str, Any]]] = [
    {"port": 0},
    {"port": 65536},
    {"port": 9, "endPort": 8},
    {"endPort": 8},
    {"port": "http", "endPort": 8},
    {"port": "no--name"},
    {"port": "80"},
    {"port": 80, "protocol": "ICMP"},
]
"""Ports that no API server accepts."""
LATER: Final = {"namespaceSelector": {"matchNames": ["a"]}}
"""A peer with a field of a later version."""


def many(count: int) -> HomeFacts:
    """Return home with many pods elsewhere that are at no adjacent addresses."""
    first = int(ip_address("10.64.0.0"))
    pods = [
        PodElsewhere(namespace="shop", labels={}, addresses=[ip_address(first + 2 * number)]) for number in range(count)
    ]
    return attrs.evolve(facts(()), pods=pods)


def spec_of(made: Compiled, name: str) -> Any:
    """Return what became of a policy."""
    (found,) = [one["spec"] for one in made.policies if one["metadata"]["name"] == name]
    return found


class RefusalTests(SynchronousTestCase):
    """Whatever is refused allows nothing and names its policy and its field; its pods stay isolated."""

    def refused(self, reason: str, field: str, spec: Any, known: HomeFacts | None = None) -> Compiled:
        """Check the one refusal of a policy ``x``, and that another policy stays as it is."""
        made = compile_all([OPEN, policy("x", spec)], "internet", known or facts(ENDS.values()))
        self.assertEqual([(one.policy, one.field, one.reason) for one in made.refused], [("x", field, reason)], spec)
        self.assertEqual(len(spec_of(made, "liqod-home-open")["egress"]), 2)
        return made

    def test_what_is_no_policy(self) -> None:
        """A rule that an API server would not accept, or with a field that is not known, is left out alone."""
        good = {"to": [{"podSelector": {}}], "ports": [{"port": 80}]}
        for bad in [
            *({"to": [one]} for one in [*BAD_PEERS, LATER]),
            *({"to": good["to"], "ports": [one]} for one in BAD_PORTS),
        ]:
            made = compile_all([policy("x", {"egress": [bad, good]})], "internet", facts(()))
            (refused,) = made.refused
            self.assertEqual((refused.policy, refused.reason), ("x", "InvalidPolicy"))
            self.assertTrue(refused.field.startswith("spec.egress[0]"), refused.field)
            found = spec_of(made, "liqod-home-x")
            (rule,) = found["egress"]
            self.assertEqual((rule["ports"], found["ingress"]), ([{"protocol": "TCP", "port": 80}], []))

    def test_fields(self) -> None:
        """The field is named as deep as it is wrong."""
        peers = [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/8"]}}]
        self.refused("InvalidPolicy", "spec.ingress[1].from[1].ipBlock.except[1]", {"ingress": [{}, {"from": peers}]})
        self.refused("InvalidPolicy", "spec.egress[0].ports[0]", {"egress": [{"ports": [{"port": 0}]}]})
        made = self.refused("InvalidPolicy", "spec.egress[0]", {"egress": [{"later": 1}]})
        self.assertEqual(str(made.refused[0]), "NetworkPolicy x: spec.egress[0]: Object contains unknown field `later`")

    def test_policies_that_are_not_understood(self) -> None:
        """Which pods they isolate, and for what, is not known: all of them, and for everything."""
        specs: list[Any] = [{"later": 1}, {"podSelector": {}, "policyTypes": ["Later"]}, [], None]
        for spec in specs:
            made = self.refused("InvalidPolicy", "spec", spec)
            wanted = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []}
            self.assertEqual(spec_of(made, "liqod-home-x"), wanted)
            self.assertEqual(made.isolated({"app": "db"}), "both")

    def test_labels_that_pods_do_not_have_here(self) -> None:
        """They would select other pods here than at home: those that stay behind, and those that are set here."""
        for key in ("topology.kubernetes.io/zone", "example.com/x", "liqo.io/managed-by", ISOLATED_LABEL):
            terms = [{"key": key, "operator": "DoesNotExist"}, {"key": "app", "operator": "Exists"}]
            selector = {"matchExpressions": terms}
            made = self.refused(
                "LabelNotCarried", "spec.podSelector", {"podSelector": selector, "egress": [{}], "ingress": [{}]}
            )
            # More pods than at home are isolated, and nothing is allowed to those.
            found = spec_of(made, "liqod-home-x")
            self.assertEqual(found["podSelector"], {"matchExpressions": [{"key": "app", "operator": "Exists"}]})
            self.assertEqual((found["ingress"], found["egress"]), ([], []))
            made = self.refused(
                "LabelNotCarried",
                "spec.egress[0].to[0].podSelector",
                {"policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": selector}]}]},
            )
            self.assertEqual(spec_of(made, "liqod-home-x")["egress"], [])
            self.assertIn(key, made.refused[0].message)

    def test_a_block_of_some_pods_here(self) -> None:
        """Labels cannot say a part of the addresses: such a block is of none of these pods, and of all others."""
        for cidr in ("10.12.0.0/24", "10.12.0.1/32", "0.0.0.0/0", "fd0c::/64"):
            rule = {"to": [{"ipBlock": {"cidr": cidr}}]}
            made = self.refused("BlockSplitsPods", "spec.egress[0]", {"policyTypes": ["Egress"], "egress": [rule]})
            found = spec_of(made, "liqod-home-x")["egress"]
            self.assertNotIn("namespaceSelector", str(found))
            self.assertEqual(bool(found), cidr == "0.0.0.0/0")

    def test_a_block_of_unknown_addresses(self) -> None:
        """A private network that is not of the peering is another one here; nothing is made of it."""
        for cidr in ("192.168.5.0/24", "10.201.0.0/16", "169.254.169.254/32"):
            rule = {"to": [{"ipBlock": {"cidr": cidr}}]}
            made = self.refused(
                "BlockNotKnown", "spec.egress[0].to[0].ipBlock", {"policyTypes": ["Egress"], "egress": [rule]}
            )
            self.assertEqual(spec_of(made, "liqod-home-x")["egress"], [])

    def test_too_many_policies(self) -> None:
        """Those beyond the bound are not read: every pod is isolated instead."""
        made = compile_all([policy(f"p{number}", {}) for number in range(MAX_POLICIES + 5)], "all", facts(()))
        self.assertEqual([(one.policy, one.reason) for one in made.refused], [("", "TooManyPolicies")])
        self.assertEqual(len(made.policies), MAX_POLICIES + 1)
        self.assertEqual(str(made.refused[0]), "a namespace has more than 100 NetworkPolicies: merge some")
        wanted = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []}
        self.assertEqual(spec_of(made, "liqod-tenant-closed"), wanted)
        self.assertEqual(made.isolated({}), "both")

    def test_names_that_are_none(self) -> None:
        """They are no names of objects here either: every pod is isolated instead."""
        made = compile_all([policy("X_y", {}), policy("../x", {})], "internet", facts(()))
        self.assertEqual([(one.policy, one.reason) for one in made.refused], [("", "InvalidPolicy")])
        self.assertEqual(made.isolated({}), "both")

    def test_too_many_terms(self) -> None:
        """What is written beyond the bound allows nothing, and policies after it neither."""
        rules = [{"to": [{"podSelector": {}}], "ports": [{"port": number + 1}]} for number in range(MAX_TERMS)]
        policies = [OPEN, policy("x", {"egress": rules}), policy("y", {"podSelector": {}, "egress": [{}]})]
        made = compile_all(policies, "internet", facts(()))
        self.assertEqual([(one.policy, one.reason) for one in made.refused], [(name, "TooManyRules") for name in "xy"])
        self.assertEqual(len(spec_of(made, "liqod-home-open")["egress"]), 2)
        self.assertEqual(spec_of(made, "liqod-home-y")["egress"], [])

    def test_too_many_networks(self) -> None:
        """A direction that needs more networks than are left allows nothing; one that needs fewer does."""
        spec: dict[str, Any] = {"egress": [{"to": [{"podSelector": {}}]}]}
        made = self.refused("TooManyPeers", "spec.egress", spec, many(MAX_ENTRIES + 1))
        self.assertEqual(spec_of(made, "liqod-home-x")["egress"], [])

    def test_too_many_pods(self) -> None:
        """None is named then."""
        made = compile_all([policy("x", both([{"podSelector": {}}]))], "internet", many(MAX_PODS + 1))
        self.assertEqual([(one.policy, one.reason) for one in made.refused], [("", "TooManyPods")])
        self.assertNotIn("ipBlock", str(spec_of(made, "liqod-home-x")))
        made = compile_all(
            [policy("x", both([{"podSelector": {"matchLabels": {"a": "b"}}}]))], "internet", many(MAX_PODS)
        )
        self.assertEqual(made.refused, ())

    def test_too_much_work(self) -> None:
        """Rules that select among too many pods are left out once there were enough of them."""
        known = attrs.evolve(
            facts(()),
            pods=[
                PodElsewhere(namespace="shop", labels={"n": f"{number}"}, addresses=[ip_address("10.64.0.1")])
                for number in range(2000)
            ],
        )
        rules = [{"to": [{"podSelector": {"matchLabels": {"n": f"{number}"}}}]} for number in range(500)]
        made = compile_all([policy("x", {"egress": rules})], "internet", known)
        self.assertEqual({one.reason for one in made.refused}, {"TooManyPeers"})
        self.assertLess(len(made.refused), len(rules))

    def test_too_many_exceptions(self) -> None:
        """They weigh as networks do: each rule for the internet has all networks of the lender as exceptions."""
        first = int(ip_address("198.18.0.0"))
        own = [ip_network(first + 2 * number) for number in range(900)]
        around = KnownNetworks(own, [ip_network("10.64.0.0/16")])
        egress = network_policy("rome", "shop-rome", Contract(HostingSettings(egress="internet")), around)
        internet = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]
        rules = [{"to": internet, "ports": [{"port": number + 1}]} for number in range(30)]
        limits = Bounds(tenant="rome", namespace="shop-rome", egress=egress)
        made = compiled({"x": {"egress": rules}}, facts(()), limits)
        self.assertLess({"spec.egress", "spec.egress[29]"}, {one.field for one in made.refused})
        made = compiled({"x": {"egress": rules[:9]}}, facts(()), limits)
        self.assertEqual(made.refused, ())

    def test_too_many_names_of_namespaces(self) -> None:
        """They weigh as networks do."""
        spaces = [KnownNamespace(f"n{number}", {"team": "a"}, f"n{number}-rome") for number in range(1000)]
        team = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
        rules = [{"to": [{**team, "podSelector": {"matchLabels": {"n": str(number)}}}]} for number in range(25)]
        known = attrs.evolve(facts(()), namespaces=spaces)
        made = compile_all([policy("x", {"egress": rules})], "internet", known)
        fields = {one.field for one in made.refused if one.reason == "TooManyPeers"}
        self.assertLess({"spec.egress", "spec.egress[24]"}, fields)
        made = compile_all([policy("x", {"egress": rules[:9]})], "internet", known)
        self.assertEqual(made.refused, ())

    def test_who_is_concerned(self) -> None:
        """A refusal is said at the pods of its policy, one of the namespace at all."""
        bad = {"podSelector": {"matchLabels": {"app": "web"}}, "egress": [{"later": 1}]}
        made = compile_all([OPEN, policy("x", bad)], "internet", facts(()))
        self.assertEqual([one.policy for one in made.refused_of({"app": "web"})], ["x"])
        self.assertEqual(made.refused_of({"app": "db"}), ())
        made = compile_all([OPEN, policy("x", bad), policy("X", {})], "internet", facts(()))
        self.assertEqual([one.policy for one in made.refused_of({"app": "db"})], [""])
