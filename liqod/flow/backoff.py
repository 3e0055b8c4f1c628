"""Exponential back-off with jitter, as a pure function of the attempt and a random fraction given in."""

from __future__ import annotations

import attrs


@attrs.frozen
class Backoff:
    """How long to wait before attempt n: ``initial * factor ** n``, capped, then spread by ``jitter``.

    ``jitter`` is the half-width of the spread as a share of the delay: 0.2 gives 80 % to 120 % of it.
    """

    initial: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2

    @property
    def longest(self) -> float:
        """The seconds that ``delay`` never passes, whatever the attempt."""
        return self.cap * (1.0 + self.jitter)

    def delay(self, attempt: int, fraction: float) -> float:
        """Return the seconds to wait; ``attempt`` counts from 0, ``fraction`` is random in [0, 1)."""
        if attempt < 0:
            attempt = 0
        # A long outage counts attempts without end: past the cap the power is not computed, or it would overflow.
        base = self.cap if attempt > 64 else min(self.cap, self.initial * self.factor**attempt)
        return base * (1.0 + self.jitter * (2.0 * fraction - 1.0))
