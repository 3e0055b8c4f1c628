"""Limits connections and handshakes of ports that unauthenticated clients reach. Reads one clock.

A connection being served keeps its slot. A connection that waits (for a handshake, a request, a session) may be evicted
for a newer one, the oldest first: a handshake takes a fraction of a second, so the longest waiting connections are most
likely idle ones of an attacker (slowloris).
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.model.addresses import parse_ip

PER_ADDRESS: Final = 64
"""Maximum of waiting connections from one address: several clusters may share one behind NAT."""
HALF_OPEN: Final = 256
"""Maximum of waiting connections from all addresses: TLS uses about 40 KiB for each."""
GRACE: Final = 1.0
"""Seconds before a waiting connection may be evicted for one from the same address: time for a handshake."""
IPV6_SITE: Final = 64
"""Prefix length by which IPv6 clients are counted: a site has at least a /64, so any address in it (RFC 6177)."""
HANDSHAKES: Final = 64.0
"""Sustained rate of handshakes per second from all addresses; one costs a few milliseconds of CPU at worst."""
HANDSHAKES_BURST: Final = 256
"""Burst of handshakes: all peers reconnect at the same time after a restart of the daemon."""
HANDSHAKES_PER_ADDRESS: Final = 16.0
HANDSHAKES_BURST_PER_ADDRESS: Final = 64
REQUEST: Final = 10.0
"""Time limit in seconds for a handshake, and for head and body of a request, where HTTP is served."""
MAX_WAIT: Final = 5.0
"""Maximum delay of a handshake in seconds; a longer one is refused."""
MAX_SOURCES: Final = 4096
"""Maximum number of addresses with a rate limit of their own."""
MAX_KNOWN: Final = 1024
"""Maximum number of addresses that are known for what was served there; the one of longest ago is forgotten first."""
KNOWN_FOR: Final = 86400.0
"""Seconds for which an address is known."""


@attrs.frozen
class PortLimits:
    """Limits of a port: connections, and handshakes per second."""

    maximum: int
    per_address: int = PER_ADDRESS
    waiting: int = HALF_OPEN
    handshakes: float = attrs.field(default=HANDSHAKES, kw_only=True)
    burst: int = attrs.field(default=HANDSHAKES_BURST, kw_only=True)
    handshakes_per_address: float = attrs.field(default=HANDSHAKES_PER_ADDRESS, kw_only=True)
    burst_per_address: int = attrs.field(default=HANDSHAKES_BURST_PER_ADDRESS, kw_only=True)


OF_API_SERVERS: Final = PortLimits(
    512,
    per_address=256,
    waiting=384,
    handshakes=400.0,
    burst=800,
    handshakes_per_address=300.0,
    burst_per_address=600,
)
"""kube-apiserver keeps 25 idle connections per webhook and opens a new one for each further concurrent request."""


class Guest(Protocol):
    """A connection that can be evicted."""

    def evict(self, reason: str, message: str) -> None:
        """Close the connection at once, in favor of a newer one."""


_ROUNDING: Final = 1e-9
"""Seconds that are no wait."""


@attrs.define
class Bucket:
    """Rate limiter with burst and sustained rate (generic cell rate algorithm, ITU-T I.371)."""

    rate: float
    burst: int
    _due: float = float("-inf")

    def delay(self, now: float) -> float:
        """Return the seconds until the next one may start; 0 for now."""
        wait = self._due - now - (self.burst - 1) / self.rate
        # A burst of thousands adds up as many rounding errors.
        return wait if wait > _ROUNDING else 0.0

    def take(self, now: float) -> None:
        """Count one that starts after its delay."""
        self._due = max(self._due, now) + 1 / self.rate

    def is_idle(self, now: float) -> bool:
        """Return whether the limiter has no state left and can be dropped."""
        return self._due <= now


class Admission:
    """Admits connections within ``limits``; calls ``refused(reason, source, message)`` for each refused one.

    Call ``has_room`` for a new connection, then ``enters``, and ``closed`` at its end; in between ``waits`` and
    ``served`` as its state changes.
    With ``remembers``, those from addresses where one was served before go last, and have a pace of their own.
    """

    def __init__(
        self,
        clock: IReactorTime,
        limits: PortLimits,
        refused: Callable[[str, str, str], None],
        *,
        full: str = "TooManyConnections",
        setting: str = "",
        remembers: bool = False,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._refused = refused
        self._full = full
        self._most = f"{limits.maximum} connections are in use{f' ({setting})' if setting else ''}"
        self._waiting: dict[Guest, str] = {}
        self._served: dict[Guest, str] = {}
        self._sources: dict[str, dict[Guest, float]] = {}
        self._remembers = remembers
        self._known: OrderedDict[str, float] = OrderedDict()
        self._pace, self._known_pace = (Bucket(limits.handshakes, limits.burst) for _ in range(2))
        self._paces: dict[str, Bucket] = {}

    @property
    def waiting(self) -> int:
        """The number of waiting connections."""
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def has_room(self, host: str) -> bool:
        """Return whether a connection from an address is admitted; evict an older one if needed, count a refusal."""
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
            self._evict(self._last(), f"{len(self._waiting)} connections wait")
        return True

    def enters(self, guest: Guest, host: str) -> None:
        """Add a new connection as waiting."""
        self._wait(guest, source_of(host))

    def served(self, guest: Guest) -> None:
        """Mark a connection as served: it cannot be evicted."""
        source = self._forget(guest)
        if source is not None:
            self._served[guest] = source
            self._remember(source)

    def waits(self, guest: Guest) -> None:
        """Mark a connection as waiting for its next request, as the newest of the waiting ones."""
        source = self._served.pop(guest, None) or self._forget(guest)
        if source is not None:
            self._wait(guest, source)

    def closed(self, guest: Guest) -> None:
        """Remove a closed connection."""
        self._forget(guest)
        source = self._served.pop(guest, None)
        if source is not None:
            self._remember(source)

    def handshake(self, host: str) -> float | None:
        """Return the seconds until a handshake may start; None, counted as refused, above ``MAX_WAIT``."""
        now = self._clock.seconds()
        source = source_of(host)
        own = self._paces.get(source)
        if own is None:
            if len(self._paces) >= MAX_SOURCES:
                self._paces = {known: pace for known, pace in self._paces.items() if not pace.is_idle(now)}
            own = Bucket(self._limits.handshakes_per_address, self._limits.burst_per_address)
            if len(self._paces) < MAX_SOURCES:
                self._paces[source] = own
        pace = self._known_pace if self._is_known(source) else self._pace
        delay = max(own.delay(now), pace.delay(now))
        if delay > MAX_WAIT:
            self._refused("TooManyHandshakes", host, f"a handshake would have to wait for {delay:.0f} s")
            return None
        own.take(now)
        pace.take(now)
        return delay

    def _remember(self, source: str) -> None:
        if self._remembers:
            self._known[source] = self._clock.seconds()
            self._known.move_to_end(source)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def _is_known(self, source: str) -> bool:
        since = self._known.get(source)
        return since is not None and self._clock.seconds() - since < KNOWN_FOR

    def _last(self) -> Guest:
        """Return the waiting connection that goes first: the oldest, if any, of those from addresses not known."""
        unknown = (guest for guest, source in self._waiting.items() if not self._is_known(source))
        return next(unknown, next(iter(self._waiting)))

    def _wait(self, guest: Guest, source: str) -> None:
        self._waiting[guest] = source
        self._sources.setdefault(source, {})[guest] = self._clock.seconds()

    def _evict(self, guest: Guest, why: str) -> None:
        guest.evict("TooManyHalfOpen", f"{why}; the oldest goes")
        self.closed(guest)

    def _forget(self, guest: Guest) -> str | None:
        """Remove a waiting connection; return its source."""
        source = self._waiting.pop(guest, None)
        if source is not None:
            neighbours = self._sources[source]
            del neighbours[guest]
            if not neighbours:
                del self._sources[source]
        return source


def source_of(host: str) -> str:
    """Return the key by which an address is counted: the IPv4 address, or the /64 network of an IPv6 address."""
    address = parse_ip(host.partition("%")[0])
    if address is None:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> IPV6_SITE << IPV6_SITE, 128 - IPV6_SITE)))
