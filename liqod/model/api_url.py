"""Checks the URL that a lender gives for its API server: the borrower's daemon sends requests there. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from liqod.model.addresses import Address, parse_ip
from liqod.model.special_networks import special

_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


_OF_A_CLUSTER: Final = ("svc", "cluster.local", "localhost", "kubernetes")
"""Names, with all names under them, that mean something of the cluster or host that asks."""


@frozen
class OwnAddresses:
    """What is this cluster's: the URL of its API server, and its networks as they are configured (CIDR)."""

    server: str = ""
    networks: tuple[str, ...] = ()

    def problem(self, url: str) -> str:
        """Return why a URL that ``api_url_problem`` takes is of no other cluster, empty where it may be.

        Loopback is another cluster's only where it is this one's as well: both run on one machine.
        """
        host, port = _place(url)
        own, own_port = _place(self.server)
        if (host, port) == (own, own_port):
            return "its URL is that of this cluster's own API server"
        address = _address(host)
        if address is None:
            if any(host == one or host.endswith("." + one) for one in _OF_A_CLUSTER):
                return "its URL has a name that every cluster has for itself"
            return ""
        if address.is_loopback and not ((mine := _address(own)) is not None and mine.is_loopback):
            return "its URL is on this host"
        if any(address in ipaddress.ip_network(one, strict=False) for one in self.networks):
            return "its URL is in this cluster's own networks"
        return ""


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    address = _address(host)
    return host if address is None else str(address), parts.port or 443


def _address(host: str) -> Address | None:
    address = parse_ip(host.partition("%")[0])
    return _short_address(host) if address is None else getattr(address, "ipv4_mapped", None) or address


def _short_address(host: str) -> ipaddress.IPv4Address | None:
    """Return what resolvers take for an IPv4 address, too: 127.1, 2130706433 (inet_aton(3)); None for a name."""
    *first, last = host.split(".")
    if len(first) > 3:
        return None
    try:
        numbers = [_number(text) for text in first]
        rest = _number(last)
        if any(number > 255 for number in numbers):
            return None
        value = sum(number << 8 * (3 - place) for place, number in enumerate(numbers))
        return ipaddress.IPv4Address(value + rest) if rest < 1 << 8 * (4 - len(numbers)) else None
    except ValueError:
        return None


def _number(text: str) -> int:
    if not text.isascii() or not text.isalnum():
        raise ValueError(text)
    return int(text, 16 if text[:2] in ("0x", "0X") else 8 if text.startswith("0") else 10)


def api_url_problem(url: str) -> str:
    """Return what is wrong with the URL of a peer's API server, empty where nothing is.

    It is https, a host, perhaps a port and a plain path. A special address reaches what is next to this host, such as
    the metadata service of a cloud (169.254.169.254), and never another cluster; loopback is ``OwnAddresses``' matter.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "its URL cannot be read"
    # The parser leaves out line breaks and tabs: what it checked would not be what is written.
    if not url.isascii() or not url.isprintable() or " " in url:
        return "its URL has characters that no URL has"
    if parts.scheme != "https" or not host:
        return "its URL is not an https one"
    if "@" in parts.netloc or "?" in url or "#" in url or ".." in parts.path or not _PATH.fullmatch(parts.path):
        return "its URL has more than a host, a port and a plain path"
    address = _address(host)
    if address is not None and not address.is_loopback and special(address):
        return "its URL has an address that is no cluster's"
    return ""
