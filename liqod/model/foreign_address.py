"""Which addresses a peer may say that its pods and endpoints have: never those of this cluster. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from liqod.model.addresses import parse_ip
from liqod.model.records.network import Network
from liqod.model.special_networks import special


def objection(address: str, own: Sequence[Network], peer: Sequence[Network] | None) -> str:
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
        return "" if any(parsed in one for one in peer) else "is not of the networks that were agreed on with the peer"
    return "is of this cluster's own networks" if any(parsed in one for one in own) else ""
