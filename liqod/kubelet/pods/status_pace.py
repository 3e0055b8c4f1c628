"""Paces the writes of pods' statuses: the more often one changes, the later it is written. Pure.

The lender writes the status of its pods, and each change becomes an object of several KiB in home's etcd, which keeps
all versions until the next compaction (every five minutes by default).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import define, frozen

from liqod.kubelet.pods.status import is_ready

FREE: Final = 10.0
"""Writes in quick succession that are not delayed: more than a pod needs from its creation until it is ready."""
RECOVERY: Final = 6.0
"""Seconds after which one write is no longer counted."""
FIRST: Final = 0.5
"""Seconds of the first delay; each further write doubles it."""
LONGEST: Final = 30.0
"""Maximum delay in seconds."""
LONGEST_URGENT: Final = 2.0
"""Maximum delay in seconds of a change of phase or readiness, on which services and controllers depend."""
_LEVEL: Final = 20.0
PER_MINUTE: Final = 64 << 20
"""Bytes of statuses that are written in a minute for one lender: those of some ten thousand pods. In the five minutes
between two compactions this is a fraction of etcd's default quota of 2 GiB."""
RESERVE: Final = PER_MINUTE // 4
"""The part of it that is left to changes of phase and readiness."""


@frozen
class Pace:
    """How often a status was written of late, and when last (reactor's clock)."""

    level: float = 0.0
    written_at: float = 0.0

    def wait(self, now: float, *, urgent: bool) -> float:
        """Return the seconds until the next write is due; 0 if it is due now."""
        level = self._level(now)
        if level < FREE:
            return 0.0
        pause = min(LONGEST_URGENT if urgent else LONGEST, FIRST * 2 ** (level - FREE))
        return max(0.0, self.written_at + pause - now)

    def written(self, now: float) -> Pace:
        """Return the pace after a write."""
        return Pace(min(_LEVEL, self._level(now) + 1.0), now)

    def _level(self, now: float) -> float:
        # Time counts only beyond the delay itself: a status that changes all the time stays at its delay.
        spared = max(0.0, now - self.written_at - min(LONGEST, FIRST * 2 ** max(0.0, self.level - FREE)))
        return max(0.0, self.level - spared / RECOVERY)


def is_urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a change of status is one of phase or readiness."""
    return (old.get("phase"), is_ready(old)) != (new.get("phase"), is_ready(new))


@define
class StatusBudget:
    """The bytes of statuses that may still be written for one lender; they grow back evenly."""

    left: float = PER_MINUTE
    at: float = 0.0

    def wait(self, size: int, now: float, *, urgent: bool) -> float:
        """Return the seconds until a status of this size may be written; 0 if it may be now."""
        self.left = min(PER_MINUTE, self.left + (now - self.at) * PER_MINUTE / 60)
        self.at = now
        return max(0.0, (size + (0 if urgent else RESERVE) - self.left) * 60 / PER_MINUTE)

    def spend(self, size: int) -> None:
        """Note a write."""
        self.left -= size
