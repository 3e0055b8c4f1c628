"""Decides which of two sessions with one peer is kept, equally on both sides. Pure."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.model.ids import ClusterID

RACE: Final = 5.0
"""Seconds within which two sessions count as opened at the same time."""


@attrs.frozen
class OpenedSession:
    """A session: who dialled, the epoch in the peer's Hello, and its health (``suspect``: pings were not answered)."""

    by_us: bool
    peer_epoch: int
    age: float = 0.0
    suspect: bool = False


def newcomer_stays(existing: OpenedSession | None, newcomer: OpenedSession, me: ClusterID, peer: ClusterID) -> bool:
    """Return whether a new authenticated session replaces the existing one.

    * A dead or suspect session is always replaced, and so is one from before a restart of the peer (a smaller epoch).
    * A side dials only without a session: a second one from the same side means that it has lost the first.
    * Both dialled at the same time: the session dialled by the smaller cluster ID is kept.
    * Else the existing session is kept; the owner probes it, and it is replaced next time if it does not answer.
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
