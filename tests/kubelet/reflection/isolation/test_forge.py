"""What is sent of home's policies: enough for the lender to compile them as if it knew all of home, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.networkpolicies.compiler import compiled
from liqod.hosting.networkpolicies.record import UNREADABLE, TenantContext, read
from liqod.hosting.tenants.bounds import KnownNetworks
from liqod.kubelet.reflection.isolation.forge import HomeSeen, needs_home, record
from liqod.kubelet.reflection.isolation.views import AnyPod
from liqod.model.records.home_policies import MAX_BYTES, MAX_POLICIES, DirectAddress, HomePoliciesSpec
from liqod.model.records.network import Subnets, TunnelEndpointSpec
from tests import properties
from tests.hosting.networkpolicies.test_properties import specs
from tests.hosting.networkpolicies.test_table import HOME
from tests.hosting.networkpolicies.world import (
    AT_LENDER,
    ENDS,
    HERE,
    HOME_NETWORKS,
    LEVELS,
    NAMESPACES,
    PEER,
    End,
    Level,
    bounds,
    facts,
)

properties.load()

TUNNEL = TunnelEndpointSpec(
    local=Subnets(pod_cidrs=["10.201.0.0/16", "fdc9::/64"]),
    local_seen=Subnets(pod_cidrs=list(HERE)),
    remote=Subnets(pod_cidrs=list(HOME_NETWORKS)),
    remote_seen=Subnets(pod_cidrs=[str(one) for one in PEER]),
)
SEEN = TenantContext(home="shop", here=AT_LENDER, tunnel=TUNNEL)
AS_SEEN = {home: lender for end in ENDS.values() for home, lender in zip(end.home, end.lender, strict=True) if home}
DNS = {"k8s-app": "kube-dns"}


def pod(end: End) -> AnyPod:
    """Return an end of home as the API server has it."""
    ports = [{"name": name, "protocol": kind, "containerPort": port} for name, (kind, port) in end.ports.items()]
    body = {
        "metadata": {"name": end.home[0], "namespace": end.namespace, "labels": dict(end.labels)},
        "spec": {"containers": [{"ports": ports}]},
        "status": {"phase": "Running", "podIPs": [{"ip": one} for one in end.home]},
    }
    return msgspec.convert(body, AnyPod)


def home(ends: Iterable[End], **fields: Any) -> HomeSeen:
    """Return home with the ends that are pods elsewhere."""
    pods = [pod(one) for one in ends if one.namespace and not one.here]
    of = {name: [one for one in pods if one.metadata.namespace == name] for name in NAMESPACES}
    seen = {**AS_SEEN, **fields.pop("seen", {})}
    made = HomeSeen(namespaces=NAMESPACES, pods=lambda name: of.get(name, ()), seen=lambda one: seen.get(one, ""))
    return attrs.evolve(made, **fields)


def over_the_wire(spec: HomePoliciesSpec) -> bytes:
    return msgspec.json.encode(spec)


class SentTests(SynchronousTestCase):
    """The record against the whole truth."""

    def is_the_same(self, policies: Mapping[str, Any], level: Level, ends: Sequence[End]) -> None:
        sent = read(over_the_wire(record("shop", policies, home(ends))), SEEN)
        found = compiled(sent.specs, sent.facts, bounds(level))
        wanted = compiled(policies, facts(ends), bounds(level))
        self.assertEqual(found.policies, wanted.policies, policies)
        self.assertEqual(found.refused, wanted.refused)

    def test_the_table(self) -> None:
        """The policies of the truth table come out as if the lender knew home."""
        for policies in HOME.values():
            for level in LEVELS:
                named = {one["metadata"]["name"]: one["spec"] for one in policies}
                self.is_the_same(named, level, list(ENDS.values()))

    @settings(max_examples=100, suppress_health_check=list(HealthCheck))
    @given(st.lists(specs(), max_size=3), st.sampled_from(LEVELS))
    def test_any_policies(self, found: Sequence[dict[str, Any]], level: Level) -> None:
        """Any policies do."""
        self.is_the_same({f"p{number}": one for number, one in enumerate(found)}, level, list(ENDS.values()))

    def test_no_more_than_named(self) -> None:
        """Pods, labels, ports and namespaces that no rule names stay at home."""
        peer = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {"matchLabels": {"app": "db"}}}
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [peer], "ports": [{"port": "http"}]}]}
        made = record("shop", {"to": spec}, home(ENDS.values()))
        self.assertEqual([one.name for one in made.namespaces], ["away", "shop"])
        self.assertEqual([one.labels for one in made.namespaces], [{"team": "a"}] * 2)
        (kind,) = made.pods
        self.assertEqual((kind.namespace, kind.labels), ("shop", {"app": "db"}))
        self.assertEqual([(one.name, one.port) for one in kind.ports], [("http", 9090)])
        self.assertEqual(kind.addresses, sorted(["10.64.0.5", "fd64::5"]))
        for policies in ({}, {"deny": {"podSelector": {}, "policyTypes": ["Ingress"]}}):
            made = record("shop", policies, home(ENDS.values()))
            self.assertEqual((made.namespaces, made.pods, made.addresses), ([], [], []))
            self.assertFalse(needs_home(policies.values()))
        self.assertTrue(needs_home([spec]))

    def test_who_has_no_address(self) -> None:
        """A pod in its host's network, one that ended, and one whose address there is not known are left out."""
        gone = msgspec.structs.replace(pod(ENDS["home"]).status, phase="Failed")
        whole = pod(ENDS["home"])
        hosted = msgspec.structs.replace(whole.spec, host_network=True)
        for one in (
            msgspec.structs.replace(whole, status=gone),
            msgspec.structs.replace(whole, spec=hosted),
            pod(attrs.evolve(ENDS["home"], home=("10.10.3.3", "fd0a::33"))),
        ):
            known = home((), pods=lambda name, one=one: [one] if name == "shop" else [])
            spec: dict[str, Any] = {"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}
            self.assertEqual(record("shop", {"all": spec}, known).pods, [])

    def test_pods_with_a_direct_way(self) -> None:
        """A pod at a lender with a direct way goes with its address there, whether home shows it or not."""
        spec = {"podSelector": {}, "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}
        end = ENDS["home"]
        way = ("turin", "10.201.0.7")
        known = home(ENDS.values(), direct=lambda one: way if one == end.home[0] else None)
        there = [DirectAddress(lender="turin", address="10.201.0.7")]
        for shown in (known, attrs.evolve(known, seen=lambda one: "")):
            (kind,) = record("shop", {"to": spec}, shown).pods
            self.assertEqual((kind.namespace, kind.labels), ("shop", {"app": "db"}))
            self.assertEqual((kind.addresses, kind.direct), (sorted(filter(None, map(shown.seen, end.home))), there))

    def test_name_servers(self) -> None:
        """Home's name servers go along where a rule is for egress; those of the lender stand for them."""
        end = End(
            home=("10.10.0.53", "fd0a::53"), lender=("10.64.0.53", "fd64::53"), namespace="kube-system", labels=DNS
        )
        seen = dict(zip(end.home, end.lender, strict=True))
        known = attrs.evolve(
            home((end,), seen=seen),
            namespaces={**NAMESPACES, "kube-system": {"kubernetes.io/metadata.name": "kube-system"}},
            pods=lambda name: [pod(end)] if name == "kube-system" else [],
        )
        peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": DNS}}
        spec = {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [{"to": [peer], "ports": [{"protocol": "UDP", "port": 53}]}],
        }
        made = record("shop", {"dns": spec}, known)
        around = KnownNetworks(name_servers=[("10.201.0.77", 7053)])
        sent = read(over_the_wire(made), attrs.evolve(SEEN, around=around))
        (policy,) = [
            one
            for one in compiled(sent.specs, sent.facts, bounds("tenant")).policies
            if one["metadata"]["name"] == "liqod-home-dns"
        ]
        rules = policy["spec"]["egress"]
        own = {"to": [{"ipBlock": {"cidr": "10.201.0.77/32"}}], "ports": [{"protocol": "UDP", "port": 7053}]}
        self.assertIn(own, rules)
        there = [
            one for one in rules if "kube-system" in str(one["to"]) and {"protocol": "UDP", "port": 53} in one["ports"]
        ]
        self.assertTrue(there, rules)
        self.assertEqual(
            record("shop", {"in": {"podSelector": {}, "ingress": [{"from": [peer]}]}}, known).name_servers, []
        )

    def test_exported_addresses(self) -> None:
        """A machine outside, such as the API server, is reached where a block of home has its address."""
        known = home((), exported=["192.168.7.7", "192.168.7.8"], seen={"192.168.7.7": "10.70.0.9", "192.168.7.8": ""})
        for cidr, there in (("192.168.7.0/24", True), ("192.168.7.7/32", True), ("192.168.8.0/24", False)):
            spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": cidr}}]}]}
            sent = read(over_the_wire(record("shop", {"api": spec}, known)), SEEN)
            made = compiled(sent.specs, sent.facts, bounds("all"))
            self.assertEqual("10.70.0.9/32" in str(made.policies), there, cidr)

    def test_labels_that_stay_at_home(self) -> None:
        """A policy that selects its pods by such a label isolates more of them, and says so."""
        spec = {"podSelector": {"matchLabels": {"team": "x"}}, "policyTypes": ["Ingress"]}
        sent = read(over_the_wire(record("shop", {"in": spec}, home((), withheld=["team"]))), SEEN)
        made = compiled(sent.specs, sent.facts, attrs.evolve(bounds("all"), withheld=sent.withheld))
        self.assertEqual(made.isolated({"app": "web"}), "ingress")
        self.assertEqual([one.reason for one in made.refused], ["LabelNotCarried"])


class HostileRecordTests(SynchronousTestCase):
    """A record that a borrower wrote itself."""

    def test_unreadable(self) -> None:
        """What cannot be read isolates every pod in both directions; nothing is raised."""
        deep = b'{"policies":[{"name":"x","spec":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
        large = b'{"withheld":["' + b"x" * MAX_BYTES + b'"]}'
        for text in (b"", b"[]", b'{"policies": 1}', b"\xff", deep, large, b'{"pods": [{"addresses": [1]}]}'):
            sent = read(text, SEEN)
            self.assertEqual(sent.specs, {UNREADABLE: None})
            self.assertEqual(compiled(sent.specs, sent.facts, bounds("all")).isolated({}), "both")

    def test_what_is_no_address(self) -> None:
        """It is left out, and so names nobody."""
        text = msgspec.json.encode(
            {
                "policies": [{"name": "x", "spec": {"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}}],
                "pods": [{"namespace": "shop", "addresses": ["nowhere", "10.64.0.5/8", "10.64.0.5"]}],
                "addresses": [{"home": "x", "here": "y"}, {"home": "10.0.0.1", "here": "fd00::1"}],
                "nameServers": [{"namespace": "shop", "addresses": ["x"]}],
            }
        )
        sent = read(text, SEEN)
        self.assertEqual([str(one.addresses[0]) for one in sent.facts.pods], ["10.64.0.5"])
        self.assertEqual(len(sent.facts.addresses.pairs), len(HOME_NETWORKS))

    def test_more_policies_than_fit(self) -> None:
        """Home sends one more than are read, so that the lender sees that there are too many."""
        spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}
        made = record("shop", {f"p{number:03}": spec for number in range(300)}, home(()))
        self.assertEqual(len(made.policies), MAX_POLICIES)
        sent = read(over_the_wire(made), SEEN)
        self.assertEqual(compiled(sent.specs, sent.facts, bounds("all")).isolated({}), "both")
