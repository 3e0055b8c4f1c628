"""Exponential back-off with random jitter."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs


@attrs.frozen
class Backoff:
    """Seconds to wait before attempt n: ``initial * factor ** n``, at most ``cap``, spread by ``jitter``.

    ``jitter`` is the half-width of the spread as a share of the delay: 0.2 gives 80 % to 120 % of it. Without it, a
    thousand objects refused together would be retried together. ``random`` returns fractions in [0, 1); the default is
    Python's shared generator, which a test may seed. Stateless: the caller counts attempts.
    """

    initial: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2
    random: Callable[[], float] = attrs.field(default=random.random, eq=False, repr=False, kw_only=True)

    @property
    def longest(self) -> float:
        """The maximum of ``delay`` over all attempts, in seconds."""
        return self.cap * (1.0 + self.jitter)

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait; ``attempt`` counts from 0."""
        if attempt < 0:
            attempt = 0
        # Attempts grow without bound during a long outage; a float power raises OverflowError from 1e308 on.
        base = self.cap if attempt > 64 else min(self.cap, self.initial * self.factor**attempt)
        if not self.jitter:
            return base
        return base * (1.0 + self.jitter * (2.0 * self.random() - 1.0))

    def using(self, random: Callable[[], float]) -> Backoff:
        """Return the same back-off with another source of randomness."""
        return attrs.evolve(self, random=random)
