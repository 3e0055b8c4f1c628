"""Any policies of home, any labels, any bounds: what passes at the lender is what home and the bounds allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any, Final

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liqod.hosting.networkpolicies.compiler import Compiled
from tests import properties
from tests.hosting.networkpolicies.equation import EquationCase
from tests.hosting.networkpolicies.world import ENDS, LEVELS, WEB, Level, compile_all, facts, home_cluster, policy

properties.load()

KEYS: Final = st.sampled_from(["app", "tier"])
VALUES: Final = st.sampled_from(["web", "db", "gold"])
TERMS: Final = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
SELECTORS: Final = st.one_of(
    st.just({}),
    st.builds(lambda key, value: {"matchLabels": {key: value}}, KEYS, VALUES),
    st.builds(lambda terms: {"matchExpressions": terms}, st.lists(TERMS, max_size=2)),
)
NAMESPACE_SELECTORS: Final = st.one_of(
    st.just({}),
    st.builds(lambda value: {"matchLabels": {"team": value}}, st.sampled_from(["a", "b", "c"])),
    st.just({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop"]}]}),
)
CIDRS: Final = (
    *("0.0.0.0/0", "10.0.0.0/8", "10.10.0.0/16", "10.10.0.0/24", "10.10.0.4/30", "10.11.0.0/16", "10.12.0.0/16"),
    *("10.64.0.0/16", "10.201.0.0/16", "169.254.169.254/32", "1.0.0.0/8", "1.1.1.1/32"),
    *("::/0", "fd00::/8", "fd0a::/64", "fd0a::/80", "fd0b::7/128", "fd0c::/64", "2606::/16"),
)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """An ipBlock with exceptions."""
    cidr = draw(st.sampled_from(CIDRS))
    version = ip_network(cidr).version
    inside = [
        one
        for one in CIDRS
        if one != cidr and ip_network(one).version == version and ip_network(one).subnet_of(ip_network(cidr))  # type: ignore[arg-type]
    ]
    excepts = draw(st.lists(st.sampled_from(inside), max_size=3, unique=True)) if inside else []
    return {"ipBlock": {"cidr": cidr, **({"except": excepts} if excepts else {})}}


PEERS: Final = st.one_of(
    st.builds(lambda pods: {"podSelector": pods}, SELECTORS),
    st.builds(lambda spaces: {"namespaceSelector": spaces}, NAMESPACE_SELECTORS),
    st.builds(lambda spaces, pods: {"namespaceSelector": spaces, "podSelector": pods}, NAMESPACE_SELECTORS, SELECTORS),
    blocks(),
)
RULE_PORTS: Final = st.sampled_from(
    [
        {},
        {"protocol": "UDP"},
        {"port": 80},
        {"port": 8080, "endPort": 9090},
        {"port": "http"},
        {"protocol": "UDP", "port": 53},
        {"protocol": "UDP", "port": 50, "endPort": 60},
        {"protocol": "SCTP", "port": 80},
    ]
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec: any of the directions, none, some or empty rules."""
    made: dict[str, Any] = {"podSelector": draw(SELECTORS)}
    kinds = draw(st.sampled_from([None, [], ["Ingress"], ["Egress"], ["Ingress", "Egress"]]))
    if kinds is not None:
        made["policyTypes"] = kinds
    for side, end in (("ingress", "from"), ("egress", "to")):
        if draw(st.booleans()):
            rules = []
            for _ in range(draw(st.integers(0, 2))):
                peers, ports = draw(st.lists(PEERS, max_size=3)), draw(st.lists(RULE_PORTS, max_size=2))
                rules.append({**({end: peers} if peers else {}), **({"ports": ports} if ports else {})})
            made[side] = rules
    return made


LABELS: Final = st.dictionaries(KEYS, VALUES)


def written(made: Compiled) -> bytes:
    """Return what would be sent to the API server."""
    return json.dumps(made.policies).encode()


def mixed(value: Any, chance: Any) -> Any:
    """Return a value with the members of all lists in it in another order."""
    if isinstance(value, dict):
        return {key: mixed(one, chance) for key, one in value.items()}
    if isinstance(value, list):
        made = [mixed(one, chance) for one in value]
        chance.shuffle(made)
        return made
    return value


class PropertyTests(EquationCase):
    """The equation, and that the order of input is irrelevant."""

    def test_home_and_bounds(self) -> None:
        """Each verdict is home's and the lender's, or less where something is refused; no rule is for everybody."""
        self.exact: list[bool] = []
        self.cases()
        self.assertGreater(sum(self.exact) * 2, len(self.exact), "in most cases nothing is refused")

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(specs(), max_size=3),
        st.sampled_from(LEVELS),
        st.lists(LABELS, min_size=len(ENDS) + 1, max_size=len(ENDS) + 1),
        st.booleans(),
        st.randoms(use_true_random=False),
    )
    def cases(
        self, found: Sequence[dict[str, Any]], level: Level, labels: list[dict[str, str]], six: bool, chance: Any
    ) -> None:
        """Check one case."""
        policies = [policy(f"p{number}", spec) for number, spec in enumerate(found)]
        pod = attrs.evolve(WEB, labels=labels[-1])
        ends = {name: attrs.evolve(end, labels=mine) for (name, end), mine in zip(ENDS.items(), labels, strict=False)}
        known = facts(ends.values(), six=six)
        made = compile_all(policies, level, known)
        self.assertLessEqual({one.reason for one in made.refused}, {"BlockSplitsPods", "BlockNotKnown"})
        self.exact.append(not made.refused)
        self.names_peers(made)
        for name, end in ends.items():
            for version in (0, 1) if six else (0,):
                self.compare(home_cluster(policies), made, pod, level, name=name, end=end, six=version)
        shuffled = [policy(one["metadata"]["name"], mixed(one["spec"], chance)) for one in policies]
        chance.shuffle(shuffled)
        again = attrs.evolve(known, pods=mixed(known.pods, chance), namespaces=mixed(known.namespaces, chance))
        self.assertEqual(written(compile_all(shuffled, level, again)), written(made))
