"""Measures the reactor's lag: how late timers fire because of slow turns."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from liqod.flow.timer import Timer


class LagMeter(Service):
    """Starts a timer every ``interval`` seconds and calls ``observe`` with the seconds by which it fired late."""

    def __init__(self, clock: IReactorTime, observe: Callable[[float], None], interval: float = 1.0) -> None:
        self._clock = clock
        self._observe = observe
        self._interval = interval
        self._timer = Timer(clock)
        self._due = 0.0
        self.last = 0.0
        self.worst = 0.0
        self.measured_at = 0.0

    def startService(self) -> None:
        super().startService()
        self._arm()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._timer.cancel()
        return succeed(None)

    def _arm(self) -> None:
        self.measured_at = self._clock.seconds()
        self._due = self.measured_at + self._interval
        self._timer.start(self._interval, self._measure)

    def _measure(self) -> None:
        self.last = max(0.0, self._clock.seconds() - self._due)
        self.worst = max(self.worst, self.last)
        self._observe(self.last)
        self._arm()
