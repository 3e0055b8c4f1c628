"""How many bytes of reviews are received at a time, from one address and from all, and how many reviews a second."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.connections.admission import Bucket

TOGETHER: Final = 32 << 20
"""Bytes of all bodies that are being received: sixteen of the largest are reviewed in less than half a second, should
they all end in one turn of the reactor. An ordinary one has some 10 KiB."""
FROM_ADDRESS: Final = 16 << 20
REVIEWS: Final = (500.0, 5000)
"""Reviews of one address that are answered in a second, and at once: an API server makes fewer pods, and an answer
takes 0.2 ms of the event loop."""
MAX_SOURCES: Final = 1024


class Bodies:
    """The bytes that are held, by the address that they come from."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._all = 0

    def take(self, source: str, size: int) -> bool:
        """Hold more bytes of a source; return whether there is room for them."""
        if self._all + size > TOGETHER or self._held.get(source, 0) + size > FROM_ADDRESS:
            return False
        self._held[source] += size
        self._all += size
        return True

    def release(self, source: str, size: int) -> None:
        """Hold these bytes no longer."""
        self._held[source] -= size
        self._all -= size
        if self._held[source] <= 0:
            del self._held[source]


class Reviews:
    """Admits reviews by the address that they come from; ``answered`` counts those of all.

    ``refused`` is called with reason, address and message for one that is too many.
    """

    def __init__(self, clock: IReactorTime, refused: Callable[[str, str, str], None]) -> None:
        self.answered = 0
        self._clock = clock
        self._refused = refused
        self._paces: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, source: str) -> bool:
        """Return whether a review of a source is answered now."""
        now = self._clock.seconds()
        # Taken out and put back as the newest: the oldest is forgotten first.
        pace = self._paces.pop(source, None) or Bucket(*REVIEWS)
        self._paces[source] = pace
        if len(self._paces) > MAX_SOURCES:
            self._paces.popitem(last=False)
        if pace.delay(now) > 0:
            self._refused("TooManyReviews", source, f"more than {REVIEWS[0]:.0f} admission reviews in a second")
            return False
        pace.take(now)
        self.answered += 1
        return True
