"""Who may hold a connection of a port that strangers reach, and how many handshakes a second it makes. Reads one clock.

Who is being served keeps its connection. Who only waits (for a handshake, a request, a session) holds a place until
somebody newer needs it: a handshake takes a fraction of a second, so those that have waited longest are the ones that
only hold places.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

PER_ADDRESS: Final = 64
"""Connections from one address that may wait: many clusters may share an address, an attacker has one too."""
HALF_OPEN: Final = 256
"""Connections that wait, from anywhere: TLS holds some 40 KiB for each."""
GRACE: Final = 1.0
"""Seconds that a connection may wait before another one from its own address takes its place: time for a handshake."""
IPV6_SITE: Final = 64
"""Bits of an IPv6 address that tell one place from another: whoever has one address there has them all (RFC 6177)."""
HANDSHAKES: Final = 64.0
"""Handshakes a second, from anywhere, that are begun in the long run; one costs a few milliseconds at worst."""
HANDSHAKES_BURST: Final = 256
"""Handshakes that may be begun at once: all peers come back together when a daemon was restarted."""
HANDSHAKES_PER_ADDRESS: Final = 16.0
HANDSHAKES_BURST_PER_ADDRESS: Final = 64
REQUEST: Final = 10.0
"""Seconds that a handshake, and then the head and the body of a request, may take where HTTP is served."""
MAX_WAIT: Final = 5.0
"""Seconds that a handshake may be put off; whoever would have to wait longer is refused."""
MAX_SOURCES: Final = 4096
"""Addresses whose pace is remembered."""


@attrs.frozen
class Limits:
    """How many connections, and handshakes a second, a port takes."""

    maximum: int
    per_address: int = PER_ADDRESS
    waiting: int = HALF_OPEN
    handshakes: float = HANDSHAKES
    burst: int = HANDSHAKES_BURST
    handshakes_per_address: float = HANDSHAKES_PER_ADDRESS
    burst_per_address: int = HANDSHAKES_BURST_PER_ADDRESS


OF_API_SERVERS: Final = Limits(
    512,
    per_address=256,
    waiting=384,
    handshakes=400.0,
    burst=800,
    handshakes_per_address=300.0,
    burst_per_address=600,
)
"""An API server opens a connection for each request beyond the 25 that it keeps, and makes hundreds at once."""


class Guest(Protocol):
    """A connection, as far as its place is concerned."""

    def evict(self, reason: str, message: str) -> None:
        """Close at once: somebody else needs the place."""


@attrs.define
class Bucket:
    """A pace: so many at once, so many a second in the long run (the generic cell rate algorithm, ITU-T I.371)."""

    rate: float
    burst: int
    _due: float = float("-inf")

    def delay(self, now: float) -> float:
        """Return the seconds until the next one may begin; 0 at once."""
        return max(0.0, self._due - now - (self.burst - 1) / self.rate)

    def take(self, now: float) -> None:
        """Count one that begins after its delay."""
        self._due = max(self._due, now) + 1 / self.rate

    def is_idle(self, now: float) -> bool:
        """Return whether nothing is left to remember."""
        return self._due <= now


class Admission:
    """Places for connections within ``limits``. ``refused(reason, source, message)`` is told of those turned away.

    Everybody who connects is asked about first (``has_room``), then ``enters``, and leaves by ``closed``. Between the
    two it ``waits`` or is ``served``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        limits: Limits,
        refused: Callable[[str, str, str], None],
        *,
        full: str = "TooManyConnections",
        setting: str = "",
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._refused = refused
        self._full = full
        self._most = f"{limits.maximum} connections are in use{f' ({setting})' if setting else ''}"
        self._waiting: dict[Guest, str] = {}
        self._served: dict[Guest, str] = {}
        self._sources: dict[str, dict[Guest, float]] = {}
        self._pace = Bucket(limits.handshakes, limits.burst)
        self._paces: dict[str, Bucket] = {}

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def has_room(self, host: str) -> bool:
        """Return whether one more connection from an address may come in, and make room; counts those that may not."""
        neighbours = self._sources.get(source_of(host), {})
        limits = self._limits
        if len(neighbours) >= limits.per_address:
            oldest, since = next(iter(neighbours.items()))
            if self._clock.seconds() - since < GRACE:
                self._refused("TooManyFromAddress", host, f"{limits.per_address} connections from there wait already")
                return False
            self._evict(oldest, f"{len(neighbours)} connections from its address wait")
        if len(self) >= limits.maximum and not self._waiting:
            self._refused(self._full, host, self._most)
            return False
        if len(self._waiting) >= limits.waiting or len(self) >= limits.maximum:
            self._evict(next(iter(self._waiting)), f"{len(self._waiting)} connections wait")
        return True

    def enters(self, guest: Guest, host: str) -> None:
        """A connection came in, and waits."""
        self._wait(guest, source_of(host))

    def served(self, guest: Guest) -> None:
        """A connection has what it came for, as long as that lasts."""
        source = self._forget(guest)
        if source is not None:
            self._served[guest] = source

    def waits(self, guest: Guest) -> None:
        """A connection waits for its next request; among those that wait it is the newest."""
        source = self._served.pop(guest, None) or self._forget(guest)
        if source is not None:
            self._wait(guest, source)

    def closed(self, guest: Guest) -> None:
        """A connection ended: there is room for another."""
        self._forget(guest)
        self._served.pop(guest, None)

    def handshake(self, host: str) -> float | None:
        """Return after how many seconds a handshake may begin; None, and counted, when that is too long."""
        now = self._clock.seconds()
        source = source_of(host)
        own = self._paces.get(source)
        if own is None:
            if len(self._paces) >= MAX_SOURCES:
                self._paces = {known: pace for known, pace in self._paces.items() if not pace.is_idle(now)}
            own = Bucket(self._limits.handshakes_per_address, self._limits.burst_per_address)
            if len(self._paces) < MAX_SOURCES:
                self._paces[source] = own
        delay = max(own.delay(now), self._pace.delay(now))
        if delay > MAX_WAIT:
            self._refused("TooManyHandshakes", host, f"a handshake would have to wait for {delay:.0f} s")
            return None
        own.take(now)
        self._pace.take(now)
        return delay

    def _wait(self, guest: Guest, source: str) -> None:
        self._waiting[guest] = source
        self._sources.setdefault(source, {})[guest] = self._clock.seconds()

    def _evict(self, guest: Guest, why: str) -> None:
        guest.evict("TooManyHalfOpen", f"{why}; the oldest goes")
        self.closed(guest)

    def _forget(self, guest: Guest) -> str | None:
        """Take a connection out of those that wait; returns where it came from."""
        source = self._waiting.pop(guest, None)
        if source is not None:
            neighbours = self._sources[source]
            del neighbours[guest]
            if not neighbours:
                del self._sources[source]
        return source


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
