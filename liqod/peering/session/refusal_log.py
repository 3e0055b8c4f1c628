"""Counts refusals, and logs them with a rate limit so that a peer cannot fill the log."""

from __future__ import annotations

from collections import Counter
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

QUIET: Final = 60.0
"""Seconds in which one source is logged at most once."""
MAX_SOURCES: Final = 1024
"""Sources that are remembered; beyond that the oldest is dropped, and may be logged again sooner."""


class RefusalLog:
    """Counts by reason; logs each source at most once a minute."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._logged: dict[str, float] = {}

    def record(self, reason: str, source: str, message: str) -> None:
        """Count a refusal; ``source`` is an address or a cluster ID."""
        self.counts[reason] += 1
        now = self._clock.seconds()
        last = self._logged.pop(source, None)
        loud = last is None or now - last >= QUIET
        self._logged[source] = now if loud or last is None else last
        if len(self._logged) > MAX_SOURCES:
            del self._logged[next(iter(self._logged))]
        if loud:
            self._log.warn("refused {source}: {reason}: {message}", source=source, reason=reason, message=message)
