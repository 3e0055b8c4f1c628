"""How many connections may be open, and how many of them without a session: in all, and from one place.

Who has a session keeps it. Who has none yet holds a place only until somebody newer needs it: a handshake takes a
fraction of a second, so those that have waited longest are the ones that only hold places.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from typing import Final

from liqod.peering.session.dial import join_address
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import Bye

PER_ADDRESS: Final = 64
"""Connections from one address that may be without a session: many clusters may share an address, an attacker has one
too.
"""
HALF_OPEN: Final = 256
"""Connections without a session, from anywhere: TLS holds some 40 KiB for each."""
IPV6_SITE: Final = 64
"""Bits of an IPv6 address that tell one place from another: whoever has one address there has them all (RFC 6177)."""


class Admission:
    """Lets connections in while there is room; ``refused(reason, source, message)`` is told of those turned away."""

    def __init__(
        self, make: Callable[[str], PeerConnection], maximum: int, refused: Callable[[str, str, str], None]
    ) -> None:
        self._make = make
        self._maximum = maximum
        self._refused = refused
        self._waiting: dict[PeerConnection, str] = {}
        self._sources: Counter[str] = Counter()
        self._settled: set[PeerConnection] = set()

    @property
    def waiting(self) -> int:
        """How many connections have no session yet."""
        return len(self._waiting)

    def has_room(self, host: str) -> bool:
        """Tell whether one more connection from an address may come in; counts those that may not."""
        if self._sources[source_of(host)] >= PER_ADDRESS:
            self._refused("TooManyFromAddress", host, f"{PER_ADDRESS} connections from there have no session yet")
            return False
        if len(self._settled) + len(self._waiting) >= self._maximum and not self._waiting:
            self._refused("TooManySessions", host, f"{self._maximum} sessions are open (peering.max-sessions)")
            return False
        if len(self._waiting) >= HALF_OPEN or len(self._settled) + len(self._waiting) >= self._maximum:
            oldest = next(iter(self._waiting))
            oldest.abort(Bye("TooManyHalfOpen", f"{len(self._waiting)} connections have no session; the oldest goes"))
            self.closed(oldest)
        return True

    def connection(self, host: str, port: int) -> PeerConnection:
        """Return the protocol for a connection that was let in."""
        connection = self._make(join_address(host, port))
        source = source_of(host)
        self._waiting[connection] = source
        self._sources[source] += 1
        return connection

    def settled(self, connection: PeerConnection) -> None:
        """A connection has a session now."""
        if self._no_longer_waits(connection):
            self._settled.add(connection)

    def closed(self, connection: PeerConnection) -> None:
        """A connection ended: there is room for another."""
        self._no_longer_waits(connection)
        self._settled.discard(connection)

    def _no_longer_waits(self, connection: PeerConnection) -> bool:
        source = self._waiting.pop(connection, None)
        if source is None:
            return False
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]
        return True


def source_of(host: str) -> str:
    """Return what stands for everybody at an address: itself, or for IPv6 its network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> IPV6_SITE << IPV6_SITE, 128 - IPV6_SITE)))
