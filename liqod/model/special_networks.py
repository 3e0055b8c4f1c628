"""Networks and addresses that mean something else than a host of another cluster, wherever they are asked for."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from liqod.model.addresses import Address

RESERVED: Final = ipaddress.IPv4Network("240.0.0.0/4")
"""Addresses that no network has (RFC 1112, section 4), and that Linux forwards like any others."""
UNUSABLE: Final[Mapping[int, tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]]] = {
    version: tuple(map(ipaddress.ip_network, texts))
    for version, texts in (
        # 192.0.0.0/24 is for protocols; one cloud had its metadata service in it (192.0.0.192, Oracle).
        (4, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4")),
        # ::/8 holds loopback and all that has an IPv4 address inside (::ffff:0:0/96, 64:ff9b::/96); the other such
        # are 2001::/32 and 2002::/16. 100::/64 is for discarding, fe80::/9 for one link or site alone.
        (6, ("::/8", "100::/64", "2001::/32", "2002::/16", "fe80::/9", "ff00::/8")),
    )
}
"""Networks that no pod or host is reached by from elsewhere, by IP version (special-purpose registries, RFC 6890)."""
METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "fd00:ec2::23", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"),
    )
)
"""Services of clouds that hand out credentials, besides the link-local ones: of Alibaba, of Azure, and by IPv6 of AWS
(instances, EKS Pod Identity), Google and Scaleway."""
SPECIAL: Final[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]] = (
    *(network for networks in UNUSABLE.values() for network in networks),
    *map(ipaddress.ip_network, sorted(METADATA, key=str)),
)
"""All of these as networks."""


def special(address: Address) -> str:
    """Return why an address is no host of another cluster, as the rest of a sentence; empty where it may be one."""
    if any(address in one for one in UNUSABLE[address.version]):
        return "has a meaning on its own host or link alone"
    return "is where a cloud's hosts get their credentials" if address in METADATA else ""
