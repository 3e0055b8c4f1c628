"""IP addresses in texts. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_ip(text: str) -> Address | None:
    """Return the IPv4 or IPv6 address that a text is, or None."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_ip(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address."""
    return parse_ip(text) is not None


def parse_ips(texts: Iterable[str]) -> Iterator[Address]:
    """Yield those texts that are addresses; others are left out."""
    return filter(None, map(parse_ip, texts))
