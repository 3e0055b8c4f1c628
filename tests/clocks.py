"""A host's two clocks for tests: the reactor's time is advanced, the date can be set as NTP does."""

from __future__ import annotations

from twisted.internet.task import Clock

from liqod.flow.clocks import SimulatedWallClock


class HostClock(Clock):
    """Twisted's ``Clock`` with a date that runs with it; ``wall.offset`` sets the date."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.wall = SimulatedWallClock(self, offset)

    def set_date(self, seconds: float) -> None:
        """Set the date forward, or back, by some seconds; the reactor's time goes on as before."""
        self.wall.offset += seconds
