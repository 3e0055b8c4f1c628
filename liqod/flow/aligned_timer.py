"""Timers that fall due together: what many do every so often costs least in one turn of the reactor. Pure."""

from __future__ import annotations

from typing import Final

PARTS: Final = 4
"""Groups that fall due at different times, so that the work of very many is not one long turn."""
_LATE: Final = 1e-3
"""Seconds, of a moment that is meant to be on the grid already: clocks count in binary."""


def in_step(now: float, every: float, shift: float = 0.0) -> float:
    """Return the seconds to wait from ``now`` for the next of something that is done ``every`` so many seconds.

    The moment is a multiple of a quarter of ``every`` on the clock, plus ``shift``: whatever has the same period falls
    due in the same few turns, and timers that fire late do not drift apart. The first wait is up to a quarter of
    ``every`` shorter, all that follow are whole.
    """
    step = every / PARTS
    due = (now + every - shift + _LATE) // step * step + shift
    return due - now
