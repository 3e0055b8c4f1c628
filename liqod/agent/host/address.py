"""Which of this host's addresses others see: the local end of the way to the API server."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


def own_address(server: str) -> str:
    """Return the local address that this host reaches a URL's host from.

    Connecting a datagram socket sends nothing: the kernel only chooses the route. A host name is not looked up here,
    because that would block; the default route's address is taken then, and without one the loopback address.
    """
    parts = urlsplit(server)
    host, port = parts.hostname or "", parts.port or 443
    # Addresses for documentation (RFC 5737, RFC 3849): only the default route leads to them, and nothing is sent.
    for target in (host, "192.0.2.1", "2001:db8::1"):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        if not _is_numeric(target, family):
            continue
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((target, port))
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


def _is_numeric(host: str, family: socket.AddressFamily) -> bool:
    try:
        socket.inet_pton(family, host)
    except OSError:
        return False
    return True


def cluster_name(configured: str, hostname: str) -> str:
    """Return the name for people: the configured one, or the host's, made into a DNS label."""
    if configured:
        return configured
    label = re.sub(r"[^a-z0-9]+", "-", hostname.partition(".")[0].lower()).strip("-")[:63].rstrip("-")
    return label or "cluster"
