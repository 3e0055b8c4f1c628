"""What is made of lists that others write: NetworkPolicies of home's, rules of nftables of the endpoints of slices."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from liqod.fabric.agent.kernel.model import DesiredKernel
from liqod.fabric.agent.kernel.rules import nftables
from liqod.fabric.control.agreement.exports import ExportPolicy, assign_exports, exports_as_seen
from liqod.fabric.state.network import Link, Netmap, parse_networks
from liqod.hosting.networkpolicies.compiler import MAX_ENTRIES, compiled
from liqod.hosting.networkpolicies.record import read
from liqod.kubelet.reflection.forge.endpointslice import _called
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import View
from liqod.model.records.network import Export, ExportRequests
from tests.fuzz.cost import Target
from tests.fuzz.targets.fabric import KEY, OWN, _check
from tests.fuzz.targets.hosting import SEEN
from tests.hosting.networkpolicies.world import ENDS, LENDERS_NAMESPACES, WEB, bounds, lender_cluster

LARGEST: Final = 768
"""Bytes of a record that are compiled: what that costs grows with the rules, up to the compiler's own ``MAX_WORK``."""
CLOSED: Final = (
    "lender's own pod",
    "another tenant's pod",
    "node",
    "node with a public address",
    "API server",
    "metadata",
    "internet",
)
"""What the bounds of the level ``tenant`` never open (docs/tenants.md, "What pods may reach")."""
BOUNDS: Final = bounds("tenant")
PORTS: Final = (("TCP", 80), ("TCP", 10250), ("UDP", 53))


def policies(data: bytes) -> None:
    """A record of home's policies, through to those here: no rule opens what this cluster's bounds do not."""
    sent = read(data[:LARGEST], SEEN)
    made = compiled(sent.specs, sent.facts, attrs.evolve(BOUNDS, withheld=sent.withheld))
    for refused in made.refused:
        assert refused.reason.isalpha()
        assert refused.message
    names = [one["metadata"]["name"] for one in made.policies]
    assert len(names) == len(set(names))
    for one in made.policies:
        assert one["metadata"]["namespace"] == "shop-rome"
        assert len(one["metadata"]["name"]) <= 253
        # A rule without peers is for everybody.
        for rule in one["spec"].get("egress") or ():
            assert rule["to"], one
            assert len(rule["to"]) <= MAX_ENTRIES
    here = lender_cluster(made, blocks_match=True)
    pod = WEB.at_lender(0, made.isolated(WEB.labels))
    assert pod.namespace in LENDERS_NAMESPACES
    for name in CLOSED:
        for port in PORTS:
            assert not here.allows("Egress", pod, ENDS[name].at_lender(0), port), (name, port)


class _Port(View, frozen=True):
    protocol: str = ""
    port: int | None = None


class _Endpoint(View, frozen=True):
    addresses: list[str] = []


class Slice(View, frozen=True):
    """An EndpointSlice as an API server lets it be written, and what a record exports already."""

    endpoints: list[_Endpoint] = []
    ports: list[_Port] = []
    held: list[Export] = []


def slices(data: bytes) -> None:
    """Endpoints of a slice at home: not exported, or addresses in rules of which no word is theirs."""
    try:
        found = msgspec.json.decode(data, type=Slice)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    called = _called({"ports": [{"protocol": one.protocol, "port": one.port} for one in found.ports]})
    addresses = {address for one in found.endpoints for address in one.addresses}
    wanted = frozenset((address, port) for address in addresses for port in called)
    exported: list[Export] = []
    for complete in (False, True):
        exported, left_out = assign_exports(POLICY, exported or found.held, ExportRequests(wanted, complete))
        assert not {one.address for one in exported} & set(left_out)
    assert {one.address for one in exported} <= addresses
    seen = exports_as_seen(exported, EXTERNAL.ours, EXTERNAL.seen)
    real = [ipaddress.ip_address(one.real) for one in seen]
    for address in real:
        assert not any(address in network for network in NEVER if network.version == address.version), address
        assert not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)
    # Where the policy is closed what is no pod of a peer has ports.
    assert all(one.ports or ipaddress.ip_address(one.real) in POLICY.transit[0] for one in seen)
    _check(nftables.render(attrs.evolve(WANTED, links=(attrs.evolve(LINK, exports=seen),))))


EXTERNAL: Final = Netmap(*parse_networks(["10.70.0.0/20", "10.81.0.0/20"]))
POLICY: Final = ExportPolicy(
    pods=tuple(parse_networks(["10.201.0.0/16"])),
    services=tuple(parse_networks(["10.96.0.0/12"])),
    externals=(EXTERNAL.ours,),
    peer=tuple(parse_networks(["10.66.0.0/16"])),
    transit=tuple(parse_networks(["10.67.0.0/16"])),
    foreign=tuple(parse_networks(["10.68.0.0/20"])),
    closed=True,
)
NEVER: Final = (*POLICY.pods, *POLICY.services, *POLICY.externals, *POLICY.peer, *POLICY.foreign)
LINK: Final = Link(
    peer=ClusterID("milan"),
    public_key=KEY,
    endpoint="192.0.2.7:5871",
    remote=tuple(parse_networks(["10.66.0.0/16", "10.68.0.0/20"])),
    local=(Netmap(*parse_networks(["10.201.0.0/16", "10.80.0.0/16"])),),
    gateway=Netmap(*parse_networks(["10.70.0.1/32", "10.81.0.1/32"])),
    mtu=1420,
    pods=frozenset(),
    external=EXTERNAL,
)
WANTED: Final = DesiredKernel(
    device="liqod",
    create=("ip", "link"),
    listen_port=5871,
    probe_port=5872,
    public_key=OWN,
    private_key="secret",
    mtu=1420,
    addresses=tuple(parse_networks(["10.70.0.1/32"])),
)
_POLICIES: Final[Mapping[str, Any]] = {
    "policies": [
        {
            "name": "web",
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]}],
                "egress": [
                    {"to": [{"podSelector": {"matchLabels": {"app": "db"}}}], "ports": [{"port": 80, "endPort": 90}]},
                    {"to": [{"ipBlock": {"cidr": "10.10.0.0/16", "except": ["10.10.7.0/24"]}}]},
                ],
            },
        }
    ],
    "namespaces": [{"name": "shop", "labels": {"team": "a"}}],
    "pods": [{"namespace": "shop", "labels": {"app": "db"}, "addresses": ["10.64.0.7", "10.96.0.1"]}],
}
TARGETS: Final[Mapping[str, Target]] = {"policies": policies, "slices": slices}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "policies": [
        msgspec.json.encode(_POLICIES),
        b'{"policies":[{"name":"open","spec":{"podSelector":{},"egress":[{}]}}]}',
        b'{"policies":[{"name":"all","spec":{"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"0.0.0.0/0"}}]}]}}]}',
    ],
    "slices": [
        b'{"endpoints":[{"addresses":["192.0.2.9"]},{"addresses":["10.67.0.9"]}],'
        b'"ports":[{"protocol":"TCP","port":80}]}',
        b'{"endpoints":[{"addresses":["10.96.0.1","169.254.169.254","::ffff:10.96.0.1"]}],"ports":[{"port":443}]}',
        b'{"endpoints":[{"addresses":["198.51.100.7"]}],"ports":[],'
        b'"held":[{"address":"198.51.100.7","external":"10.70.0.9","ports":["TCP/80","x"]}]}',
    ],
}
