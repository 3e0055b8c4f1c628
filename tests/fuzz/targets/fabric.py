"""Records of the network on their way to the kernel: whatever they say, programs get words of a known grammar."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liqod.fabric.agent.desired import RecordLimits, desired_network
from liqod.fabric.agent.kernel import plan
from liqod.fabric.agent.kernel.model import DesiredKernel, DesiredNodeKernel, ObservedKernel, Overlay
from liqod.fabric.agent.kernel.rules import nftables
from liqod.fabric.agent.kernel.vxlan import device_name
from liqod.fabric.agent.node_view import node_desired
from liqod.fabric.control.agreement.agreement import LocalNetwork, agree, allocation
from liqod.fabric.state.network import contains, parse_networks
from liqod.fabric.state.validation import check_side
from liqod.model.objects.meta import ObjectMeta, View
from liqod.model.records.network import (
    Gateway,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    NetworkGatewaySpec,
    OverlayHost,
    SeenExport,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointSpec,
    TunnelSide,
)
from liqod.model.records.offer import Refusal
from tests.fuzz.cost import Target

OWN: Final = "A" * 43 + "="
KEY: Final = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
LIMITS: Final = RecordLimits(
    given=tuple(parse_networks(["10.64.0.0/10", "fd4c:6971:6f00::/40"])),
    needed=tuple(parse_networks(["10.64.0.53/32", "192.0.2.1/32"])),
    externals=tuple(parse_networks(["10.70.0.0/20", "fd4c:6971:6e00::/112"])),
    keys=frozenset({OWN}),
    closed=True,
)
LOCAL: Final = LocalNetwork(
    pods=tuple(parse_networks(["10.201.0.0/16", "fd00:201::/48"])),
    external=parse_networks(["10.70.0.0/20"])[0],
    reserved=LIMITS.needed[:1],
    pools=LIMITS.given,
    endpoints=("192.0.2.1:5871",),
    public_key=OWN,
    mtu=1420,
    six=parse_networks(["fd4c:6971:6e00::/112"])[0],
)

# From the manuals of nft(8), ip(8), bridge(8) and wg(8): the words that our scripts are made of.
WORDS: Final = frozenset(
    """
    table inet liqod delete add element set map type elements chain filter nat hook priority policy accept drop
    prerouting postrouting input forward dstnat srcnat guard to_pods from_pods to_guests ipv4_addr ipv6_addr
    inet_proto inet_service iifname oifname ip ip6 saddr daddr dnat snat prefix to ct state established related
    original udp tcp sctp icmp icmpv6 echo-request dport th meta l4proto masquerade flags syn rst option maxseg
    size rt mtu liqodx permanent fdb self lladdr via dst onlink neigh nud inet6 link dev up addrgenmode none
    address route replace src lock lookup pref rule protocol kernel iif Peer PublicKey AllowedIPs
    PersistentKeepalive - / : . = != to_services from_services raw & |
    """.split()  # noqa: SIM905
)
_WORD: Final = re.compile(
    r"@?(?:pods|guests|home|self|own|offloaded|real|whole|ports|hosts)(?:_[0-9a-f]{64})?_[46]"  # names
    r"|(?:plan|nat)_[0-9a-f]{16}"
    r"|[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=|-?[0-9]{1,8}|-[46]"  # keys of WireGuard, numbers, options
    r"|02(?::[0-9a-f]{2}){5}"
)
_ENDPOINT: Final = re.compile(r"^Endpoint = (?:\[([0-9a-f:.]+)\]|([0-9.]+)):[0-9]{1,5}\n", re.MULTILINE)
_SEPARATORS: Final = re.compile(r'[\s{}\[\],;"]+')


class Records(View, frozen=True):
    """All records that a network agent reads."""

    gateway: NetworkGatewaySpec = NetworkGatewaySpec()
    tunnels: list[TunnelEndpoint] = []


def tunnels(data: bytes) -> None:
    """TunnelEndpoints and the gateway's record: refused by name, or scripts in which no word is theirs."""
    try:
        records = msgspec.json.decode(data, type=Records)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    derived = desired_network(records.gateway, records.tunnels, LIMITS, 1420)
    for refusal in derived.refused.values():
        assert refusal.reason.isalpha()
        assert refusal.message
    network = derived.network
    overlay = Overlay(device_name("liqod"), 18952, 4790, "192.0.2.1", 1370, network.vteps, 18952, source="liqod")
    wanted = DesiredKernel(
        device="liqod",
        create=("ip", "link"),
        listen_port=5871,
        probe_port=5872,
        public_key=OWN,
        private_key="secret",
        mtu=network.mtu,
        addresses=network.addresses,
        links=network.links,
        overlay=overlay,
    )
    for step in plan.plan(wanted, ObservedKernel(), 0.0):
        if not step.secret:
            _check(step.stdin)
        for word in step.argv[1:]:
            assert word.isascii() and word.isprintable() and " " not in word, step.argv
    allowed = (*LIMITS.given, *LIMITS.service_pools)
    for link in network.links:
        for one in link.remote:
            assert any(contains(wide, one) for wide in allowed)


def node(data: bytes) -> None:
    """The same records on a host that is no gateway."""
    try:
        records = msgspec.json.decode(data, type=Records)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    wanted = node_desired("liqod", "192.0.2.9", 1500, records.tunnels)
    if wanted is not None:
        assert isinstance(wanted, DesiredNodeKernel)
        _check(nftables.render(wanted))


def announced(data: bytes) -> None:
    """What a peer announces of its network: refused by name, or a link that both sides can hold."""
    try:
        config = msgspec.json.decode(data, type=NetworkConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    try:
        check_side(config.status.remote, OWN, ())
        remap = allocation(LOCAL, config, [], [])
        spec = NetworkConfigSpec(cluster_id="milan", local=LOCAL.side, remap=remap)
        agree(LOCAL, msgspec.structs.replace(config, spec=spec), remap, ())
    except Refusal as refusal:
        assert refusal.reason.isalpha()
        assert refusal.message


def _check(script: str) -> None:
    """Raise AssertionError for a word that is neither of the grammar nor an address, a network, a number or a name."""
    for word in _SEPARATORS.split(_ENDPOINT.sub(_host_of, script)):
        if word and word not in WORDS and not _WORD.fullmatch(word):
            try:
                ipaddress.ip_network(word, strict=False)
            except ValueError:
                raise AssertionError(f"a word that is not ours: {word!r}") from None


def _host_of(line: re.Match[str]) -> str:
    """Return the host of an endpoint, whose form is its own, as a line of that one word."""
    host = ipaddress.ip_address(line[1] or line[2])
    assert (host.version == 6) == bool(line[1])
    return f"{host}\n"


def _tunnel(name: str, **changes: Any) -> TunnelEndpoint:
    spec = TunnelEndpointSpec(
        cluster_id=name,
        endpoint="192.0.2.7:5871",
        public_key=KEY,
        allowed_ips=["10.64.0.0/16", "10.81.0.0/20"],
        local=Subnets(pod_cidrs=["10.201.0.0/16"], external_cidr="10.70.0.0/20"),
        local_seen=Subnets(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20"),
        remote=Subnets(pod_cidrs=["10.201.0.0/16"], external_cidr="10.70.0.0/20"),
        remote_seen=Subnets(pod_cidrs=["10.66.0.0/16"], external_cidr="10.67.0.0/20"),
        gateway=Gateway(address="192.0.2.1", vni=18952, port=4790),
        detailed=True,
        mtu=1400,
        exports=[SeenExport(address="10.81.0.9", target="198.51.100.9", ports=["TCP/80", "UDP/53"])],
        closed=True,
        allowed_pods=["10.201.0.5"],
        probe_pods=["10.66.0.9"],
        guests=["10.201.0.6"],
    )
    return TunnelEndpoint(metadata=ObjectMeta(name=name), spec=msgspec.structs.replace(spec, **changes))


_GATEWAY: Final = NetworkGatewaySpec(
    addresses=["10.70.0.1/32", "fd4c:6971:6e00::1/128"],
    hosts=[OverlayHost(address="192.0.2.11", networks=["192.0.2.11/32", "10.201.1.0/24"])],
)
_SIX: Final = {
    "local": Subnets(pod_cidrs=["fd00:201::/48"], external_six="fd4c:6971:6e00::/112", external_cidr="10.70.0.0/20"),
    "local_seen": Subnets(pod_cidrs=["fd00:80::/48"], external_six="fd00:81::/112", external_cidr="10.81.0.0/20"),
    "remote_seen": Subnets(pod_cidrs=["fd4c:6971:6f01::/48"]),
    "guests": ["fd00:201::6"],
    "allowed_pods": ["fd00:201::5"],
    "exports": [SeenExport(address="fd00:81::9", target="2001:db8::9", ports=["TCP/80"])],
    "endpoint": "[2001:db8::7]:5871",
    "next_key": "B" * 42 + "A=",
    "public_key": "C" * 42 + "A=",
}
_SIDE: Final = TunnelSide(
    pod_cidrs=["10.201.0.0/16", "fd00:201::/48"],
    external_cidr="10.70.0.0/20",
    endpoints=["192.0.2.7:5871", "[2001:db8::7]:5871"],
    public_key=KEY,
    mtu=1400,
)
_ACK: Final = Subnets(pod_cidrs=["10.80.0.0/16", "fd00:80::/48"], external_cidr="10.81.0.0/20")
TARGETS: Final[Mapping[str, Target]] = {"nft": tunnels, "nft-node": node, "network": announced}
_RECORDS: Final = [
    msgspec.json.encode(Records(gateway=_GATEWAY, tunnels=[_tunnel("milan")])),
    msgspec.json.encode(Records(gateway=_GATEWAY, tunnels=[_tunnel("rome", **_SIX)])),
    msgspec.json.encode(Records(tunnels=[_tunnel("milan", closed=False, endpoint=""), _tunnel("turin", **_SIX)])),
]
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "nft": _RECORDS,
    "nft-node": _RECORDS,
    "network": [
        msgspec.json.encode(
            NetworkConfig(metadata=ObjectMeta(name="milan"), status=NetworkConfigStatus(remote=_SIDE, ack=_ACK))
        ),
        b'{"status":{"remote":{"podCIDRs":["10.0.0.0/8"],"publicKey":"%s","mtu":1280}}}' % KEY.encode(),
    ],
}
