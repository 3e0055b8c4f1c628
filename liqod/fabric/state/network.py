"""The desired network, which control passes to the network agent, as one value. Pure.

It holds networks, addresses, keys and ports, each parsed and checked: no command, no rule and no text for a program.
The agent derives nftables rules, routes and WireGuard peers from it (``agent.kernel``), so that write access to a
record does not allow to inject a command. The tunnel's own key is the agent's and not in it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.model.ids import ClusterID
from liqod.model.records.network import Network
from liqod.model.records.network import parse_networks as parse_networks

VNI: Final = 18952
"""The VXLAN network identifier of the overlay."""

PathKey = tuple[str, int]
"""A peer, and an IP version: what is probed by each may be cut apart from the other."""


@attrs.frozen
class Netmap:
    """A network of ours, and the network of the same size by which the peer sees it (1:1 NAT, host bits are kept)."""

    ours: Network
    seen: Network


@attrs.frozen
class ServiceMap:
    """A network of one cluster's Services, and the range of the same size by which the other cluster knows it."""

    services: Network
    seen: Network

    @property
    def host_mask(self) -> str:
        """The bits of an address that say which Service it is, written as an address."""
        return str(self.services.hostmask)


@attrs.frozen
class ExportedAddress:
    """A single address of ours that is no pod's: ``seen`` is what the peer calls, ``real`` where that leads.

    ``ports`` are the pairs (protocol, port) that may be called there, protocols in lower case; none: everything.
    """

    seen: str
    real: str
    ports: frozenset[tuple[str, int]] = frozenset()


@attrs.frozen
class DirectLink:
    """A home whose pods here (``pods``) talk straight with those at a peer, which ``networks`` hold as seen here."""

    home: ClusterID
    networks: tuple[Network, ...]
    pods: frozenset[str]


@attrs.frozen
class Link:
    """A link to one peer, after both sides agreed.

    ``remote`` are the peer's networks as we see them; ``gateway`` is the single address that stands for this host and
    for everything here that is no pod. ``endpoint`` is "address:port", empty where the peer calls us. ``pods`` are the
    addresses of our pods that may talk with the peer, None for all. ``mtu`` is that of the path, 0 for the device's.
    ``next_key`` is accepted as well, without any network: when the peer switches to it, its first handshake succeeds.
    ``external`` is our network of single addresses, and ``exports`` what the peer reaches by it besides the gateway;
    ``six`` is such a network of IPv6 beside one of IPv4. ``guests`` are the addresses of the peer's own pods here that
    call each other by its addresses for them, and its Services (``peer_services``) by theirs, except ``own_services``:
    addresses that mean Services here. ``offloaded`` are the addresses here of our own pods in the peer's cluster, which
    call our ``services`` by the ranges that the peer has for these.
    ``direct`` are homes whose pods in both clusters use this link beside ours.
    """

    peer: ClusterID
    public_key: str
    endpoint: str
    remote: tuple[Network, ...]
    local: tuple[Netmap, ...]
    gateway: Netmap | None = None
    mtu: int = 0
    pods: frozenset[str] | None = None
    next_key: str = ""
    external: Netmap | None = None
    exports: tuple[ExportedAddress, ...] = ()
    six: Netmap | None = None
    guests: frozenset[str] = frozenset()
    services: tuple[ServiceMap, ...] = ()
    peer_services: tuple[ServiceMap, ...] = ()
    own_services: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    direct: tuple[DirectLink, ...] = ()

    @property
    def gateways(self) -> tuple[Netmap, ...]:
        """The addresses that stand for this host, by IP version one at most."""
        second = () if self.six is None else (Netmap(first_of(self.six.ours), first_of(self.six.seen)),)
        return (*(() if self.gateway is None else (self.gateway,)), *second)

    @property
    def externals(self) -> tuple[Netmap, ...]:
        """Our networks of single addresses, by IP version one at most."""
        return tuple(pair for pair in (self.external, self.six) if pair is not None)


@attrs.frozen
class Vtep:
    """Another host of this cluster on the overlay (VXLAN tunnel end point, RFC 7348), and the networks behind it."""

    address: str
    networks: tuple[Network, ...]


@attrs.frozen
class ProbeTargets:
    """What to probe: each peer's gateway by UDP through the tunnel, one pod of each peer and IP version by ICMP."""

    gateways: Mapping[str, str] = attrs.field(factory=dict)
    pods: Mapping[PathKey, str] = attrs.field(factory=dict)


@attrs.frozen
class DesiredNetwork:
    """The desired network of the gateway's host.

    ``addresses`` are this host's own on the tunnel, by IP version one at most, IPv4 first; ``vteps`` the other hosts on
    the overlay; ``mtu`` is the tunnel device's.
    """

    mtu: int
    addresses: tuple[Network, ...]
    links: tuple[Link, ...] = ()
    vteps: tuple[Vtep, ...] = ()
    probes: ProbeTargets = ProbeTargets()


def without_six(desired: DesiredNetwork) -> DesiredNetwork:
    """Return what of a network a host without IPv6 carries out; a peer with nothing else has no link."""
    links = [attrs.evolve(link, remote=of_four(link.remote)) for link in desired.links]
    return attrs.evolve(
        desired,
        addresses=of_four(desired.addresses),
        links=tuple(link for link in links if link.remote),
        vteps=tuple(attrs.evolve(vtep, networks=of_four(vtep.networks)) for vtep in desired.vteps),
    )


def of_four(networks: Iterable[Network]) -> tuple[Network, ...]:
    """Return the networks of IPv4 among others."""
    return tuple(one for one in networks if one.version == 4)


def first_of(external: Network) -> Network:
    """Return the first host address of an external network, as a network of one address: the gateway's."""
    return ipaddress.ip_network(external.network_address + 1)


def probed_gateway(externals: Iterable[Network], own: Network) -> str:
    """Return a peer's gateway that can be probed from our address; empty where it has none of that IP version."""
    return next((str(first_of(one).network_address) for one in externals if one.version == own.version), "")


def overlaps(network: Network, others: Iterable[Network]) -> Network | None:
    """Return the first of the others that overlaps a network, or None."""
    return next((other for other in others if overlap(network, other)), None)


def contains(wide: Network, one: Network) -> bool:
    """Return whether a network lies inside another one, or is the same."""
    return wide.version == one.version and wide.prefixlen <= one.prefixlen and one.network_address in wide


def overlap(one: Network, two: Network) -> bool:
    """Return whether two networks have an address in common."""
    return one.version == two.version and (
        one.network_address <= two.broadcast_address  # type: ignore[operator]  # same version
        and two.network_address <= one.broadcast_address  # type: ignore[operator]
    )
