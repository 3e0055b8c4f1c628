"""Paces the writes of pods' statuses: the more often one changes, the later it is written. Pure.

The lender writes the status of its pods, and each change becomes an object of several KiB in home's etcd, which keeps
all versions until the next compaction (every five minutes by default): the whole pod, not its status alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from attrs import define, frozen

from liqod.kubelet.common.views import HomePod
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
"""Maximum delay in seconds of a change of phase or readiness, on which services and controllers depend; more only where
these themselves go on changing."""
MANAGED: Final = 2 << 10
"""Bytes of a pod's managedFields, which the cache does not keep: an estimate."""
_LEVEL: Final = 20.0
PER_MINUTE: Final = 64 << 20
"""Bytes of pods whose statuses are written in a minute for one lender: some ten thousand. In the five minutes between
two compactions this is a fraction of etcd's default quota of 2 GiB."""
RESERVE: Final = PER_MINUTE // 4
"""The part of it that is left to changes of phase and readiness."""


@frozen
class Writes:
    """How often one thing was written of late, and when last (reactor's clock)."""

    level: float = 0.0
    written_at: float = 0.0

    def due_at(self, now: float, longest: float = LONGEST) -> float:
        """Return when the next write is due; the past if it is due now."""
        level = self._level(now)
        return self.written_at + min(longest, FIRST * 2 ** (level - FREE)) if level >= FREE else 0.0

    def written(self, now: float) -> Writes:
        """Return this after a write."""
        return Writes(min(_LEVEL, self._level(now) + 1.0), now)

    def _level(self, now: float) -> float:
        # Time counts only beyond the delay itself: a status that changes all the time stays at its delay.
        spared = max(0.0, now - self.written_at - min(LONGEST, FIRST * 2 ** max(0.0, self.level - FREE)))
        return max(0.0, self.level - spared / RECOVERY)


@frozen
class Pace:
    """The writes of one status: all of them, and those of its phase and readiness."""

    every: Writes = Writes()
    urgent: Writes = Writes()

    def wait(self, now: float, *, urgent: bool) -> float:
        """Return the seconds until the next write is due; 0 if it is due now."""
        due = max(self.every.due_at(now, LONGEST_URGENT), self.urgent.due_at(now)) if urgent else self.every.due_at(now)
        return max(0.0, due - now)

    def written(self, now: float, *, urgent: bool) -> Pace:
        """Return the pace after a write."""
        return Pace(self.every.written(now), self.urgent.written(now) if urgent else self.urgent)


def is_urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a change of status is one of phase or readiness."""
    return (old.get("phase"), is_ready(old)) != (new.get("phase"), is_ready(new))


def size_of(home: HomePod, status: Mapping[str, Any]) -> int:
    """Return about how many bytes etcd keeps of a pod when this status is written: those of its JSON."""
    metadata = len(msgspec.json.encode(home.metadata))
    return metadata + memoryview(home.spec).nbytes + len(msgspec.json.encode(status)) + MANAGED


@define
class StatusBudget:
    """The bytes that may still be written for one lender; they grow back evenly."""

    left: float = PER_MINUTE
    at: float = 0.0

    def wait(self, size: int, now: float, *, urgent: bool) -> float:
        """Return the seconds until a pod of this size may be written; 0 if it may be now."""
        self.left = min(PER_MINUTE, self.left + (now - self.at) * PER_MINUTE / 60)
        self.at = now
        return max(0.0, (size + (0 if urgent else RESERVE) - self.left) * 60 / PER_MINUTE)

    def spend(self, size: int) -> None:
        """Note a write."""
        self.left -= size
