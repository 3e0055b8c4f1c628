"""Sets of addresses as NetworkPolicies write them: networks with exceptions. Pure.

Source: Kubernetes API reference, NetworkPolicy v1, IPBlock: exceptions lie strictly inside of the network.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from liqod.model.records.network import Network, shift


@attrs.frozen
class Block:
    """The addresses of a network but for those of the exceptions, which are collapsed, sorted and inside of it."""

    network: Network
    excepts: tuple[Network, ...] = ()

    def rendered(self) -> dict[str, Any]:
        """Return the NetworkPolicyPeer."""
        block: dict[str, Any] = {"cidr": str(self.network)}
        if self.excepts:
            block["except"] = [str(one) for one in self.excepts]
        return {"ipBlock": block}


def block_of(network: Network, excepts: Iterable[Network]) -> Block | None:
    """Return the network without the exceptions; None where nothing is left of it."""
    inside = []
    for one in excepts:
        if contains(one, network):
            return None
        if contains(network, one):
            inside.append(one)
    kept = tuple(collapsed(inside))
    return None if kept and kept[0] == network else Block(network, kept)


def contains(outer: Network, inner: Network) -> bool:
    """Return whether a network has all addresses of another one; two networks nest, or have nothing in common."""
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def collapsed(networks: Iterable[Network]) -> list[Network]:
    """Return the fewest networks with the same addresses, in order, those of IPv4 first."""
    given = list(networks)
    return [
        *ipaddress.collapse_addresses(one for one in given if isinstance(one, ipaddress.IPv4Network)),
        *ipaddress.collapse_addresses(one for one in given if isinstance(one, ipaddress.IPv6Network)),
    ]


def moved(network: Network, before: Network, after: Network) -> Network:
    """Return where a part of ``before`` lies in ``after``, a network of the same version and prefix length."""
    return ipaddress.ip_network(f"{shift(network.network_address, before, after)}/{network.prefixlen}")


class Blocks:
    """Blocks by their networks; to find those that overlap with a network takes no look at all others.

    Both sides of an intersection have thousands of networks where a peer wants it so.
    """

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._by_network: dict[Network, list[Block]] = {}
        for one in blocks:
            self._by_network.setdefault(one.network, []).append(one)
        self._sorted = sorted(self._by_network, key=place)
        self._lengths = sorted({(one.version, one.prefixlen) for one in self._by_network})

    def meet(self, block: Block) -> Iterator[Block]:
        """Yield the intersections of these blocks with another one."""
        for network in self._overlapping(block.network):
            narrow = network if network.prefixlen >= block.network.prefixlen else block.network
            for one in self._by_network[network]:
                found = block_of(narrow, [*_around(one.excepts, narrow), *_around(block.excepts, narrow)])
                if found is not None:
                    yield found

    def _overlapping(self, network: Network) -> Iterator[Network]:
        for version, length in self._lengths:
            if version == network.version and length < network.prefixlen:
                above = network.supernet(new_prefix=length)
                if above in self._by_network:
                    yield above
        yield from _inside(self._sorted, network)


def place(network: Network) -> tuple[int, int, int]:
    """Return the sort key by which a network precedes those inside of it, and all of these the next one."""
    return network.version, int(network.network_address), network.prefixlen


def _inside(ordered: Sequence[Network], network: Network) -> Iterator[Network]:
    for index in range(bisect_left(ordered, place(network), key=place), len(ordered)):
        if not contains(network, ordered[index]):
            return
        yield ordered[index]


def _around(ordered: Sequence[Network], network: Network) -> Iterator[Network]:
    """Yield of disjoint networks in order the one that has the network, or those inside of it."""
    index = bisect_left(ordered, place(network), key=place)
    if index and contains(ordered[index - 1], network):
        yield ordered[index - 1]
    yield from _inside(ordered, network)
