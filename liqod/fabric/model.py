"""What the fabric wants of the kernel and what it sees there, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from liqod.model.ids import ClusterID
from liqod.model.network import Network

TABLE: Final = 18952
"""The number of our routing table, and the priority of the one policy rule (per IP version) that leads to it."""


@attrs.frozen
class Pair:
    """A network of ours, and how the peer sees it."""

    ours: Network
    seen: Network


@attrs.frozen
class Link:
    """One peer with which all is agreed.

    ``remote`` are the peer's networks as we see them; ``gateway`` is the single address that stands for this host and
    for everything here that is no pod. ``endpoint`` is "address:port", empty where the peer calls us. ``pods`` are the
    addresses of our pods that may talk with the peer, None for all. ``mtu`` is that of the path, 0 for the device's.
    """

    peer: ClusterID
    public_key: str
    endpoint: str
    remote: tuple[Network, ...]
    local: tuple[Pair, ...]
    gateway: Pair | None = None
    mtu: int = 0
    pods: frozenset[str] | None = None


@attrs.frozen
class Desired:
    """All that the fabric wants of this host. ``create`` is the command that makes the device where it is missing."""

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
    """The nftables table: the mark of the script that made it, how many rules it has, its sets by name."""

    mark: str
    count: int
    sets: Mapping[str, frozenset[str]]


@attrs.frozen
class Observed:
    """What there is now; ``policies`` are the IP versions whose policy rule leads to our table."""

    device: Device | None = None
    tunnel: Tunnel | None = None
    policies: frozenset[int] = frozenset()
    routes: Mapping[Network, Route] = attrs.field(factory=dict)
    rules: Rules | None = None


@attrs.frozen
class Step:
    """One command of a plan, with its standard input; ``secret`` input is never shown."""

    argv: tuple[str, ...]
    stdin: str = ""
    secret: bool = False

    def __str__(self) -> str:
        text = f"# {' '.join(self.argv)}\n"
        if self.secret:
            return text + "(a private key)\n"
        return text + self.stdin
