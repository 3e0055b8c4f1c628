"""Counts the connections that a port refuses, and logs them at a bounded rate."""

from __future__ import annotations

from collections import Counter
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

LOG_INTERVAL: Final = 60.0
"""Seconds in which one port logs at most once: those who connect must not be able to fill the log."""


class RefusedConnections:
    """The refusals of one port by reason; ``listen`` names it in the log."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, listen: str) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._listen = listen
        self._logged_at = float("-inf")
        self._logged = 0

    def record(self, reason: str, source: str, message: str) -> None:
        """Count a refused connection of ``source``, an address; the log says how many were refused since its last
        line.
        """
        self.counts[reason] += 1
        now = self._clock.seconds()
        if now - self._logged_at < LOG_INTERVAL:
            return
        total = self.counts.total()
        count, self._logged, self._logged_at = total - self._logged, total, now
        self._log.warn(
            "{listen}: connections of {address} are refused ({reason}: {detail}); refused since the last such line: "
            "{count}",
            listen=self._listen,
            address=source,
            reason=reason,
            detail=message,
            count=count,
        )
