"""How many requests to one server may be under way at once: few at first, more while requests go on waiting.

Every request under way takes a connection, and a new connection costs both sides as much as several requests (TLS). A
burst that a few connections work off as fast as it comes is not worth more of them; a distant or a busy server is.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

LEAST: Final = 4
PATIENCE: Final = 0.05
"""Seconds that requests wait before one more may be under way."""


class Slots:
    """At most ``most`` at once; ``quiet`` seconds without any (the connections are closed by then) begin anew."""

    def __init__(self, clock: IReactorTime, most: int, quiet: float) -> None:
        self.in_use = 0
        self.limit = min(LEAST, most)
        self._clock = clock
        self._most = most
        self._quiet = quiet
        self._idle_since = 0.0
        # A dict, for its order and because whoever is cancelled leaves from the middle.
        self._waiting: dict[Deferred[None], None] = {}
        self._timer: IDelayedCall | None = None

    def acquire(self) -> Deferred[None]:
        """Return a Deferred that fires when it is the caller's turn, who then owes ``release``."""
        if self.in_use == 0 and self._clock.seconds() - self._idle_since > self._quiet:
            self.limit = min(LEAST, self._most)
        if self.in_use < self.limit:
            self.in_use += 1
            return succeed(None)
        turn: Deferred[None] = Deferred(self._leave)
        self._waiting[turn] = None
        self._watch()
        return turn

    def release(self) -> None:
        """Let the next one have its turn."""
        self.in_use -= 1
        self._admit()
        if self.in_use == 0:
            self._idle_since = self._clock.seconds()

    def _admit(self) -> None:
        if self._waiting and self.in_use < self.limit:
            turn = next(iter(self._waiting))
            self._leave(turn)
            self.in_use += 1
            turn.callback(None)

    def _leave(self, turn: Deferred[None]) -> None:
        del self._waiting[turn]
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None and self._waiting and self.limit < self._most:
            self._timer = self._clock.callLater(PATIENCE, self._grow)

    def _grow(self) -> None:
        self._timer = None
        if self._waiting:
            self.limit += 1
            self._admit()
            self._watch()
