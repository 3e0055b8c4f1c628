"""Views of the network's records, and how an address of one cluster reads in another. Pure.

``local`` holds a cluster's own networks, ``remote`` the peer's networks as it reports them, ``remap`` the peer's
networks as mapped here and ``ack`` ours as mapped by the peer. Lists of networks are aligned: the n-th of one
corresponds to the n-th of the other, with the same prefix length.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import msgspec

from liqod.model.addresses import Address, parse_ip
from liqod.model.objects.meta import Condition, Object, View

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_STEPS: Final = 25
_STEP_SIX: Final = 5
"""To prefixes of 8 bits: from 32 bits one by one, from 128 by five."""

LOSS_SCALE: Final = ((0.0, "0 %"), (0.1, "under 10 %"), (0.5, "under 50 %"))
"""Shares of packets that are lost, and how a tunnel's status has each: the words of the first that is not exceeded."""
LOSS_ABOVE: Final = "over 50 %"
MUCH_LOSS: Final[Mapping[str, str]] = {"under 50 %": "10 to 50 %", LOSS_ABOVE: LOSS_ABOVE}
"""What is more than a path between clusters should lose, and the words for it where it stands alone."""
SESSION_LIFETIME: Final = 180
"""Seconds after a handshake in which WireGuard uses its keys (REJECT_AFTER_TIME, WireGuard whitepaper, section 6.1)."""
MAX_NETWORKS: Final = 16
MAX_ENDPOINTS: Final = 8
MAX_SERVICE_NETWORKS: Final = 4
"""Networks of Services; Kubernetes has two without additional ServiceCIDRs, one for each IP version."""


class Subnets(View, frozen=True):
    """The networks of one cluster in one view; a reason instead says why there are none.

    ``known_key`` is the next key of that cluster's tunnel that the other one takes already. ``external_six`` is the
    external network of IPv6 where pods have both versions, and ``external_cidr`` is of IPv4. ``service_cidrs`` are the
    networks of its Services; none where they cannot be called by their addresses from the other cluster.
    """

    pod_cidrs: list[str] = msgspec.field(name="podCIDRs", default=[])
    external_cidr: str = msgspec.field(name="externalCIDR", default="")
    reason: str = ""
    message: str = ""
    known_key: str = ""
    external_six: str = msgspec.field(name="externalCIDR6", default="")
    service_cidrs: list[str] = msgspec.field(name="serviceCIDRs", default=[])


class TunnelSide(View, frozen=True):
    """A cluster's report: its networks and its tunnel end; without an endpoint it cannot be dialled.

    ``next_key`` is the key that its end will have next, empty while that is not planned.
    """

    pod_cidrs: list[str] = msgspec.field(name="podCIDRs", default=[])
    external_cidr: str = msgspec.field(name="externalCIDR", default="")
    endpoints: list[str] = []
    public_key: str = ""
    mtu: int = 0
    next_key: str = ""
    external_six: str = msgspec.field(name="externalCIDR6", default="")
    service_cidrs: list[str] = msgspec.field(name="serviceCIDRs", default=[])


class Export(View, frozen=True):
    """An address that is none of our pods', and the one of our external network by which a peer reaches it.

    ``ports`` are what the peer may reach there, such as "TCP/80"; none: everything.
    """

    address: str = ""
    external: str = ""
    ports: list[str] = []


class Decision(View, frozen=True):
    """Whether there is a tunnel to a peer, and why: decided once with ``[network] mode = "auto"``, and kept.

    ``mode`` is one of ``UNDECIDED``, ``TUNNEL`` and ``NO_TUNNEL``; empty where the settings alone say it.
    """

    mode: str = ""
    reason: str = ""
    message: str = ""


UNDECIDED: Final = "auto"
TUNNEL: Final = "wireguard"
NO_TUNNEL: Final = "none"
NO_TUNNEL_HERE: Final = "NoTunnel"
"""The reason in a cluster's answer (``NetworkAck``) by which it says that it has no tunnel."""


class DirectGrant(View, frozen=True):
    """A direct connection with the peer that a home asked for, which borrows here and there.

    ``pod_cidrs`` are the networks with its pods at the peer, as the peer names them; ``request`` is the newest one of
    that home. ``confirmed``: the peer has agreed as well, by its own word; nothing passes before.
    """

    home: str = ""
    request: int = 0
    pod_cidrs: list[str] = msgspec.field(name="podCIDRs", default=[])
    confirmed: bool = False


class DirectState(View, frozen=True):
    """How a lender of ours is connected with another one, ``peer``: directly, or by way of this cluster, and why.

    ``phase`` is one of ``DIRECT``, ``ASKED`` and ``BY_HOME``.
    """

    peer: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""


DIRECT: Final = "Direct"
ASKED: Final = "Asked"
BY_HOME: Final = "ByHome"
MAX_DIRECT: Final = 1
"""Homes at most whose pods talk straight with those at one peer: addresses do not say whose pod it is at the other end,
so that pods of two homes would reach each other. The schema has room for more."""
MAX_OTHERS: Final = 64
"""Other lenders at most of which a lender's record says how they are connected; the schema has the same bound."""


class NetworkConfigSpec(View, frozen=True):
    """Written by the fabric: what is sent to the peer about both clusters' networks, and the exported addresses."""

    cluster_id: str = msgspec.field(name="clusterID", default="")
    local: TunnelSide = TunnelSide()
    remap: Subnets = Subnets()
    exports: list[Export] = []
    decision: Decision = Decision()


class NetworkConfigStatus(View, frozen=True):
    """``remote`` and ``ack`` are received from the peer; phase, reason and message are set by the fabric.

    ``silent``: the peer announced no network in the time that it has while ``mode = "auto"`` decides.
    ``direct``: the homes whose pods here talk straight with those at the peer, as these asked. ``others``: how the
    peer, a lender of ours, is connected with our other lenders.
    """

    remote: TunnelSide = TunnelSide()
    ack: Subnets = Subnets()
    silent: bool = False
    phase: str = ""
    reason: str = ""
    message: str = ""
    direct: list[DirectGrant] = []
    others: list[DirectState] = []


class NetworkConfig(Object, frozen=True):
    """The exchange of addresses with one peer, named by its cluster ID; it also keeps what was allocated to it."""

    spec: NetworkConfigSpec = NetworkConfigSpec()
    status: NetworkConfigStatus = NetworkConfigStatus()


class Gateway(View, frozen=True):
    """The near end of the overlay (VXLAN), to which the hosts of this cluster send packets for the peer."""

    address: str = ""
    vni: int = 0
    port: int = 0


class SeenExport(View, frozen=True):
    """An exported address as the peer calls it, and where it leads; ``ports`` as in ``Export``."""

    address: str = ""
    target: str = ""
    ports: list[str] = []


class DirectPods(View, frozen=True):
    """A home whose pods here talk straight with those at the peer.

    ``networks`` hold those there, as they are seen here; ``pods`` are the addresses of those here (``detailed``).
    """

    home: str = ""
    networks: list[str] = []
    pods: list[str] = []


class TunnelEndpointSpec(View, frozen=True):
    """What both clusters agreed on: the tunnel's far end and the addresses in both views.

    From ``mtu`` on it is what a network agent in a process of its own needs besides (``detailed``): the peer's MTU, the
    key that its end will have next, what is exported to it, whether only ``allowed_pods`` may talk with it
    (``closed``), and the pods of the peer to probe, by their addresses here. ``guests`` are the addresses of the peer's
    own pods here; agents on all hosts of this cluster follow them. ``own_services`` are addresses of Services here
    which those pods use, though they lie in the network of the peer's Services. ``offloaded`` are the addresses here of
    our own pods in the peer's cluster.
    ``direct`` are the homes whose pods in both clusters talk by this tunnel.
    """

    cluster_id: str = msgspec.field(name="clusterID", default="")
    endpoint: str = ""
    public_key: str = ""
    allowed_ips: list[str] = msgspec.field(name="allowedIPs", default=[])
    local: Subnets = Subnets()
    local_seen: Subnets = Subnets()
    remote: Subnets = Subnets()
    remote_seen: Subnets = Subnets()
    gateway: Gateway = Gateway()
    detailed: bool = False
    mtu: int = 0
    next_key: str = ""
    exports: list[SeenExport] = []
    closed: bool = False
    allowed_pods: list[str] = []
    probe_pods: list[str] = []
    guests: list[str] = []
    own_services: list[str] = []
    offloaded: list[str] = []
    direct: list[DirectPods] = []


class TunnelEndpointStatus(View, frozen=True):
    """State of the tunnel: Connected only while packets pass. ``cut`` names the place where they are lost.

    ``endpoint`` is where the peer's packets come from, ``accepted_key`` the next key that the device accepts already.
    ``direct`` are the homes of ``spec.direct`` for which it is carried out.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    cut: str = ""
    device: str = ""
    implementation: str = ""
    handshake: str = ""
    rtt: str = ""
    loss: str = ""
    path_mtu: int = msgspec.field(name="pathMTU", default=0)
    conditions: list[Condition] = []
    endpoint: str = ""
    accepted_key: str = ""
    direct: list[str] = []


class TunnelEndpoint(Object, frozen=True):
    """The tunnel to one peer, named by its cluster ID."""

    spec: TunnelEndpointSpec = TunnelEndpointSpec()
    status: TunnelEndpointStatus = TunnelEndpointStatus()


class OverlayHost(View, frozen=True):
    """Another host of this cluster on the overlay, and the networks behind it."""

    address: str = ""
    networks: list[str] = []


class NetworkGatewaySpec(View, frozen=True):
    """Written by control: the gateway's own addresses on the tunnels, and the other hosts on the overlay."""

    addresses: list[str] = []
    hosts: list[OverlayHost] = []


class NetworkGatewayStatus(View, frozen=True):
    """Written by the network agent: its host, as far as control decides from it, and the public halves of its keys.

    ``networks`` are what the host itself needs or reaches, which no peer may be given; ``ready`` is whether the kernel
    is as the records say, ``message`` why not. ``lacking`` is why that host can hold no tunnel, and what to do.
    """

    address: str = ""
    public_key: str = ""
    next_key: str = ""
    mtu: int = 0
    networks: list[str] = []
    ready: bool = False
    message: str = ""
    lacking: str = ""


class NetworkGateway(Object, frozen=True):
    """The gateway of this cluster; there is one record, ``gateway``."""

    spec: NetworkGatewaySpec = NetworkGatewaySpec()
    status: NetworkGatewayStatus = NetworkGatewayStatus()


GATEWAY_NAME: Final = "gateway"
NETWORK_LEASE: Final = "liqod-network"
"""The lease of the gateway's network agent, where it is a process of its own; in the daemon's namespace."""
MAX_PODS: Final = 16384
"""Pods that may talk with one peer at most, in a record; the schema has the same bound."""
MAX_GUESTS: Final = 8192
"""Addresses of one peer's pods here at most, in a record; the schema has the same bound."""
MAX_OWN_SERVICES: Final = 4096
"""Addresses of Services here that one peer's pods use, in a record; the schema has the same bound."""
MAX_HOSTS: Final = 4096
"""Hosts on the overlay at most, in a record; the schema has the same bound."""
MAX_HOST_NETWORKS: Final = 1024
"""Networks of the gateway's host at most, in a record; the schema has the same bound."""


@attrs.frozen
class ExportRequests:
    """The addresses of other than our pods that a peer has to reach, each with what is called there ("TCP/80").

    A pair without that text asks for everything at the address. While they are not ``complete`` there may be more.
    """

    wanted: frozenset[tuple[str, str]] = frozenset()
    complete: bool = False


@attrs.frozen
class AddressMap:
    """How the addresses of a cluster (first of each pair) read in another one (second); host bits are kept.

    An address in none of the networks has no translation: the answer is an empty text.
    """

    pairs: tuple[tuple[Network, Network], ...] = ()

    def seen(self, address: str) -> str:
        """Return how an address of that cluster reads here."""
        return _translate(address, self.pairs)

    def original(self, address: str) -> str:
        """Return the address of that cluster behind one that is used here."""
        return _translate(address, tuple((after, before) for before, after in self.pairs))


def remote_addresses(config: NetworkConfig) -> AddressMap:
    """Return how the peer's pod addresses read here; without an agreement yet, a map that translates nothing."""
    return AddressMap(paired(config.status.remote.pod_cidrs, config.spec.remap.pod_cidrs))


def own_addresses(config: NetworkConfig) -> AddressMap:
    """Return how our pod addresses read at the peer; without an agreement yet, a map that translates nothing."""
    return AddressMap(paired(config.spec.local.pod_cidrs, config.status.ack.pod_cidrs))


def exported_addresses(config: NetworkConfig) -> dict[str, str]:
    """Return the addresses that were exported to the peer, each with the one that it is reached by there."""
    local, ack = config.spec.local, config.status.ack
    both = ((local.external_cidr, ack.external_cidr), (local.external_six, ack.external_six))
    outward = AddressMap(tuple(pair for ours, seen in both if ours and seen for pair in paired([ours], [seen])))
    return {one.address: seen for one in config.spec.exports if (seen := outward.seen(one.external))}


def paired(before: Sequence[str], after: Sequence[str]) -> tuple[tuple[Network, Network], ...]:
    """Return aligned networks as pairs; lists that do not fit each other give none."""
    if len(before) != len(after):
        return ()
    try:
        pairs = tuple(
            (ipaddress.ip_network(one), ipaddress.ip_network(two)) for one, two in zip(before, after, strict=True)
        )
    except ValueError:
        return ()
    fitting = all(one.version == two.version and one.prefixlen == two.prefixlen for one, two in pairs)
    return pairs if fitting else ()


def shift(address: Address, before: Network, after: Network) -> Address:
    """Move an address from one network to another of the same size, keeping its host bits."""
    return after[int(address) - int(before.network_address)]


def _translate(text: str, pairs: tuple[tuple[Network, Network], ...]) -> str:
    address = parse_ip(text)
    if address is None:
        return ""
    for before, after in pairs:
        if address.version == before.version and address in before:
            return str(shift(address, before, after))
    return ""


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Return those texts that are networks or single addresses; others are left out."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return found


def covering(networks: Iterable[Network], most: int) -> list[Network]:
    """Return at most ``most`` networks, in order, that hold all of these; 512 at least are always enough.

    Adjacent ones become one. Where they are too many still, the narrowest are widened, bit by bit, so that none is left
    out: what is avoided may be more than what is used, never less.
    """
    every = set(networks)
    for step in range(_STEPS):
        shortest = {4: 32 - step, 6: 128 - _STEP_SIX * step}
        wide = {
            one if one.prefixlen <= shortest[one.version] else one.supernet(new_prefix=shortest[one.version])
            for one in every
        }
        four = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv4Network))
        six = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv6Network))
        found: list[Network] = [*four, *six]
        if len(found) <= most:
            return found
    raise ValueError(f"{most} is too few")
