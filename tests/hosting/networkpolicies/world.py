"""A home, a lender with some of its pods, another lender and the internet, each end in both views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final, Literal

import attrs

from liqod.config.schema import HostingSettings
from liqod.hosting.networkpolicies.compiler import Compiled, compiled
from liqod.hosting.networkpolicies.facts import Bounds, HomeFacts, KnownNamespace, PodElsewhere
from liqod.hosting.tenants.bounds import KnownNetworks, network_policy
from liqod.hosting.tenants.contract import Contract
from liqod.model.names import ISOLATED_LABEL, REMOTE_CLUSTER_LABEL
from liqod.model.records.network import AddressMap, paired, parse_networks
from tests.hosting.networkpolicies.evaluator import Cluster, Endpoint

Level = Literal["tenant", "internet", "all"]
LEVELS: Final[tuple[Level, ...]] = ("tenant", "internet", "all")
OWN: Final = parse_networks(
    ["10.200.0.0/16", "10.201.0.0/16", "10.96.0.0/12", "203.0.113.10", "fdc8::/64", "fdc9::/64", "2001:db8::10"]
)
PEER: Final = parse_networks(["10.64.0.0/16", "10.65.0.0/16", "fd64::/64", "fd65::/64"])
HOME_NETWORKS: Final = ("10.10.0.0/16", "10.11.0.0/16", "fd0a::/64", "fd0b::/64")
PAIRS: Final = paired(HOME_NETWORKS, [str(one) for one in PEER])
HERE: Final = ("10.12.0.0/16", "fd0c::/64")
"""The addresses that home has for pods at the lender."""
NAMESPACES: Final = {
    "shop": {"kubernetes.io/metadata.name": "shop", "team": "a"},
    "billing": {"kubernetes.io/metadata.name": "billing", "team": "b"},
    "away": {"kubernetes.io/metadata.name": "away", "team": "a"},
}
AT_LENDER: Final = {"shop": "shop-rome", "billing": "billing-rome"}
LENDERS_NAMESPACES: Final = {
    **{one: {"kubernetes.io/metadata.name": one, REMOTE_CLUSTER_LABEL: "rome"} for one in AT_LENDER.values()},
    "other-tenant": {"kubernetes.io/metadata.name": "other-tenant", REMOTE_CLUSTER_LABEL: "oslo"},
    "kube-system": {"kubernetes.io/metadata.name": "kube-system"},
    "bank": {"kubernetes.io/metadata.name": "bank", "team": "a"},
}


@attrs.frozen(kw_only=True)
class End:
    """One end: its addresses (IPv4, IPv6) in home's view and in the lender's, and where it is.

    A private or link-local address means something in one cluster alone: home's view of the lender's has none.
    """

    home: tuple[str, str] = ("", "")
    lender: tuple[str, str]
    namespace: str = ""
    labels: Mapping[str, str] = {}
    ports: Mapping[str, tuple[str, int]] = {}
    here: bool = False
    lenders_namespace: str = ""
    node: bool = False

    def at_home(self, six: int) -> Endpoint:
        """Return the end as home sees it."""
        return Endpoint(address=self.home[six], namespace=self.namespace, labels=self.labels, ports=self.ports)

    def at_lender(self, six: int, isolated: str = "") -> Endpoint:
        """Return the end as the lender sees it; the tenant's own pods have the label that was computed for them."""
        namespace = AT_LENDER[self.namespace] if self.here else self.lenders_namespace
        if not namespace:
            return Endpoint(address=self.lender[six], node=self.node)
        labels = {**self.labels, **({ISOLATED_LABEL: isolated} if isolated else {})}
        return Endpoint(address=self.lender[six], namespace=namespace, labels=labels, ports=self.ports)


WEB: Final = End(
    home=("10.12.0.1", "fd0c::1"),
    lender=("10.201.0.1", "fdc9::1"),
    namespace="shop",
    labels={"app": "web"},
    ports={"http": ("TCP", 8080)},
    here=True,
)
ENDS: Final = {
    "same lender, same namespace": End(
        home=("10.12.0.2", "fd0c::2"),
        lender=("10.201.0.2", "fdc9::2"),
        namespace="shop",
        labels={"app": "db", "tier": "gold"},
        ports={"http": ("TCP", 8081)},
        here=True,
    ),
    "same lender, a cache": End(
        home=("10.12.0.4", "fd0c::4"),
        lender=("10.201.0.4", "fdc9::4"),
        namespace="shop",
        labels={"app": "cache", "tier": "gold"},
        here=True,
    ),
    "same lender": End(
        home=("10.12.0.3", "fd0c::3"),
        lender=("10.201.0.3", "fdc9::3"),
        namespace="billing",
        labels={"app": "db", "tier": "gold"},
        ports={"http": ("TCP", 8080)},
        here=True,
    ),
    "home": End(
        home=("10.10.0.5", "fd0a::5"),
        lender=("10.64.0.5", "fd64::5"),
        namespace="shop",
        labels={"app": "db"},
        ports={"http": ("TCP", 9090), "metrics": ("TCP", 8081)},
    ),
    "home, elsewhere": End(
        home=("10.10.7.6", "fd0a:0:0:0:7::6"),
        lender=("10.64.7.6", "fd64:0:0:0:7::6"),
        namespace="away",
        labels={"app": "web", "tier": "gold"},
        ports={"http": ("TCP", 8080)},
    ),
    "other lender": End(
        home=("10.11.0.7", "fd0b::7"),
        lender=("10.65.0.7", "fd65::7"),
        namespace="billing",
        labels={"app": "web", "tier": "gold"},
    ),
    "lender's own pod": End(
        lender=("10.201.0.99", "fdc9::99"),
        lenders_namespace="bank",
        labels={"app": "db", "tier": "gold"},
    ),
    "another tenant's pod": End(
        lender=("10.201.0.98", "fdc9::98"), lenders_namespace="other-tenant", labels={"app": "db"}
    ),
    "lender's name server": End(
        lender=("10.201.0.53", "fdc9::53"),
        lenders_namespace="kube-system",
        labels={"k8s-app": "kube-dns"},
    ),
    "node": End(lender=("10.200.0.1", "fdc8::1"), node=True),
    "node with a public address": End(
        home=("203.0.113.10", "2001:db8::10"), lender=("203.0.113.10", "2001:db8::10"), node=True
    ),
    "API server": End(lender=("10.96.0.1", "fdc8::a1")),
    "metadata": End(lender=("169.254.169.254", "fd00:ec2::254")),
    "internet": End(home=("1.1.1.1", "2606:4700::1"), lender=("1.1.1.1", "2606:4700::1")),
}
ALWAYS: Final = (
    "same lender, same namespace",
    "same lender, a cache",
    "same lender",
    "home",
    "home, elsewhere",
    "other lender",
)
OPEN: Final = {"tenant": {*ALWAYS}, "internet": {*ALWAYS, "internet"}, "all": set(ENDS)}
"""What each level opens to what leaves pods: docs/tenants.md, "What pods may reach"."""


def is_open(direction: str, level: Level, end: str, port: tuple[str, int]) -> bool:
    """Return whether the bounds allow it; what comes in has none."""
    to_name_server = end == "lender's name server" and port[0] in ("UDP", "TCP") and port[1] in (53, 5353)
    return direction == "Ingress" or end in OPEN[level] or to_name_server


def bounds(level: Level) -> Bounds:
    """Return the bounds of a level."""
    made = network_policy("rome", "shop-rome", Contract(HostingSettings(egress=level)), KnownNetworks(OWN, PEER))
    return Bounds(tenant="rome", namespace="shop-rome", egress=made)


def facts(ends: Iterable[End], *, six: bool = True) -> HomeFacts:
    """Return what the lender knows of home."""
    elsewhere = [one for one in ends if one.namespace and not one.here]
    count = 2 if six else 1
    return HomeFacts(
        namespace="shop",
        namespaces=[KnownNamespace(name, labels, AT_LENDER.get(name, "")) for name, labels in NAMESPACES.items()],
        pods=[
            PodElsewhere(
                namespace=one.namespace,
                labels=one.labels,
                addresses=[ip_address(text) for text in one.lender[:count]],
                ports=[(name, *port) for name, port in one.ports.items()],
            )
            for one in elsewhere
        ],
        addresses=AddressMap(PAIRS),
        here=[ip_network(one) for one in HERE[:count]],
    )


def policy(name: str, spec: Any) -> dict[str, Any]:
    """Return a policy of home's namespace."""
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def both(peers: Any, ports: Any = None, **more: Any) -> dict[str, Any]:
    """Return a spec that has one rule, the same for both directions."""
    limits = {} if ports is None else {"ports": ports}
    rules = {"ingress": [{"from": peers, **limits}], "egress": [{"to": peers, **limits}]}
    return {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], **rules, **more}


def compile_all(policies: Sequence[Mapping[str, Any]], level: Level, known: HomeFacts) -> Compiled:
    """Return the policies of the lender."""
    return compiled({one["metadata"]["name"]: one["spec"] for one in policies}, known, bounds(level))


def home_cluster(policies: Sequence[Mapping[str, Any]]) -> Cluster:
    """Return home; its plugin matches pods by address as well."""
    return Cluster(policies=policies, namespaces=NAMESPACES)


def lender_cluster(made: Compiled, *, blocks_match: bool) -> Cluster:
    """Return the lender with what was compiled."""
    return Cluster(policies=made.policies, namespaces=LENDERS_NAMESPACES, blocks_match=blocks_match)
