"""Whether a server is busy: its answers take much longer than the same answers took at their best.

A distant server is slow at its best as well. A busy one works off what it has no faster when it is given more at once;
everything else that is asked of it only waits longer (Little's law).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from attrs import define

TIMES: Final = 4.0
"""How much longer than at its best an answer takes that counts as slow; ``NOTICEABLE`` seconds longer at least."""
NOTICEABLE: Final = 0.05
WINDOW: Final = 300.0
"""Seconds for which the best is remembered at least; and twice as long at most, since the way there may change."""
KINDS: Final = 64
WEIGHT: Final = 0.2
"""How much one answer counts against all before."""


@define
class _Best:
    since: float
    now: float
    before: float


class Load:
    """Remembers how long each kind of request took at its best; of at most ``KINDS`` kinds, those asked last."""

    def __init__(self) -> None:
        self._best: OrderedDict[Hashable, _Best] = OrderedDict()
        self._slow = 0.0

    def __len__(self) -> int:
        """How many kinds are remembered."""
        return len(self._best)

    @property
    def busy(self) -> bool:
        """Whether most of the last answers were slow."""
        return self._slow > 0.5

    def took(self, kind: Hashable, seconds: float, now: float) -> None:
        """Take note of an answer: how long it took, and the time by any steady clock."""
        best = self._best.pop(kind, None)
        if best is None:
            best = _Best(now, seconds, seconds)
        else:
            if now - best.since > WINDOW:
                stale = now - best.since > 2 * WINDOW
                best = _Best(now, seconds, seconds if stale else best.now)
            best.now = min(best.now, seconds)
            least = min(best.now, best.before)
            slow = seconds > TIMES * least and seconds > least + NOTICEABLE
            self._slow += WEIGHT * (slow - self._slow)
        self._best[kind] = best
        if len(self._best) > KINDS:
            self._best.popitem(last=False)
