"""The desired and the observed state of the kernel, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from liqod.fabric.state.guests import Guests
from liqod.fabric.state.network import Link, Vtep
from liqod.model.records.network import Network

# Policy rules are tried in the order of their priorities (ip-rule(8)); `main` and `default` are 32766 and 32767. Lower
# numbers than those put our tables first, and what they do not know falls through to the host's own.
TABLE: Final = 18952
"""The number of our routing table; one policy rule for each IP version looks it up."""
INWARD: Final = 18951
"""The same for what comes out of the tunnel and goes on to pods of other nodes.

Its rule comes before that of ``TABLE``: with equal networks on both sides, an answer to a peer must not be routed back
to it.
"""
PRIORITY: Final = 18952
"""The usual priority of the rule that looks up ``TABLE``; that of ``INWARD`` is one less."""
PROTOCOL: Final = "kernel"
"""What our rules say that they come from (ip-rule(8)): systemd-networkd removes those of others when it starts."""

Policy = tuple[int, int]
"""The IP version and the priority of a policy rule."""


@attrs.frozen
class Overlay:
    """What connects the hosts of one cluster: VXLAN from each node to the gateway, without learning or flooding.

    ``table`` is the routing table with the routes to the VTEPs, ``priority`` that of the rule that looks it up,
    ``source`` the only device whose packets use it, empty for all packets. ``mtu`` is the device's, ``path_mtu`` the
    lower one behind its other end, 0 for none.
    """

    device: str
    vni: int
    port: int
    local: str
    mtu: int
    vteps: tuple[Vtep, ...]
    table: int
    source: str = ""
    path_mtu: int = 0
    priority: int = PRIORITY


@attrs.frozen
class OverlayRoute:
    """A route over the overlay."""

    gateway: str
    device: str
    mtu: int = 0


@attrs.frozen
class ObservedOverlay:
    """The overlay as the kernel has it: its device, forwarding entries (fdb) and neighbours by hardware address."""

    device: NetworkInterface
    vni: int = 0
    port: int = 0
    local: str = ""
    hardware: str = ""
    loose_rp_filter: bool = False
    hosts: Mapping[str, str] = attrs.field(factory=dict)
    neighbours: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class ObservedTable:
    """The routing table of an overlay, and the policy rules that look it up; ``unmarked`` ones do not say PROTOCOL."""

    routes: Mapping[Network, OverlayRoute] = attrs.field(factory=dict)
    policies: frozenset[Policy] = frozenset()
    unmarked: frozenset[Policy] = frozenset()


@attrs.frozen
class DesiredKernel:
    """The desired state of a gateway's kernel. ``create`` is the command that creates a missing device.

    ``keepalive`` is in seconds; ``moved``: the host lost an address since the kernel was observed last; ``priority`` is
    that of the policy rule.
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
    priority: int = PRIORITY


@attrs.frozen
class NetworkInterface:
    """The tunnel device as a network interface."""

    mtu: int
    up: bool
    addresses: frozenset[Network] = frozenset()
    kind: str = ""


@attrs.frozen
class TunnelPeer:
    """One peer of the device: ``handshake`` is the date of the last one, in seconds since 1970, 0 for never.

    ``handshake_at`` is when that was by the agent's clock, which is not set as the date is; None: not known, or never.
    """

    endpoint: str
    allowed: frozenset[Network]
    handshake: int = 0
    received: int = 0
    sent: int = 0
    handshake_at: float | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class WireGuardDevice:
    """The WireGuard state of the device; peers by public key."""

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
class NftablesTable:
    """The nftables table: the mark of the script that made it, how many rules it has, its sets by name.

    ``flushed`` are the marks of links whose old conntrack entries were deleted (see ``rules.conntrack``).
    """

    mark: str
    count: int
    sets: Mapping[str, frozenset[str]]
    flushed: frozenset[str] = frozenset()


@attrs.frozen
class ObservedKernel:
    """What the kernel has now; ``policies`` are the rules that look up our table, ``unmarked`` do not say PROTOCOL."""

    device: NetworkInterface | None = None
    tunnel: WireGuardDevice | None = None
    policies: frozenset[Policy] = frozenset()
    routes: Mapping[Network, Route] = attrs.field(factory=dict)
    rules: NftablesTable | None = None
    overlay: ObservedOverlay | None = None
    inward: ObservedTable = ObservedTable()
    unmarked: frozenset[Policy] = frozenset()


@attrs.frozen
class DesiredNodeKernel:
    """The desired state of the kernel of a host that is no gateway.

    ``pods`` are the networks of this cluster's pods, which keep their addresses on the way to the ``remote`` ones;
    ``guests`` are the pods of peers in this cluster.
    """

    overlay: Overlay
    pods: tuple[Network, ...]
    remote: tuple[Network, ...]
    guests: tuple[Guests, ...] = ()


@attrs.frozen
class ObservedNodeKernel:
    """The observed state of the kernel of such a host."""

    overlay: ObservedOverlay | None = None
    outward: ObservedTable = ObservedTable()
    rules: NftablesTable | None = None


@attrs.frozen
class HostCommand:
    """One command of a plan, with its standard input; ``secret`` input is never shown.

    A failure whose text contains ``harmless`` means that there was nothing to do.
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
