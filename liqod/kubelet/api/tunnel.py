"""Connections that are upgraded: opened at the lender's API server, then bytes both ways, uninterpreted.

What one side sends is only read as fast as the other takes it, so a tunnel holds no more than the buffers of its two
sockets. A tunnel through which nothing passes for as long as a kubelet would wait is closed.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from liqod.kube.client import Client
from liqod.kube.connection.transport import TimedOut, unreachable
from liqod.kube.errors import ApiError, Unreachable, from_status
from liqod.kubelet.api import heads
from liqod.kubelet.api.heads import BadAnswer, Head, Header

IDLE: Final = 4 * 3600.0
"""The kubelet's own ``streamingConnectionIdleTimeout``."""
ANSWER_TIMEOUT: Final = 30.0
LINGER: Final = 15.0
"""Seconds that a closed connection may take to deliver what it still holds."""


class LenderConnection(Protocol):
    """The lender's end: ``answer`` fires with the head once it has begun to answer; then ``receiver`` gets the rest.

    ``answer`` fails with BadAnswer, ApiError (the lender refused) or the reason why the connection was lost.
    """

    transport: Any

    def __init__(self) -> None:
        self.answer: Deferred[Head] = Deferred(lambda _: self._abort())
        self._head: Head | None = None
        self._data = b""
        self._tunnel: Tunnel | None = None

    def dataReceived(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.from_lender(data)
            return
        self._data += data
        if self._head is None:
            try:
                parsed = heads.parse(self._data)
            except BadAnswer as error:
                self._finish(error)
                return
            if parsed is None:
                return
            self._head, self._data = parsed
            if self._head.code == 101:
                # The other side is attached to before anything more is read.
                self.transport.pauseProducing()
                self.answer.callback(self._head)
                return
        if self._head.code != 101:
            self._refused(self._head, ended=False)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._tunnel is not None:
            self._tunnel.lender_lost()
        elif not self.answer.called:
            if self._head is not None:
                self._refused(self._head, ended=True)
            else:
                self.answer.errback(reason)

    def attach(self, tunnel: Tunnel) -> None:
        """Deliver to a tunnel from now on, beginning with what came along with the head."""
        self._tunnel = tunnel
        early, self._data = self._data, b""
        if early:
            tunnel.from_lender(early)
        self.transport.resumeProducing()

    def _refused(self, head: Head, *, ended: bool) -> None:
        body = heads.body(head, self._data, ended=ended)
        if body is None:
            return
        if head.code < 400:
            self._finish(BadAnswer(f"it answered with HTTP {head.code} instead of switching protocols"))
        else:
            self._finish(from_status(head.code, body))

    def _finish(self, error: Exception) -> None:
        self._data = b""
        if not self.answer.called:
            self.answer.errback(error)
        self._abort()

    def _abort(self) -> None:
        _abort(self.transport)


async def open_at_lender(
    client: Client, method: bytes, path: str, passed: list[Header]
) -> tuple[LenderConnection, Head]:
    """Ask the lender's API server for an upgraded connection; returns it, and the head of the answer 101.

    Raises ApiError with the lender's words, or Unreachable. ``passed`` are the headers of the caller's own upgrade.
    Nothing is read from the connection before ``attach``.
    """
    what = f"{method.decode()} {path.partition('?')[0]}"
    server = client.config.server
    whole = urlsplit(server).path.rstrip("/") + path
    sent = client.request_headers()
    # Streams have no media type: whoever insists on one is answered 406.
    sent.removeHeader(b"Accept")
    headers = [(name, value) for name, values in sent.getAllRawHeaders() for value in values]
    head = heads.request(method, whole.encode("ascii"), [*headers, (b"Connection", b"Upgrade"), *passed])
    try:
        connection: LenderConnection = await client.endpoint().connect(Factory.forProtocol(LenderConnection))
    except CancelledError:
        raise
    except Exception as error:
        raise unreachable(server, what, error) from error
    connection.transport.write(head)
    timer = client.clock.callLater(ANSWER_TIMEOUT, lambda: _expire(connection))
    try:
        return connection, await connection.answer
    except (CancelledError, ApiError):
        _abort(connection.transport)
        raise
    except BadAnswer as error:
        raise Unreachable(f"{what}: the answer of {server} cannot be used: {error}") from error
    except Exception as error:
        raise unreachable(server, what, error) from error
    finally:
        if timer.active():
            timer.cancel()


def _expire(connection: LenderConnection) -> None:
    if not connection.answer.called:
        connection.answer.errback(TimedOut(f"no answer within {ANSWER_TIMEOUT:g} s"))
    _abort(connection.transport)


def _abort(side: Any) -> None:
    """Close a connection at once; one that is closed already is left alone, which TLS transports do not do."""
    if side is not None and side.connected:
        side.abortConnection()


class Tunnel:
    """Two connections made into one; ``home`` and ``lender`` are their transports."""

    def __init__(self, home: Any, lender: Any, clock: IReactorTime, idle: float = IDLE) -> None:
        self._home = home
        self._lender = lender
        self._clock = clock
        self._idle = idle
        self._used = clock.seconds()
        self._ended = False
        # Each side is read only while the other takes what it is given.
        home.registerProducer(lender, True)
        lender.registerProducer(home, True)
        # For the idle time first, and then for what is left after one side closed.
        self._timer: IDelayedCall = clock.callLater(idle, self._look)

    def from_home(self, data: bytes) -> None:
        """Pass on what the home side sent."""
        self._used = self._clock.seconds()
        self._lender.write(data)

    def from_lender(self, data: bytes) -> None:
        """Pass on what the lender's side sent."""
        self._used = self._clock.seconds()
        self._home.write(data)

    def home_lost(self) -> None:
        """The home side is gone."""
        self._end(self._home, self._lender)

    def lender_lost(self) -> None:
        """The lender's side is gone."""
        self._end(self._lender, self._home)

    def _look(self) -> None:
        left = self._used + self._idle - self._clock.seconds()
        if left > 0:
            self._timer = self._clock.callLater(left, self._look)
            return
        self.abort()

    def abort(self) -> None:
        """Close both sides at once; what they still hold is lost."""
        self._ended = True
        if self._timer.active():
            self._timer.cancel()
        for side in (self._home, self._lender):
            side.unregisterProducer()
            _abort(side)

    def _end(self, lost: Any, other: Any) -> None:
        if self._timer.active():
            self._timer.cancel()
        if self._ended:
            return
        self._ended = True
        lost.unregisterProducer()
        other.unregisterProducer()
        # It may have been paused for the side that is gone; unread, it would never see its own end.
        other.resumeProducing()
        other.loseConnection()
        self._timer = self._clock.callLater(LINGER, lambda: _abort(other))
