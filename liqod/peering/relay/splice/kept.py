"""Keeps idle streams open to a peer: dials them, and dials again when one is used or lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.backoff import Backoff
from liqod.flow.connections.admission import HANDSHAKES_BURST_PER_ADDRESS, HANDSHAKES_PER_ADDRESS, Bucket
from liqod.flow.timer import Timer
from liqod.peering.relay.splice.stream import StreamEnd

AGAIN: Final = Backoff(initial=1.0, cap=60.0)
"""After a stream that could not be opened, or that was closed soon and unused."""
LIVED: Final = 60.0
"""Seconds after which an idle stream that is closed says nothing against the next one."""


class KeptStreams:
    """The idle streams to one peer; ``dial`` opens one, and fires with our end of it."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, dial: Callable[[], Deferred[Any]]) -> None:
        self._clock = clock
        self._dial = dial
        self._wanted = 0
        self._failures = 0
        self._idle: dict[StreamEnd, float] = {}
        self._dialling: set[Deferred[Any]] = set()
        self._timer = Timer(clock)
        # As many as the port of a peer takes from one address: no peer, whatever it does, has more dialled.
        self._pace = Bucket(HANDSHAKES_PER_ADDRESS, HANDSHAKES_BURST_PER_ADDRESS)
        self._filling = False

    def want(self, count: int) -> None:
        """Keep so many from now on; those that are too many end by themselves."""
        self._wanted = count
        if not count:
            self.stop()
        else:
            self._fill()

    def stop(self) -> None:
        """Dial no more."""
        self._wanted = 0
        self._timer.cancel()
        for dialling in list(self._dialling):
            dialling.cancel()

    def left(self, stream: StreamEnd, *, used: bool) -> None:
        """Note that a stream is idle no more: it is ``used``, or lost; idempotent."""
        since = self._idle.pop(stream, None)
        if since is None:
            return
        if used or self._clock.seconds() - since >= LIVED:
            self._failures = 0
            self._fill()
        else:
            self._later()

    def _fill(self) -> None:
        # A dial may end at once: what it ends in must not begin a second loop.
        if self._filling:
            return
        self._filling = True
        try:
            while not self._timer.running and len(self._idle) + len(self._dialling) < self._wanted:
                now = self._clock.seconds()
                if (wait := self._pace.delay(now)) > 0:
                    self._timer.start(wait, self._fill)
                    return
                self._pace.take(now)
                dialling = self._dial()
                self._dialling.add(dialling)
                dialling.addCallbacks(self._opened, self._failed, (dialling,), {}, (dialling,), {})
        finally:
            self._filling = False

    def _opened(self, stream: StreamEnd, dialling: Deferred[Any]) -> None:
        self._dialling.discard(dialling)
        if stream.is_idle:
            self._idle[stream] = self._clock.seconds()
        elif stream.is_over:
            self._later()
        else:
            # Somebody waited for it: another one takes its place.
            self._failures = 0
            self._fill()

    def _failed(self, failure: Failure, dialling: Deferred[Any]) -> None:
        self._dialling.discard(dialling)
        if failure.check(CancelledError) is None:
            self._log.debug("a stream could not be opened: {error}", error=failure.getErrorMessage())
            self._later()

    def _later(self) -> None:
        if self._wanted and not self._timer.running:
            self._timer.start(AGAIN.delay(self._failures), self._fill)
            self._failures += 1
