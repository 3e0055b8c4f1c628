"""A host's two clocks for tests: the reactor's time is advanced, the date can be set as NTP does."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock


class SimulatedWallClock:
    """A wall clock derived from a reactor's time.

    ``offset`` is the date, in seconds since 1970, at the reactor's second 0; changing it simulates a clock step (NTP).
    """

    def __init__(self, reactor: IReactorTime, offset: float = 0.0) -> None:
        self._reactor = reactor
        self.offset = offset

    def __call__(self) -> datetime:
        """Return the date, in UTC."""
        return datetime.fromtimestamp(self._reactor.seconds() + self.offset, UTC)


class HostClock(Clock):
    """Twisted's ``Clock`` with a date that runs with it; ``wall.offset`` sets the date."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.wall = SimulatedWallClock(self, offset)

    def set_date(self, seconds: float) -> None:
        """Set the date forward, or back, by some seconds; the reactor's time goes on as before."""
        self.wall.offset += seconds
