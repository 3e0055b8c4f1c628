"""A share of something: what may be taken of it evenly, and at once. Pure."""

from __future__ import annotations

import attrs


@attrs.define
class Share:
    """What may be taken of one thing, evenly and at once; more is waited for."""

    rate: float
    burst: float
    _taken: float = 0.0
    _at: float = 0.0

    def take(self, amount: float, now: float) -> None:
        """Count what was taken."""
        self._taken, self._at = self.taken(now) + amount, now

    def taken(self, now: float) -> float:
        """Return how much of what was taken is not free again."""
        return max(0.0, self._taken - (now - self._at) * self.rate)

    def wait(self, now: float) -> float:
        """Return the seconds until more may be taken; 0 if it may be now."""
        return max(0.0, (self.taken(now) - self.burst) / self.rate)
