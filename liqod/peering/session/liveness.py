"""Liveness of a peer, counted in heartbeats rather than seconds, so that a busy daemon suspects nobody. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

MISSES: Final = 3
"""Beats without a sign of life after which a session is given up."""

GRACE: Final = 2.0
"""Ping intervals that a session may be broken before its peer is suspect."""


@attrs.frozen
class Heartbeat:
    """The beats of one session. ``active`` since the last beat, ``missed`` in a row before it.

    A beat that comes late because the daemon was busy counts once, however late: what the peer sent meanwhile was read
    before the next beat.
    """

    missed: int = 0
    active: bool = True

    def note_activity(self) -> Heartbeat:
        """Note a sign of life: any complete event."""
        return self if self.active and not self.missed else Heartbeat(0, True)

    def beat(self) -> Heartbeat:
        """Note that a ping interval passed."""
        return Heartbeat(0, False) if self.active else Heartbeat(self.missed + 1, False)

    @property
    def dead(self) -> bool:
        """Nothing came for ``MISSES`` beats: the session is to be given up."""
        return self.missed >= MISSES

    @property
    def quiet(self) -> bool:
        """Nothing came since the last beat: worth a Ping."""
        return not self.active


class Liveness(Enum):
    """How a peer that was authenticated before stands now."""

    ALIVE = "Alive"
    SUSPECT = "Suspect"
    LOST = "Lost"


@attrs.frozen
class Assessment:
    """A standing and the moment at which it turns worse by itself, None when it does not."""

    standing: Liveness
    until: float | None


def assess_liveness(
    now: float, *, connected: bool, missed: int, broken_since: float, interval: float, expires: float | None
) -> Assessment:
    """Return how a peer stands.

    ``broken_since``: when the last session ended; ``interval``: the ping interval; ``expires``: when its offer's TTL
    passes, None without an offer (then it is never Lost, only Suspect). Nothing here deletes anything.
    """
    if connected:
        return Assessment(Liveness.SUSPECT if missed >= MISSES else Liveness.ALIVE, None)
    suspect_at = broken_since + GRACE * interval
    if expires is not None and now >= expires:
        return Assessment(Liveness.LOST, None)
    if now >= suspect_at:
        return Assessment(Liveness.SUSPECT, expires)
    return Assessment(Liveness.ALIVE, suspect_at)
