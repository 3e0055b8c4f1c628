"""Which addresses a peer may say that its pods and endpoints have: never those of this cluster. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from liqod.model.addresses import Address, parse_ip
from liqod.model.records.network import Network
from liqod.model.special_networks import special


class NetworkLookup:
    """Networks by IP version and length: looking up an address costs a step for each length, not for each network."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._by_length: dict[tuple[int, int], set[int]] = {}
        for one in networks:
            host_bits = one.max_prefixlen - one.prefixlen
            self._by_length.setdefault((one.version, host_bits), set()).add(int(one.network_address) >> host_bits)

    def holds(self, address: Address) -> bool:
        """Return whether an address is in one of the networks."""
        number = int(address)
        return any(
            number >> host_bits in prefixes
            for (version, host_bits), prefixes in self._by_length.items()
            if version == address.version
        )


def objection(address: str, own: NetworkLookup, peer: NetworkLookup | None) -> str:
    """Return why an address cannot be that of a pod or endpoint of a peer, as the rest of a sentence; empty if it can.

    ``own``: this cluster's networks. ``peer``: the peer's networks as they are seen here; None where liqod does not
    connect the clusters, so that they are not known.
    """
    parsed = parse_ip(address)
    if parsed is None:
        return "is no IP address"
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    parsed = mapped or parsed
    if special(parsed):
        return "is of no other cluster: it is loopback, link-local, multicast or has another special purpose"
    if peer is not None:
        return "" if peer.holds(parsed) else "is not of the networks that were agreed on with the peer"
    return "is of this cluster's own networks" if own.holds(parsed) else ""
