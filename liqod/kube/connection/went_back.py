"""How often an API server's resource versions went back, and when the informers list again because of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from liqod.flow.backoff import Backoff
from liqod.flow.observe import Latest

AGAIN: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
"""Seconds from lower versions to the next list of all, after the first: a server that sends lower versions again and
again, and one of two servers with different states behind one address, must not be listed in a tight loop."""
SETTLED: Final = 600.0
"""Seconds without lower versions after which the next ones are listed at once again."""


class WentBack(Latest[int]):
    """Counts for all informers of a client; ``list_at`` is the time from which they may list again.

    A restored etcd is counted once, and listed at once. Lower versions while the informers wait for ``list_at`` count,
    as evidence, and lead to no further list.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(0)
        self.list_at = float("-inf")
        self._backoff = AGAIN.using(random)
        self._rounds = 0

    def observed(self, count: int, now: float) -> bool:
        """Note that an informer counts so many; return whether all list again because of it, rather than already."""
        is_first = now >= self.list_at
        if is_first:
            if now - self.list_at >= SETTLED:
                self._rounds = 0
            self.list_at = now + (self._backoff.delay(self._rounds - 1) if self._rounds else 0.0)
            self._rounds += 1
        self.set(count)
        return is_first
