"""Facts about a host: its interfaces, from ``ip -j addr show``, and its name servers. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection
from typing import Final

from liqod.model.records.network import Network

TUNNEL_OVERHEAD: Final = 80
"""Bytes that WireGuard adds to a packet over IPv6: 40 (IPv6) + 8 (UDP) + 32 (WireGuard data header and tag); over IPv4
it is 60. wg-quick(8) takes the same 80, hence the usual 1420."""
DEFAULT_MTU: Final = 1420
LEAST_MTU: Final = 1280
"""The minimum link MTU of IPv6 in bytes (RFC 8200, section 5)."""


def uplink_mtu(text: str, address: str) -> int:
    """Return the MTU of the interface that has an address, from ``ip -j addr show``; 0 where none has it."""
    for link in json.loads(text or "[]"):
        if any(one.get("local") == address for one in link.get("addr_info", [])):
            return int(link.get("mtu", 0))
    return 0


def host_addresses(text: str, own: Collection[str]) -> frozenset[str]:
    """Return this host's addresses of global scope, from ``ip -j addr show``, without those of ``own`` devices."""
    return frozenset(
        str(one.get("local"))
        for link in json.loads(text or "[]")
        if link.get("ifname") not in own
        for one in link.get("addr_info", [])
        if one.get("scope") == "global"
    )


def name_servers(text: str) -> list[Network]:
    """Return the addresses of the name servers in a resolv.conf(5), as networks of one address; no loopback ones."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        try:
            one = ipaddress.ip_network(words[1].partition("%")[0])
        except ValueError:
            continue
        if not (one.is_loopback or one.is_link_local):
            found.append(one)
    return found


def tunnel_mtu(configured: int, uplink: int) -> int:
    """Return the MTU of the tunnel's device."""
    if configured:
        return configured
    return max(LEAST_MTU, min(uplink, 9000) - TUNNEL_OVERHEAD) if uplink else DEFAULT_MTU
