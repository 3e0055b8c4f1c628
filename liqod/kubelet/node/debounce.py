"""Whether the network to a lender counts as up, from readings that may waver (pure).

A virtual node that turns costs a write for each of its pods: Kubernetes marks them, and so does the kubelet. What has
worked is therefore taken for broken only after ``DOWN`` seconds of bad readings in a row, and what broke is trusted
again only after good ones for ``UP`` seconds, twice as long after each turn for the worse that came soon after another.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

DOWN: Final = 3.0
"""Seconds of bad readings; the fabric itself says so only after some seconds in which no probe came back."""

UP: Final = 3.0
LONGEST: Final = 60.0
SOON: Final = 600.0
"""Seconds after a turn for the worse in which another one makes the network wavering."""


@frozen
class Steady:
    """``shown``: what counts, None before the first reading; ``differs_since``: when readings began to say otherwise;
    ``turns``: for the worse, each soon after the one before, the last of them at ``turned``.
    """

    shown: bool | None = None
    differs_since: float | None = None
    turns: int = 0
    turned: float = float("-inf")


def follow(steady: Steady, reading: bool | None, now: float) -> tuple[Steady, float | None]:
    """Take a reading (None: not known), and return what counts then, and in how many seconds to look again.

    The first reading counts at once, and so does the first good one: there is nothing to be careful with yet.
    """
    if reading is None or reading == steady.shown:
        return evolve(steady, differs_since=None), None
    if steady.shown is None or (reading and not steady.turns):
        return evolve(steady, shown=reading, differs_since=None), None
    since = now if steady.differs_since is None else steady.differs_since
    left = since + (wait_for_up(steady.turns) if reading else DOWN) - now
    if left > 0:
        return evolve(steady, differs_since=since), left
    if reading:
        return evolve(steady, shown=True, differs_since=None), None
    turns = steady.turns + 1 if now - steady.turned < SOON else 1
    return Steady(False, None, turns, now), None


def wait_for_up(turns: int) -> float:
    """Return for how many seconds readings have to be good after so many turns for the worse."""
    return min(LONGEST, UP * 2.0 ** min(turns - 1, 16))
