"""Adaptive limit of concurrent requests to one server: starts low, grows while requests wait, shrinks when it is busy.

Each HTTP/1.1 request in progress occupies a connection, and a TLS handshake costs both sides as much as several
requests. More connections help with a distant server. They do not help with a busy one: its throughput is exhausted,
and more concurrency only increases the latency for all clients (see ``latency_estimator``). Waiting requests are served
round-robin by flow (see ``flow.fair_queue``), so that a burst of one kind does not delay another.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from liqod.flow.fair_queue import FairQueue
from liqod.flow.timer import Timer
from liqod.kube.connection.latency_estimator import Load

LEAST: Final = 4
PATIENCE: Final = 0.05
"""Seconds of waiting before the limit grows by one, and minimum seconds between two decrements."""


class Slots:
    """Admits at most ``most`` concurrent requests; resets to ``LEAST`` after ``quiet`` seconds without requests.

    The idle connections are closed by then.
    """

    def __init__(self, clock: IReactorTime, most: int, quiet: float) -> None:
        self.in_use = 0
        self.limit = min(LEAST, most)
        self._clock = clock
        self._most = most
        self._quiet = quiet
        self._idle_since = 0.0
        self._waiting: FairQueue[Deferred[None]] = FairQueue()
        self._timer = Timer(clock)
        self._load = Load()
        self._shrunk_at = 0.0

    def acquire(self, flow: Hashable = None) -> Deferred[None]:
        """Return a Deferred that fires when a slot is free; the caller must then call ``release``.

        Flows are served round-robin, requests of one ``flow`` in order.
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
        """Free a slot and admit the next waiting request."""
        self.in_use -= 1
        self._admit()
        if self.in_use == 0:
            self._idle_since = self._clock.seconds()

    @property
    def busy(self) -> bool:
        """Whether the server appears to be overloaded."""
        return self._load.busy

    def answered(self, kind: Hashable, seconds: float) -> None:
        """Record the latency of one response in seconds, without pauses between attempts."""
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
        if not self._waiting:
            self._timer.cancel()

    def _watch(self) -> None:
        if self._waiting and self.limit < self._most:
            self._timer.start_unless_running(PATIENCE, self._grow)

    def _grow(self) -> None:
        if self._waiting:
            if not self.busy:
                self.limit += 1
                self._admit()
            self._watch()
