"""Checks the URL that a lender gives for its API server: the borrower's daemon sends requests there. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


def api_url_problem(url: str) -> str:
    """Return what is wrong with the URL of a peer's API server, empty where nothing is.

    It is https, a host, perhaps a port and a plain path. A link-local address reaches what is next to this host, such
    as the metadata service of a cloud (169.254.169.254), and never another cluster.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "its URL cannot be read"
    if parts.scheme != "https" or not host:
        return "its URL is not an https one"
    if "@" in parts.netloc or "?" in url or "#" in url or ".." in parts.path or not _PATH.fullmatch(parts.path):
        return "its URL has more than a host, a port and a plain path"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast:
        return "its URL has an address that is no cluster's"
    return ""
