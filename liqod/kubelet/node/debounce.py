"""Debounces a boolean reading, with a longer hold time after each flap (pure).

A change of NetworkUnavailable costs one write for each pod of the virtual node. So a working network counts as down
only after ``DOWN_HOLD`` seconds of bad readings in a row, and as up again only after ``UP_HOLD`` seconds of good ones,
doubled for every outage that started less than ``FLAP_WINDOW`` seconds after the previous one. Compare route flap
damping (RFC 2439).
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

DOWN_HOLD: Final = 3.0
"""Seconds of bad readings; the network's own probes add some seconds before the first of them."""

UP_HOLD: Final = 3.0
MAX_HOLD: Final = 60.0
FLAP_WINDOW: Final = 600.0
"""Seconds after an outage in which another one counts as a flap."""


@frozen
class Debounced:
    """A debounced value and its state.

    ``value`` is None before the first reading. ``differs_since``: since when readings differ from it. ``flaps``: number
    of outages in a row, each within ``FLAP_WINDOW`` of the previous one; the last one at ``flapped_at``.
    """

    value: bool | None = None
    differs_since: float | None = None
    flaps: int = 0
    flapped_at: float = float("-inf")


def debounce(debounced: Debounced, reading: bool | None, now: float) -> tuple[Debounced, float | None]:
    """Return the state after a reading (None: unknown), and the seconds after which to read again.

    The first reading counts at once, and so does the first good one: nothing can flap yet.
    """
    if reading is None or reading == debounced.value:
        return evolve(debounced, differs_since=None), None
    if debounced.value is None or (reading and not debounced.flaps):
        return evolve(debounced, value=reading, differs_since=None), None
    since = now if debounced.differs_since is None else debounced.differs_since
    left = since + (recovery_hold(debounced.flaps) if reading else DOWN_HOLD) - now
    if left > 0:
        return evolve(debounced, differs_since=since), left
    if reading:
        return evolve(debounced, value=True, differs_since=None), None
    flaps = debounced.flaps + 1 if now - debounced.flapped_at < FLAP_WINDOW else 1
    return Debounced(False, None, flaps, now), None


def recovery_hold(flaps: int) -> float:
    """Return the seconds for which readings must be good after so many flaps."""
    return min(MAX_HOLD, UP_HOLD * 2.0 ** min(flaps - 1, 16))
