"""Requests over connections that are kept: the shortest way from a request's bytes to the answer's.

twisted.web's client takes half a millisecond of CPU for each request and three turns of the reactor for each write; a
pod takes five requests. Here a request is one write, sent in the same turn, and an answer is read in one pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import (
    IDelayedCall,
    IOpenSSLClientConnectionCreator,
    IReactorTime,
    IStreamClientEndpoint,
    IWriteDescriptor,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.kube.answers import Answer, BadAnswer, Reader

CLOSING: Final = 2.0
"""Seconds that connections have to close in good order."""


class Wire(Protocol):
    """One connection: one request at a time. ``lost`` is called when it is gone.

    ``made`` is the time it was made at, ``since`` the time since which it rests.
    """

    def __init__(self, lost: Callable[[Wire], None]) -> None:
        self.is_open = False
        self.made = 0.0
        self.since = 0.0
        self._lost = lost
        self._reader: Reader | None = None
        self._waiting: Deferred[Answer] | None = None

    def connectionMade(self) -> None:
        self.is_open = True

    def ask(self, request: bytes) -> Deferred[Answer]:
        """Send a request; fires with the answer. Cancelling closes the connection at once."""
        self._reader = Reader()
        waiting: Deferred[Answer] = Deferred(self._cancelled)
        self._waiting = waiting
        transport: Any = self.transport
        transport.write(request)
        push(transport)
        return waiting

    def dataReceived(self, data: bytes) -> None:
        if self._reader is None:
            # Nothing was asked: whatever this is, it must not become the answer to the next request.
            self.abort()
            return
        try:
            answer = self._reader.feed(data)
        except BadAnswer as error:
            self._fail(error)
            self.abort()
            return
        if answer is not None:
            self._answered(answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_open = False
        self._lost(self)
        answer = self._reader.closed() if self._reader is not None else None
        if answer is not None:
            self._answered(answer)
        elif reason.value is not None:
            self._fail(reason.value)

    def abort(self) -> None:
        """Close the connection without waiting for the other side."""
        self.is_open = False
        if self.transport is not None:
            transport: Any = self.transport
            transport.abortConnection()

    def close(self) -> None:
        """Close the connection in good order."""
        self.is_open = False
        if self.transport is not None:
            self.transport.loseConnection()

    def _answered(self, answer: Answer) -> None:
        self._reader = None
        if not answer.keeps:
            self.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(answer)

    def _fail(self, error: BaseException) -> None:
        self._reader = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(error)

    def _cancelled(self, _: Deferred[Answer]) -> None:
        self._fail(CancelledError())
        self.abort()


class Wires:
    """The connections to one server: those at rest are used again, the one used last first.

    One that has rested for ``rest`` seconds is closed. How many there are at once is the caller's to bound.
    """

    def __init__(self, clock: IReactorTime, endpoint: IStreamClientEndpoint, rest: float) -> None:
        self._clock = clock
        self._endpoint = endpoint
        self._rest = rest
        self._idle: deque[Wire] = deque()
        self._open: set[Wire] = set()
        self._timer: IDelayedCall | None = None
        self._closed: Deferred[None] | None = None
        self._factory = Factory.forProtocol(self._wire)
        self._factory.noisy = False

    def __len__(self) -> int:
        """The number of connections, those in use among them."""
        return len(self._open)

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return the answer; raises what the endpoint or the connection fails with, BadAnswer."""
        wire = self._resting() or await self._connected()
        answer = await wire.ask(request)
        if wire.is_open:
            self._put(wire)
        return answer

    def close(self) -> Deferred[None]:
        """Close the connections at rest, and those in use as soon as they are not; fires when those at rest are."""
        if self._closed is not None:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closed = closed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        resting = list(self._idle)
        if not resting:
            closed.callback(None)
            return closed
        for wire in resting:
            wire.close()
        # Whoever does not answer the end of the connection is not waited for.
        self._timer = self._clock.callLater(CLOSING, self._cut, resting)
        return closed

    def drop(self, before: float, *, idle: bool) -> None:
        """Abort the connections that were made before a time; ``idle`` spares those in use.

        Nothing is waited for: the other side of an interrupted path does not answer.
        """
        for wire in list(self._idle if idle else self._open):
            if wire.made < before:
                wire.abort()

    def _resting(self) -> Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
        return None

    async def _connected(self) -> Wire:
        wire = cast(Wire, await self._endpoint.connect(self._factory))
        wire.made = self._clock.seconds()
        return wire

    def _wire(self) -> Wire:
        wire = Wire(self._gone)
        self._open.add(wire)
        return wire

    def _put(self, wire: Wire) -> None:
        if self._closed is not None:
            wire.close()
            return
        wire.since = self._clock.seconds()
        self._idle.append(wire)
        if self._timer is None:
            self._timer = self._clock.callLater(self._rest, self._sweep)

    def _sweep(self) -> None:
        """Close what has rested for long; the one that has rested longest is the first."""
        self._timer = None
        now = self._clock.seconds()
        while self._idle and now - self._idle[0].since >= self._rest:
            self._idle.popleft().close()
        if self._idle:
            self._timer = self._clock.callLater(self._idle[0].since + self._rest - now, self._sweep)

    def _gone(self, wire: Wire) -> None:
        self._open.discard(wire)
        if wire in self._idle:
            self._idle.remove(wire)
        if self._closed is not None and not self._idle and not self._closed.called:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._closed.callback(None)

    def _cut(self, wires: list[Wire]) -> None:
        self._timer = None
        for wire in wires:
            if wire in self._open:
                wire.abort()


class _Prompt(TLSMemoryBIOFactory):
    """TLS that writes what it is given when it is given it, instead of collecting small writes for a turn."""

    protocol = TLSMemoryBIOProtocol
    noisy = False


@implementer(IStreamClientEndpoint)
class PromptTLS:
    """TLS over another endpoint, without the collecting of small writes: a request is one write anyway."""

    def __init__(self, creator: IOpenSSLClientConnectionCreator, below: IStreamClientEndpoint) -> None:
        self._creator = creator
        self._below = below

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        connecting: Deferred[Any] = self._below.connect(_Prompt(self._creator, True, protocolFactory))
        inner: Deferred[Any] = connecting.addCallback(lambda protocol: protocol.wrappedProtocol)
        return inner


def push(transport: Any) -> None:
    """Have the socket sent what was written now; the reactor would do so in its next turn.

    What the socket does not take at once stays with the reactor, and so does telling that the connection is lost.
    """
    below = getattr(transport, "transport", transport)
    if IWriteDescriptor.providedBy(below) and getattr(below, "connected", False):
        below.doWrite()
