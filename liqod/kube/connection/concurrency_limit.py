"""How many requests to one server may be under way at once: few at first, more while requests go on waiting.

Every request under way takes a connection, and a new connection costs both sides as much as several requests (TLS). A
burst that a few connections work off as fast as it comes is not worth more of them; a distant server is. A busy one is
not: it has as much to do as it can, and more of ours at once only lets ours and everybody else's wait longer (see
``load``), so that with such a server their number goes back to few. Those that wait have their turn by flow (see
``flow.fair_queue``), so that a burst of one kind of requests does not delay another.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from liqod.flow.fair_queue import FairQueue
from liqod.kube.connection.latency_estimator import Load

LEAST: Final = 4
PATIENCE: Final = 0.05
"""Seconds that requests wait before one more may be under way, or one less when the server is busy."""


class Slots:
    """At most ``most`` at once; starts over after ``quiet`` seconds without any (by then they are closed)."""

    def __init__(self, clock: IReactorTime, most: int, quiet: float) -> None:
        self.in_use = 0
        self.limit = min(LEAST, most)
        self._clock = clock
        self._most = most
        self._quiet = quiet
        self._idle_since = 0.0
        self._waiting: FairQueue[Deferred[None]] = FairQueue()
        self._timer: IDelayedCall | None = None
        self._load = Load()
        self._shrunk_at = 0.0

    def acquire(self, flow: Hashable = None) -> Deferred[None]:
        """Return a Deferred that fires when it is the caller's turn, who then owes ``release``.

        Flows take turns: ``flow`` says with whom the caller waits in line.
        """
        if self.in_use == 0 and self._clock.seconds() - self._idle_since > self._quiet:
            self.limit = min(LEAST, self._most)
        if self.in_use < self.limit:
            self.in_use += 1
            return succeed(None)
        turn: Deferred[None] = Deferred(self._leave)
        self._waiting.add(flow, turn)
        self._watch()
        return turn

    def release(self) -> None:
        """Start the next waiting request."""
        self.in_use -= 1
        self._admit()
        if self.in_use == 0:
            self._idle_since = self._clock.seconds()

    @property
    def busy(self) -> bool:
        """Whether the server seems to have more to do than it can."""
        return self._load.busy

    def answered(self, kind: Hashable, seconds: float) -> None:
        """Take note of how long an answer took; only of what the server did, and not of the pauses between attempts."""
        now = self._clock.seconds()
        self._load.took(kind, seconds, now)
        if self.busy and self.limit > LEAST and now - self._shrunk_at >= PATIENCE:
            self._shrunk_at = now
            self.limit -= 1
            self._watch()

    def _admit(self) -> None:
        if self._waiting and self.in_use < self.limit:
            turn = self._waiting.next()
            self._rest()
            self.in_use += 1
            turn.callback(None)

    def _leave(self, turn: Deferred[None]) -> None:
        self._waiting.remove(turn)
        self._rest()

    def _rest(self) -> None:
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None and self._waiting and self.limit < self._most:
            self._timer = self._clock.callLater(PATIENCE, self._grow)

    def _grow(self) -> None:
        self._timer = None
        if self._waiting:
            if not self.busy:
                self.limit += 1
                self._admit()
            self._watch()
