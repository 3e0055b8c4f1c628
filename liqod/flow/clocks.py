"""Monotonic and wall clock as two distinct types, and the reactor as liqod uses it.

Monotonic: seconds as a ``float``, read by ``reactor.seconds()`` and waited for by ``reactor.callLater``: durations,
leases, TTLs, back-off. They are valid in this process only and never decrease.

Wall clock: a date as a ``datetime`` in UTC, read by calling a ``WallClock``: for records, certificates and tokens. It
jumps when the clock is set (NTP).

mypy rejects one in place of the other: ``rfc3339(reactor.seconds())`` does not type-check. To wait until a date,
convert it to reactor seconds once, when it is received: ``deadline = reactor_time(date, reactor)``. ``LearnedDates``
does so for dates that are seen again and again, in objects of Kubernetes.

Twisted's ``reactor.seconds()`` is ``time.time()`` by default, so all timers fire an hour late when the clock is set
back by an hour. ``use_steady_time`` gives the process's reactor a monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Hashable
from datetime import UTC, datetime
from typing import Generic, TypeAlias, TypeVar, cast

from twisted.internet.base import ReactorBase
from twisted.internet.interfaces import (
    IReactorFDSet,
    IReactorMulticast,
    IReactorProcess,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
    IReactorUDP,
)

from liqod.model.timestamps import parse_rfc3339

K = TypeVar("K", bound=Hashable)


class Reactor(
    IReactorTime, IReactorTCP, IReactorUDP, IReactorMulticast, IReactorThreads, IReactorProcess, IReactorFDSet
):
    """The reactor interfaces that the daemon uses; code that needs only time takes an ``IReactorTime``."""


def installed_reactor() -> Reactor:
    """Return the process's reactor; do not call it at import time, because it installs Twisted's default if none is."""
    from twisted.internet import reactor

    return cast(Reactor, reactor)


WallClock: TypeAlias = Callable[[], datetime]
"""Returns the date in UTC; it may jump in both directions."""


def utc_now() -> datetime:
    """Return the date of the host's wall clock."""
    return datetime.now(UTC)


def wall_clock(reactor: IReactorTime) -> WallClock:
    """Return the wall clock of a reactor's host: the reactor's ``wall`` for a simulated host, else ``utc_now``."""
    wall: WallClock = getattr(reactor, "wall", utc_now)
    return wall


def reactor_time(moment: datetime, reactor: IReactorTime) -> float:
    """Convert a date to seconds of the reactor's clock by the current wall clock; later clock steps have no effect."""
    return reactor.seconds() + (moment - wall_clock(reactor)()).total_seconds()


class LearnedDates(Generic[K]):
    """Dates from outside in seconds of the reactor's clock, each converted once: when its key is first seen with it.

    A key that is looked at again keeps its time, also when the wall clock was set meanwhile. The caller drops keys.
    ``wall`` is the wall clock; None: that of the reactor's host.
    """

    def __init__(self, reactor: IReactorTime, wall: WallClock | None = None) -> None:
        self._reactor = reactor
        self._wall = wall or wall_clock(reactor)
        self._known: dict[K, tuple[str, float]] = {}

    def at(self, key: K, date: str | None, *, past: bool = False) -> float | None:
        """Return when the date of a key is, in seconds of the reactor's clock; None for what is no date.

        ``past``: what it is the date of has happened, at the latest now.
        """
        known = self._known.get(key)
        if known is not None and known[0] == date:
            return known[1]
        moment = parse_rfc3339(date)
        if date is None or moment is None:
            self.forget(key)
            return None
        ahead = (moment - self._wall()).total_seconds()
        seconds = self._reactor.seconds() + (min(ahead, 0.0) if past else ahead)
        self._known[key] = date, seconds
        return seconds

    def forget(self, key: K) -> None:
        """Drop a key: its object is gone."""
        self._known.pop(key, None)

    def retain(self, keys: Container[K]) -> None:
        """Drop all keys but these."""
        self._known = {key: known for key, known in self._known.items() if key in keys}


def steady_clock() -> Callable[[], float]:
    """Return a monotonic clock in seconds that starts at the current date.

    Unlike CLOCK_MONOTONIC, CLOCK_BOOTTIME includes suspend time (clock_gettime(2)): a lease must expire on a suspended
    laptop, as it does for all other candidates. It starts at the date because much code, including Twisted's, takes 0.0
    for "long ago", which is wrong on a host that booted a moment ago.
    """
    offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + offset


def use_steady_time(reactor: IReactorTime, clock: Callable[[], float] | None = None) -> None:
    """Make a reactor use a monotonic clock; pending delayed calls keep their remaining time.

    This covers all timers of Twisted and its TLS, DNS and HTTP clients: ``ReactorBase`` reads the time only through
    ``self.seconds``, and the asyncio loop below schedules by ``time.monotonic`` already. A reactor that is not a
    ``ReactorBase`` (simulated time in tests) is not changed. Idempotent.
    """
    if not isinstance(reactor, ReactorBase) or "seconds" in vars(reactor):
        return
    seconds = clock or steady_clock()
    before = reactor.seconds
    pending = [(call, call.getTime() - before()) for call in reactor.getDelayedCalls()]
    reactor.seconds = seconds
    for call, remaining in pending:
        # A DelayedCall keeps the ``seconds`` function that it was created with (twisted.internet.base).
        call.seconds = seconds  # type: ignore[attr-defined]
        call.delay(remaining - (call.getTime() - seconds()))
