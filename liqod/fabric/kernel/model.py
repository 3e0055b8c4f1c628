"""What the fabric wants of the kernel and what it sees there, as values. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

import attrs

from liqod.model.ids import ClusterID
from liqod.model.records.network import Network

TABLE: Final = 18952
"""The number of our routing table, and the priority of the one policy rule (per IP version) that leads to it."""
INWARD: Final = 18951
"""The same for what comes out of the tunnel and goes on to pods of other nodes."""


@attrs.frozen
class Pair:
    """A network of ours, and how the peer sees it."""

    ours: Network
    seen: Network


def first_of(external: Network) -> Network:
    """Return the first host address of an external network, as a network of one address: the gateway's."""
    return ipaddress.ip_network(external.network_address + 1)


@attrs.frozen
class Exported:
    """A single address of ours that is no pod's: ``seen`` is what the peer calls, ``real`` where that leads.

    ``ports`` are the pairs (protocol, port) that may be called there, in the words of nft; none: everything.
    """

    seen: str
    real: str
    ports: frozenset[tuple[str, int]] = frozenset()


@attrs.frozen
class Link:
    """One peer with which all is agreed.

    ``remote`` are the peer's networks as we see them; ``gateway`` is the single address that stands for this host and
    for everything here that is no pod. ``endpoint`` is "address:port", empty where the peer calls us. ``pods`` are the
    addresses of our pods that may talk with the peer, None for all. ``mtu`` is that of the path, 0 for the device's.
    ``next_key`` is taken as well, without any network: when the peer has it, handshakes succeed at once.
    ``external`` is our network of single addresses, and ``exports`` what the peer reaches by it besides the gateway;
    ``six`` is such a network of IPv6 beside one of IPv4.
    """

    peer: ClusterID
    public_key: str
    endpoint: str
    remote: tuple[Network, ...]
    local: tuple[Pair, ...]
    gateway: Pair | None = None
    mtu: int = 0
    pods: frozenset[str] | None = None
    next_key: str = ""
    external: Pair | None = None
    exports: tuple[Exported, ...] = ()
    six: Pair | None = None

    @property
    def gateways(self) -> tuple[Pair, ...]:
        """The addresses that stand for this host, by IP version one at most."""
        second = () if self.six is None else (Pair(first_of(self.six.ours), first_of(self.six.seen)),)
        return (*(() if self.gateway is None else (self.gateway,)), *second)

    @property
    def externals(self) -> tuple[Pair, ...]:
        """Our networks of single addresses, by IP version one at most."""
        return tuple(pair for pair in (self.external, self.six) if pair is not None)


@attrs.frozen
class End:
    """Another host of this cluster on the overlay: its address on the hosts' network, and the networks behind it."""

    address: str
    networks: tuple[Network, ...]


@attrs.frozen
class Overlay:
    """What connects the hosts of one cluster: VXLAN from each node to the gateway, without learning or flooding.

    ``table`` is the routing table with the ways to the ends, ``source`` the device whose packets alone look there,
    empty for all packets. ``mtu`` is the device's, ``path_mtu`` the lower one behind its other end, 0 for none.
    """

    device: str
    vni: int
    port: int
    local: str
    mtu: int
    ends: tuple[End, ...]
    table: int
    source: str = ""
    path_mtu: int = 0


@attrs.frozen
class Hop:
    """A route over the overlay."""

    gateway: str
    device: str
    mtu: int = 0


@attrs.frozen
class SeenOverlay:
    """The overlay as the kernel has it: its device, hosts by hardware address, neighbours, routes, policy rules."""

    device: Device
    vni: int = 0
    port: int = 0
    local: str = ""
    hardware: str = ""
    loose: bool = False
    hosts: Mapping[str, str] = attrs.field(factory=dict)
    neighbours: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class SeenTable:
    """The routing table of an overlay, and the IP versions whose policy rule leads there."""

    routes: Mapping[Network, Hop] = attrs.field(factory=dict)
    policies: frozenset[int] = frozenset()


@attrs.frozen
class Desired:
    """All that the fabric wants of this host. ``create`` is the command that makes the device where it is missing.

    ``moved`` says that the host lost an address since the last look.
    """

    device: str
    create: tuple[str, ...]
    listen_port: int
    probe_port: int
    public_key: str
    private_key: str = attrs.field(repr=False)
    mtu: int
    addresses: tuple[Network, ...]
    links: tuple[Link, ...] = ()
    keepalive: int = 10
    overlay: Overlay | None = None
    moved: bool = False


@attrs.frozen
class Device:
    """The tunnel device as a network interface."""

    mtu: int
    up: bool
    addresses: frozenset[Network] = frozenset()
    kind: str = ""


@attrs.frozen
class TunnelPeer:
    """One peer of the device: ``handshake`` is when the last one was, in seconds since 1970, 0 for never."""

    endpoint: str
    allowed: frozenset[Network]
    handshake: int = 0
    received: int = 0
    sent: int = 0


@attrs.frozen
class Tunnel:
    """The device as WireGuard sees it; peers by public key."""

    public_key: str
    listen_port: int
    peers: Mapping[str, TunnelPeer]


@attrs.frozen
class Route:
    """A route of our table."""

    device: str
    mtu: int = 0
    source: str = ""


@attrs.frozen
class Rules:
    """The nftables table: the mark of the script that made it, how many rules it has, its sets by name.

    ``settled`` are the marks of the links whose translation holds for all connections (see ``fabric.tracked``).
    """

    mark: str
    count: int
    sets: Mapping[str, frozenset[str]]
    settled: frozenset[str] = frozenset()


@attrs.frozen
class Observed:
    """What there is now; ``policies`` are the IP versions whose policy rule leads to our table."""

    device: Device | None = None
    tunnel: Tunnel | None = None
    policies: frozenset[int] = frozenset()
    routes: Mapping[Network, Route] = attrs.field(factory=dict)
    rules: Rules | None = None
    overlay: SeenOverlay | None = None
    inward: SeenTable = SeenTable()


@attrs.frozen
class NodeDesired:
    """All that the fabric wants of a host that is no gateway.

    ``pods`` are the networks of this cluster's pods, which keep their addresses on the way to the ``remote`` ones.
    """

    overlay: Overlay
    pods: tuple[Network, ...]
    remote: tuple[Network, ...]


@attrs.frozen
class NodeObserved:
    """What there is of it on such a host."""

    overlay: SeenOverlay | None = None
    outward: SeenTable = SeenTable()
    rules: Rules | None = None


@attrs.frozen
class Step:
    """One command of a plan, with its standard input; ``secret`` input is never shown.

    A failure whose text has ``harmless`` in it tells that there was nothing to do.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    secret: bool = False
    harmless: str = ""

    def __str__(self) -> str:
        text = f"# {' '.join(self.argv)}\n"
        if self.secret:
            return text + "(a private key)\n"
        return text + self.stdin
