"""How soon a pod that vanished is made again: at once the first time, then ever slower while it keeps vanishing."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.flow.backoff import Backoff
from liqod.model.ids import Key

_SLOWING: Final = Backoff(initial=1.0, cap=300.0, jitter=0.0)
SETTLED: Final = 600.0
"""Seconds that a pod must have lived for its earlier disappearances to be forgotten."""


@attrs.define
class Pace:
    """Counts creations by name; ``now`` is any steady clock's seconds. As large as the number of ShadowPods that were
    run.
    """

    backoff: Backoff = _SLOWING
    _created: dict[Key, tuple[int, float]] = attrs.field(factory=dict, init=False)

    def wait(self, key: Key, now: float) -> float:
        """Return how many seconds the next creation has to wait; 0 when it may happen."""
        count, last = self._created.get(key, (0, 0.0))
        if count < 2 or now - last > SETTLED:
            return 0.0
        return max(0.0, last + self.backoff.delay(count - 2) - now)

    def created(self, key: Key, now: float) -> None:
        """Take note of a creation."""
        count, last = self._created.get(key, (0, 0.0))
        self._created[key] = (1 if now - last > SETTLED else count + 1, now)

    def forget(self, key: Key) -> None:
        """Forget a name that nobody wants run any more."""
        self._created.pop(key, None)
