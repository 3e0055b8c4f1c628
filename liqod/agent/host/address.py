"""Which of this host's addresses others see: the local end of the way to the API server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from liqod.model.addresses import is_ip

LOOPBACK = "127.0.0.1"


def _local_end(target: str, port: int) -> str:
    """Return the local address of the route to an IP address; empty where there is none.

    Connecting a datagram socket sends nothing: the kernel only chooses the route.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((target, port))
            return str(sock.getsockname()[0])
    except OSError:
        return ""


def own_address(configured: str, server: str, local_end: Callable[[str, int], str] = _local_end) -> str:
    """Return the configured address of this host, else the one that it reaches a URL's host from.

    Others cannot use the loopback address, which an API server on this host is reached from, and a host name is not
    looked up here, because that would block: the default route's address is taken then, and without one the loopback
    address.
    """
    if configured:
        return configured
    parts = urlsplit(server)
    host, port = parts.hostname or "", parts.port or 443
    # Addresses for documentation (RFC 5737, RFC 3849): only the default route leads to them, and nothing is sent.
    for target in (host, "192.0.2.1", "2001:db8::1"):
        found = local_end(target, port) if is_ip(target) else ""
        if found and not ipaddress.ip_address(found).is_loopback:
            return found
    return LOOPBACK


def cluster_name(configured: str, hostname: str) -> str:
    """Return the name for people: the configured one, or the host's, made into a DNS label."""
    if configured:
        return configured
    label = re.sub(r"[^a-z0-9]+", "-", hostname.partition(".")[0].lower()).strip("-")[:63].rstrip("-")
    return label or "cluster"
