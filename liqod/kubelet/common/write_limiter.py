"""Limits the rate of writes to one object.

Two writes are separated by the pause of their kind. The same content is written again only if somebody at the lender
reverts it (an admission webhook, another controller): such writes are repeated with exponential back-off.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from attrs import frozen

from liqod.flow.backoff import Backoff
from liqod.model.digests import short_digest
from liqod.model.ids import Key

REPEATED: Final = Backoff(initial=1.0, factor=2.0, cap=300.0, jitter=0.0)
SETTLED: Final = 900.0
"""Seconds after which the record of a write is dropped."""


MAX_REFUSED_PAUSE: Final = 1.0
"""Maximum seconds until an object that the lender refused is written again because it changed at home."""


@frozen
class _Write:
    at: float
    digest: str
    count: int
    pause: float


class WriteLimiter:
    """Limits writes by the last write of each object in ``SETTLED`` seconds; ``now`` is the reactor's clock."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._last: dict[Key, _Write] = {}

    def __len__(self) -> int:
        return len(self._last)

    def wait(self, key: Key, what: Any, now: float) -> float:
        """Return the seconds until the next write is allowed; 0 if it is allowed now."""
        last = self._last.get(key)
        if last is None or now - last.at > SETTLED:
            return 0.0
        pause = last.pause
        if last.digest == short_digest(what):
            pause = max(pause, REPEATED.delay(last.count - 1))
        return max(0.0, last.at + pause - now)

    def written(self, key: Key, what: Any, now: float) -> None:
        """Record a write."""
        digest = short_digest(what)
        last = self._last.get(key)
        again = last is not None and last.digest == digest and now - last.at <= SETTLED
        self._keep(key, _Write(now, digest, last.count + 1 if again and last is not None else 1, self._pause))

    def failed(self, key: Key, again: float, now: float) -> None:
        """Record a refused write that is due again after ``again`` seconds."""
        self._keep(key, _Write(now, "", 0, max(self._pause, min(again, MAX_REFUSED_PAUSE))))

    def _keep(self, key: Key, write: _Write) -> None:
        self._last.pop(key, None)
        self._last[key] = write
        now = write.at
        for known, write in tuple(islice(self._last.items(), 2)):
            # The oldest come first. Each write drops up to two expired ones, which bounds the map by the writes in
            # SETTLED seconds.
            if now - write.at > SETTLED:
                del self._last[known]
