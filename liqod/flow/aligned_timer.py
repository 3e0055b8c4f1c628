"""Aligns periodic timers to a common grid, so that many fire in the same turn of the reactor. Pure."""

from __future__ import annotations

from typing import Final

PARTS: Final = 4
"""Groups that fall due at different times, so that the work of very many is not one long turn."""
_LATE: Final = 1e-3
"""Seconds, of a moment that is meant to be on the grid already: clocks count in binary."""


def in_step(now: float, every: float, shift: float = 0.0) -> float:
    """Return the seconds from ``now`` to the next tick of a timer with a period of ``every`` seconds.

    Ticks are multiples of a quarter of ``every`` on the clock, plus ``shift``: timers of the same period fire in the
    same few turns, and late ones do not drift apart. The first wait is up to a quarter of ``every`` shorter than the
    period, all later ones are full periods.
    """
    step = every / PARTS
    due = (now + every - shift + _LATE) // step * step + shift
    return due - now
