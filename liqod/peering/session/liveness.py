"""Liveness of a peer, counted in heartbeats rather than seconds, so that a busy daemon causes no suspicion. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

MISSES: Final = 3
"""Beats without a received event after which a session is closed."""

GRACE: Final = 2.0
"""Ping intervals without a session after which the peer is suspect."""


@attrs.frozen
class Heartbeat:
    """The beats of one session. ``active``: an event was received since the last beat; ``missed``: beats in a row.

    A beat that is late because the daemon was busy counts once: data that the peer sent meanwhile is read before the
    next beat.
    """

    missed: int = 0
    active: bool = True

    def note_activity(self) -> Heartbeat:
        """Record that a complete event was received."""
        return self if self.active and not self.missed else Heartbeat(0, True)

    def beat(self) -> Heartbeat:
        """Record that a ping interval passed."""
        return Heartbeat(0, False) if self.active else Heartbeat(self.missed + 1, False)

    @property
    def dead(self) -> bool:
        """Whether nothing was received for ``MISSES`` beats: the session must be closed."""
        return self.missed >= MISSES


class Liveness(Enum):
    """The liveness of a peer that was authenticated before."""

    ALIVE = "Alive"
    SUSPECT = "Suspect"
    LOST = "Lost"


@attrs.frozen
class Assessment:
    """The liveness, and the time at which it becomes worse without an event, None when it does not."""

    standing: Liveness
    until: float | None


def assess_liveness(
    now: float, *, connected: bool, broken_since: float, interval: float, expires: float | None
) -> Assessment:
    """Return the liveness of a peer.

    ``broken_since``: when the last session ended; ``interval``: the ping interval; ``expires``: when the TTL of its
    offer ends, None without an offer (then it is never Lost, only Suspect). No state leads to a deletion by itself.
    """
    if connected:
        return Assessment(Liveness.ALIVE, None)
    suspect_at = broken_since + GRACE * interval
    if expires is not None and now >= expires:
        return Assessment(Liveness.LOST, None)
    if now >= suspect_at:
        return Assessment(Liveness.SUSPECT, expires)
    return Assessment(Liveness.ALIVE, suspect_at)
