"""Monotonic and wall clock as two distinct types, and the reactor as liqod uses it.

Monotonic: seconds as a ``float``, read by ``reactor.seconds()`` and waited for by ``reactor.callLater``: durations,
leases, TTLs, back-off. They are valid in this process only and never decrease.

Wall clock: a date as a ``datetime`` in UTC, read by calling a ``WallClock``: for records, certificates and tokens. It
jumps when the clock is set (NTP).

mypy rejects one in place of the other: ``rfc3339(reactor.seconds())`` does not type-check. To wait until a date,
convert it to reactor seconds once, when it is received: ``deadline = reactor_time(date, reactor)``.

Twisted's ``reactor.seconds()`` is ``time.time()`` by default, so all timers fire an hour late when the clock is set
back by an hour. ``use_steady_time`` gives the process's reactor a monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias, cast

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
