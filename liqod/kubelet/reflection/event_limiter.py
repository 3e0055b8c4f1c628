"""Limits the rate of reflected events with a token bucket: an event is recorded, queued or dropped (pure).

A burst is recorded at once, then one event a second. While the bucket is empty, warnings are queued in their order;
those of the lender's liqod (why a pod is refused or not updated) precede those of other components. Normal events are
not queued.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

T = TypeVar("T")

BURST: Final = 20.0
PER_SECOND: Final = 1.0
RESERVE: Final = 5.0
"""Tokens of the burst that are reserved for warnings."""
WAITING: Final = 256
"""Maximum number of queued events of one urgency; the oldest one is dropped first."""


class Urgency(IntEnum):
    """How important an event is."""

    ORDINARY = 0
    WARNING = 1
    VERDICT = 2


class EventLimiter(Generic[T]):
    """The token bucket and the queued events by key; ``now`` is the reactor's clock, ``dropped`` counts drops."""

    def __init__(self, now: float) -> None:
        self.dropped = 0
        self._room = BURST
        self._filled_at = now
        self._waiting: dict[Urgency, OrderedDict[Hashable, T]] = {
            Urgency.VERDICT: OrderedDict(),
            Urgency.WARNING: OrderedDict(),
        }

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, key: Hashable, event: T, urgency: Urgency, now: float) -> bool:
        """Return whether to record an event now; else a warning is queued, replacing an earlier one of its key."""
        waiting = self._waiting.get(urgency)
        if waiting is None:
            is_recorded = not len(self) and self._take(1.0 + RESERVE, now)
            self.dropped += not is_recorded
            return is_recorded
        if not len(self) and self._take(1.0, now):
            return True
        waiting[key] = event
        if len(waiting) > WAITING:
            waiting.popitem(last=False)
            self.dropped += 1
        return False

    def due(self, now: float) -> T | None:
        """Remove and return the next queued event; None if none is queued or the bucket is empty."""
        if not len(self) or not self._take(1.0, now):
            return None
        waiting = next(filter(None, self._waiting.values()))
        return waiting.popitem(last=False)[1]

    def wait(self, now: float) -> float | None:
        """Return the seconds until a queued event can be recorded; None if none is queued."""
        self._fill(now)
        return max(0.0, 1.0 - self._room) / PER_SECOND if len(self) else None

    def _fill(self, now: float) -> None:
        self._room = min(BURST, self._room + max(0.0, now - self._filled_at) * PER_SECOND)
        self._filled_at = now

    def _take(self, least: float, now: float) -> bool:
        self._fill(now)
        # A timer can fire early by a rounding error: 0.9999999 of a token counts as one.
        if self._room < least - 1e-6:
            return False
        self._room -= 1.0
        return True
