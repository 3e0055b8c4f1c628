"""Candidates from the configuration, ``[discovery] peers``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from liqod.config.schema import Peer
from liqod.discovery.candidate import MANUAL, Candidate

DEFAULT_PORT: Final = 5872
# RFC 1123, section 2.1: names of at most 253 characters, of labels of at most 63; a final dot is the DNS root.
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([-A-Za-z0-9]{0,62})(\.[A-Za-z0-9]([-A-Za-z0-9]{0,62}))*\.?")


def candidates(peers: Iterable[Peer]) -> tuple[Candidate, ...]:
    """Return the candidates of the configured peers; raises ValueError, naming the address, for one that is none."""
    found = []
    for peer in peers:
        host, port = parse_address(peer.address)
        found.append(Candidate(host, port, MANUAL, fingerprint=peer.fingerprint or ""))
    return tuple(dict.fromkeys(found))


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port``, ``address``, ``[v6]`` or ``[v6]:port`` (default: 5872)."""
    host, port = _split(text)
    if not (_is_address(host) or _HOST.fullmatch(host)):
        raise ValueError(
            f"{text[:80]!r} is not the address of a peer: write host, host:port, 192.0.2.1:5872 or [2001:db8::1]:5872"
        )
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ValueError(f"{text[:80]!r} has no port from 1 to 65535 after the last ':'")
    return host, int(port)


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if closed and rest.startswith(":"):
            return host, rest[1:]
        return (host, str(DEFAULT_PORT)) if closed and not rest else ("", "")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, str(DEFAULT_PORT)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
