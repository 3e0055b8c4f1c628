"""Splits a watch's body into lines, processed in short turns, and aborts a silent watch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from liqod.flow.timer import Timer
from liqod.kube.cache.watch_decoder import LONGEST, Lines, LineTooLong
from liqod.kube.connection.transport import innermost
from liqod.kube.errors import KubeError, Undecodable, Unreachable

TURN: Final = 0.02
"""Maximum seconds of decoding or notifying in one turn of the reactor."""


class WatchStream(Protocol):
    """Passes the lines of a watch to ``take`` in turns of bounded length; pauses the connection in between.

    ``closed`` fires after the last line: with None at a regular end, else with the error. A line has at most
    ``longest`` bytes.
    """

    def __init__(self, clock: IReactorTime, take: Callable[[bytes], bool], longest: int = LONGEST) -> None:
        self.closed: Deferred[KubeError | None] = Deferred()
        self._clock = clock
        self._take = take
        self._cut = Lines(longest)
        self._lines: deque[bytes] = deque()
        self._turn = Timer(clock)
        self._is_paused = False
        self._lost = False
        self._error: KubeError | None = None

    def dataReceived(self, data: bytes) -> None:
        if self._lost:
            return
        try:
            self._lines.extend(self._cut.feed(data))
        except LineTooLong as error:
            self._end(Undecodable(str(error)))
            return
        if not self._turn.running:
            self._drain()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._lost:
            return
        error = None
        if not isinstance(reason.value, ResponseDone | PotentialDataLoss):
            cause = innermost(reason.value) if reason.value is not None else None
            how = str(cause) if isinstance(cause, ConnectionClosed) else "it broke off in the middle"
            error = Unreachable(f"the connection of the watch was lost: {how}")
        self._end(error)

    def end(self) -> None:
        """Discard remaining lines; ``closed`` does not fire for a stream ended locally."""
        self._lost = True
        self._lines.clear()
        self._turn.cancel()

    def _end(self, error: KubeError | None) -> None:
        self._lost = True
        self._error = error
        if not self._turn.running:
            self._drain()

    def _drain(self) -> None:
        started = self._clock.seconds()
        while self._lines:
            if not self._take(self._lines.popleft()):
                self._lines.clear()
                self._lost = True
                break
            if self._lines and self._clock.seconds() - started > TURN:
                self._pause()
                self._turn.start(0, self._drain)
                return
        if self._lost:
            if not self.closed.called:
                self.closed.callback(self._error)
        elif self._is_paused:
            self._is_paused = False
            self._call_producer("resumeProducing")

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._call_producer("pauseProducing")

    def _call_producer(self, what: str) -> None:
        # Transports in tests may not be producers.
        method = getattr(self.transport, what, None)
        if method is not None and not self._lost:
            method()


class WatchTimeout:
    """Aborts a watch that receives no line before its deadline; one timer, rescheduled only when it fires."""

    def __init__(self, clock: IReactorTime, deadline: Callable[[], float], closed: Deferred[Any]) -> None:
        self._clock = clock
        self._deadline = deadline
        self._closed = closed
        self._timer = Timer(clock)
        self._check()

    def _check(self) -> None:
        left = self._deadline() - self._clock.seconds()
        if left > 0:
            self._timer.start(left, self._check)
        elif not self._closed.called:
            self._closed.callback(None)

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.cancel()
