"""Which owners' pods are not evicted for a while: those whose evicted pod was followed by one on a virtual node again.

The scheduler may rank a virtual node higher than an own node with room, for reasons that are not judged here: preferred
affinity of the pod, its topology spread constraints, anti-affinity of pods at home, plugins of its own.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.flow.backoff import Backoff

AWAY: Final = Backoff(initial=600.0, cap=21600.0)
"""How long an owner's pods stay where they are, by how often in succession one was evicted in vain."""
REMEMBERED: Final = 3600.0
"""Seconds after which nothing is known of an owner any more, beside those that its pods stay where they are."""
MAX_OWNERS: Final = 1000
"""Owners that are remembered; further ones take the place of that which would be forgotten first."""


@attrs.frozen
class Returns:
    """What became of one owner's evicted pods: how often in succession in vain, and until when none is evicted.

    ``awaited``: one was evicted, and it is open where its successor goes. Times are in seconds of the reactor's clock.
    """

    vain: int
    until: float
    awaited: bool
    forgotten: float


class Successors:
    """Remembers, by the UID of their owner, how returns ended. Restarting forgets it.

    ``patience`` are the seconds that a pod may run before its turn comes: so much longer its owner is remembered.
    """

    def __init__(self, patience: float) -> None:
        self.owners: dict[str, Returns] = {}
        self._remembered = REMEMBERED + patience

    def evicted(self, owner: str, now: float) -> None:
        """Note that a pod of an owner was evicted to come home."""
        before = self.owners.pop(owner, None)
        if before is None and len(self.owners) >= MAX_OWNERS:
            del self.owners[min(self.owners, key=lambda one: self.owners[one].forgotten)]
        vain = before.vain if before is not None else 0
        self.owners[owner] = Returns(vain, now, True, now + self._remembered)

    def appeared(self, owner: str, now: float) -> None:
        """Note that a pod of an owner is on a virtual node that was not when the last one was evicted."""
        before = self.owners.get(owner)
        if before is not None and before.awaited:
            until = now + AWAY.delay(before.vain)
            self.owners[owner] = Returns(before.vain + 1, until, False, until + self._remembered)

    def stays(self, owner: str, now: float) -> bool:
        """Return whether the pods of an owner are not to be evicted now."""
        known = self.owners.get(owner)
        return known is not None and now < known.until

    def forget(self, now: float) -> None:
        """Drop those whose time is over."""
        self.owners = {owner: known for owner, known in self.owners.items() if now < known.forgotten}
