"""Back-off of an object that is created repeatedly: at once the first time, then with growing delays."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.flow.backoff import Backoff

# The cap is that of a kubelet's CrashLoopBackOff, 5 minutes (Kubernetes, "Pod Lifecycle").
BACKOFF: Final = Backoff(initial=1.0, cap=300.0, jitter=0.0)
STABLE: Final = 600.0
"""Seconds that an object must have existed for its back-off to be reset. The kubelet resets the CrashLoopBackOff of a
container after the same 10 minutes (Kubernetes: "Pod Lifecycle", restart policy)."""


@attrs.frozen
class Creations:
    """How often an object was created in a row and when last; ``now`` is in seconds of the reactor's clock."""

    count: int = 0
    last: float = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the next creation is due; 0 when it is."""
        if self.count < 2 or now - self.last > STABLE:
            return 0.0
        return max(0.0, self.last + BACKOFF.delay(self.count - 2) - now)

    def created(self, now: float) -> Creations:
        """Return the count with one more creation."""
        return Creations(1 if now - self.last > STABLE else self.count + 1, now)
