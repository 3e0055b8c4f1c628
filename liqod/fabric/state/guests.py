"""Guests: a peer's pods in this cluster, and the addresses by which that peer sees them. Pure.

Home shows an offloaded pod by home's own address for it, which means nothing in the lender's network. Where another
pod of the same home calls it from here, that address is translated to the pod's own: for packets from one guest of a
peer to another one of the same peer, and for no others, since the peer chooses the range.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

import attrs

from liqod.fabric.state.network import Link, Netmap, ServiceMap, overlaps
from liqod.model.addresses import parse_ips
from liqod.model.ids import ClusterID
from liqod.model.records.network import Network, shift


@attrs.frozen
class Guests:
    """The ``addresses`` of a peer's pods here; ``local`` has our pod networks as that peer sees them.

    ``services`` are the networks of the peer's Services that they can call, but for the addresses in ``own_services``.
    """

    peer: ClusterID
    addresses: frozenset[str]
    local: tuple[Netmap, ...]
    services: tuple[ServiceMap, ...] = ()
    own_services: frozenset[str] = frozenset()

    def of_version(self, version: int) -> frozenset[str]:
        """Return the addresses of one IP version."""
        return frozenset(one for one in self.addresses if (":" in one) == (version == 6))

    def seen_by_home(self, version: int) -> Mapping[str, str]:
        """Return each guest of an IP version by the address that its home has for it."""
        found = {}
        for text in self.of_version(version):
            address = ipaddress.ip_address(text)
            for pair in self.local:
                if address in pair.ours:
                    found[str(shift(address, pair.ours, pair.seen))] = text
        return found

    def ranges(self, version: int) -> list[Network]:
        """Return the networks by which the peer sees those of ours that have guests of an IP version."""
        addresses = [ipaddress.ip_address(text) for text in self.of_version(version)]
        return [pair.seen for pair in self.local if any(address in pair.ours for address in addresses)]


def guests_of(link: Link) -> Guests:
    """Return the guests of a link's peer."""
    return Guests(link.peer, link.guests, link.local, link.peer_services, link.own_services)


def callable_guests(addresses: Iterable[str], local: Iterable[Netmap], used_here: Iterable[Network]) -> frozenset[str]:
    """Return the guests that can be called by their home's addresses, from those of all.

    They are inside our networks, and the peer's range for these overlaps nothing that is ``used_here``: such an address
    would mean two things, and keeps the meaning that it has here.
    """
    used = list(used_here)
    open_to = [pair.ours for pair in local if pair.ours != pair.seen and overlaps(pair.seen, used) is None]
    parsed = parse_ips(addresses)
    return frozenset(str(address) for address in parsed if any(address in network for network in open_to))
