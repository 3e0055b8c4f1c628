"""Two clocks that cannot be mixed up, and the reactor as liqod uses it.

*How long*: seconds as a ``float``, read by ``reactor.seconds()`` and waited for by ``reactor.callLater``: durations,
leases, TTLs, silence, back-off. They mean nothing outside of this process and never go back.

*When*: a date as a ``datetime`` in UTC, read by calling a ``WallClock``: what is written to records, certificates and
tokens, or compared with what others wrote there. It moves when somebody sets the clock (NTP).

mypy refuses one where the other is meant: ``rfc3339(reactor.seconds())`` does not type-check. To wait until a date,
turn it into seconds of the reactor's clock once, when it is learned: ``deadline = reactor_time(date, reactor)``.

Twisted's ``reactor.seconds()`` is ``time.time()`` unless told otherwise, so that all its timers wait an hour longer
when the clock is set back by one. ``use_steady_time`` gives the process's reactor a clock that is not set.
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
)


class Reactor(IReactorTime, IReactorTCP, IReactorMulticast, IReactorThreads, IReactorProcess, IReactorFDSet):
    """The parts of a reactor that the daemon uses; what needs time alone takes an ``IReactorTime``."""


def installed_reactor() -> Reactor:
    """Return the process's reactor; installs Twisted's default one if none is, so not to be called at import."""
    from twisted.internet import reactor

    return cast(Reactor, reactor)


WallClock: TypeAlias = Callable[[], datetime]
"""Tells the date, in UTC; it may jump, in both directions."""


def utc_now() -> datetime:
    """Return the date by the host's own wall clock."""
    return datetime.now(UTC)


class SimulatedWallClock:
    """A wall clock that runs with a reactor's time: for clusters in memory, where time is simulated.

    ``offset`` is the date, in seconds since 1970, at the reactor's second 0; setting it is what NTP does to a host.
    """

    def __init__(self, reactor: IReactorTime, offset: float = 0.0) -> None:
        self._reactor = reactor
        self.offset = offset

    def __call__(self) -> datetime:
        """Return the date, in UTC."""
        return datetime.fromtimestamp(self._reactor.seconds() + self.offset, UTC)


def wall_clock(reactor: IReactorTime) -> WallClock:
    """Return the wall clock of the host that a reactor runs on: its own ``wall`` where the host is simulated."""
    wall: WallClock = getattr(reactor, "wall", utc_now)
    return wall


def reactor_time(moment: datetime, reactor: IReactorTime) -> float:
    """Return a date as seconds of the reactor's clock, by what the wall clock shows now; then it is not moved again."""
    return reactor.seconds() + (moment - wall_clock(reactor)()).total_seconds()


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds that nobody sets; it begins with the date, and then goes on by itself.

    Unlike CLOCK_MONOTONIC it counts the time that the host was suspended: a lease must have expired on a laptop that
    slept, because it has for everybody else (clock_gettime(2), CLOCK_BOOTTIME). It begins with the date because code
    everywhere, Twisted's own too, takes 0.0 for "long ago", which it is not on a host that booted a moment ago.
    """
    offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + offset


def use_steady_time(reactor: IReactorTime, clock: Callable[[], float] | None = None) -> None:
    """Let a reactor measure time by a clock that nobody sets; what it was to call later keeps its remaining time.

    Every timer of the reactor follows, those of Twisted itself and of TLS, DNS and HTTP clients too: ``ReactorBase``
    reads the time through ``self.seconds`` alone, and the asyncio loop below schedules by ``time.monotonic`` already.
    A reactor that is none of Twisted's (simulated time in tests) is left alone. Calling it again changes nothing.
    """
    if not isinstance(reactor, ReactorBase) or "seconds" in vars(reactor):
        return
    seconds = clock or steady_clock()
    before = reactor.seconds
    pending = [(call, call.getTime() - before()) for call in reactor.getDelayedCalls()]
    reactor.seconds = seconds
    for call, remaining in pending:
        # A DelayedCall has read the time through a function of its own since it was made.
        call.seconds = seconds  # type: ignore[attr-defined]
        call.delay(remaining - (call.getTime() - seconds()))
