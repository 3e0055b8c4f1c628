"""Detects a busy server: its latency is much higher than the minimum latency of the same kind of request.

The minimum of a distant server is high as well, so distance does not count as load. More concurrency does not raise the
throughput of a saturated server; it only raises latency (Little's law).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from attrs import define

TIMES: Final = 4.0
"""Factor over the minimum latency from which a response counts as slow, if it is also ``NOTICEABLE`` seconds above."""
NOTICEABLE: Final = 0.05
"""Seconds: below it a multiple of a very short minimum says nothing about load."""
WINDOW: Final = 300.0
"""Seconds for which a minimum is kept at least, and half of the maximum: the network path may change."""
KINDS: Final = 64
"""Maximum number of kinds of requests that have a minimum of their own."""
WEIGHT: Final = 0.2
"""Weight of the newest response in the moving average."""


@define
class _Best:
    since: float
    now: float
    before: float


class Load:
    """Tracks the minimum latency of each kind of request, for the ``KINDS`` most recently used kinds."""

    def __init__(self) -> None:
        self._best: OrderedDict[Hashable, _Best] = OrderedDict()
        self._slow = 0.0

    def __len__(self) -> int:
        """The number of tracked kinds."""
        return len(self._best)

    @property
    def busy(self) -> bool:
        """Whether most of the recent responses were slow."""
        return self._slow > 0.5

    def took(self, kind: Hashable, seconds: float, now: float) -> None:
        """Record a response: its latency in seconds, and ``now`` by a monotonic clock."""
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
