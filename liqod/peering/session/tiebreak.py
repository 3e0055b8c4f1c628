"""Which of two sessions with one peer stays. Pure, and the same on both sides."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.model.ids import ClusterID

RACE: Final = 5.0
"""Seconds within which two sessions count as opened at once."""


@attrs.frozen
class Opened:
    """A session: who dialled, the epoch in the peer's Hello, and how the session is (``suspect``: pings went
    unanswered).
    """

    by_us: bool
    peer_epoch: int
    age: float = 0.0
    suspect: bool = False


def newcomer_stays(existing: Opened | None, newcomer: Opened, me: ClusterID, peer: ClusterID) -> bool:
    """Return whether a new authenticated session takes the place of the existing one.

    * A dead or suspect session is always replaced, and so is one of an earlier life of the peer (a smaller epoch).
    * Whoever dials has no session by its own account: a second one from the same side means that the first is gone
    there.
    * Both dialled at once: the session opened by the smaller cluster ID stays.
    * Else the existing session stays; the owner probes it, and it is replaced next time if it does not answer.
    """
    if existing is None or existing.suspect:
        return True
    if newcomer.peer_epoch != existing.peer_epoch:
        return newcomer.peer_epoch > existing.peer_epoch
    if newcomer.by_us == existing.by_us:
        return True
    if existing.age > RACE:
        return False
    return newcomer.by_us == (me < peer)
