"""Connections that are upgraded: opened at the lender's API server, then bytes both ways, uninterpreted.

What one side sends is only read as fast as the other takes it, so a tunnel holds no more than the buffers of its two
sockets. A tunnel through which nothing passes for as long as a kubelet would wait is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from liqod.http1.connection import Connection, Limits
from liqod.http1.errors import Malformed
from liqod.http1.messages import (
    STREAM_HEADERS,
    Data,
    EndOfMessage,
    Header,
    InformationalResponse,
    Request,
    Response,
    make_request,
)
from liqod.kube.client import Client
from liqod.kube.connection.transport import TimedOut, unreachable
from liqod.kube.errors import ApiError, Unreachable, from_status

IDLE: Final = 4 * 3600.0
"""The kubelet's own ``streamingConnectionIdleTimeout``."""
LIMITS: Final = Limits(head=32 << 10)
MAX_BODY: Final = 64 << 10
"""Bytes of a refusal that are read; a Status of the API is about 300."""
UPGRADE_HEADERS: Final = STREAM_HEADERS | {b"upgrade"}
ANSWER_TIMEOUT: Final = 30.0
LINGER: Final = 15.0
"""Seconds that a closed connection may take to deliver what it still holds."""


class BadAnswer(Exception):
    """The answer is not HTTP, or not within the bounds; the text says which."""


class LenderConnection(Protocol):
    """The lender's end: ``answer`` fires with the headers of the switch to pass on; then a tunnel gets the rest.

    ``answer`` fails with BadAnswer, ApiError (the lender refused) or the reason why the connection was lost.
    """

    transport: Any

    def __init__(self) -> None:
        self.answer: Deferred[list[Header]] = Deferred(lambda _: self._abort())
        self._http = Connection("client", LIMITS)
        self._refusal = 0
        self._body = b""
        self._tunnel: Tunnel | None = None

    def ask(self, request: Request) -> None:
        """Send a request for an upgrade, which has no body."""
        self.transport.write(self._http.send(request, EndOfMessage()))

    def dataReceived(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.from_lender(data)
            return
        self._http.receive(data)
        try:
            while not self.answer.called and (event := self._http.next_event()) is not None:
                self._take(event)
        except Malformed as malformed:
            self._finish(BadAnswer(malformed.message))

    def _take(self, event: object) -> None:
        if isinstance(event, InformationalResponse):
            if event.status_code == 101:
                # The other side is attached to before anything more is read.
                self.transport.pauseProducing()
                self.answer.callback(upgrade_headers(event.headers))
        elif isinstance(event, Response):
            self._refusal = event.status_code
            if event.status_code < 400:
                self._finish(BadAnswer(f"it answered with HTTP {event.status_code} instead of switching protocols"))
        elif isinstance(event, Data):
            self._body += event.data[: MAX_BODY - len(self._body)]
            if len(self._body) >= MAX_BODY:
                self._finish(from_status(self._refusal, self._body))
        elif isinstance(event, EndOfMessage):
            self._finish(from_status(self._refusal, self._body))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._tunnel is not None:
            self._tunnel.lender_lost()
        elif self.answer.called:
            return
        elif self._refusal:
            # The code counts, also where its explanation is cut off.
            self._finish(from_status(self._refusal, self._body))
        else:
            self.answer.errback(reason)

    def attach(self, tunnel: Tunnel) -> None:
        """Deliver to a tunnel from now on, beginning with what came along with the head."""
        self._tunnel = tunnel
        early = self._http.unread
        if early:
            tunnel.from_lender(early)
        self.transport.resumeProducing()

    def _finish(self, error: Exception) -> None:
        if not self.answer.called:
            self.answer.errback(error)
        self._abort()

    def _abort(self) -> None:
        _abort(self.transport)


def upgrade_headers(headers: Iterable[Header]) -> list[Header]:
    """Return those headers of an upgrade that are passed on, in either direction."""
    return [(name, value) for name, value in headers if name.lower() in UPGRADE_HEADERS]


async def open_at_lender(
    client: Client, method: bytes, path: str, passed: list[Header]
) -> tuple[LenderConnection, list[Header]]:
    """Ask the lender's API server for an upgraded connection; returns it, and the headers of the answer 101 to pass on.

    Raises ApiError with the lender's words, Unreachable, or ValueError for headers that cannot be sent. ``passed`` are
    the headers of the caller's own upgrade.
    Nothing is read from the connection before ``attach``.
    """
    what = f"{method.decode()} {path.partition('?')[0]}"
    server = client.config.server
    whole = urlsplit(server).path.rstrip("/") + path
    sent = client.request_headers()
    # Streams have no media type: whoever insists on one is answered 406.
    sent.removeHeader(b"Accept")
    headers = [(name, value) for name, values in sent.getAllRawHeaders() for value in values]
    request = make_request(method, whole.encode("ascii"), [*headers, (b"Connection", b"Upgrade"), *passed])
    try:
        connection: LenderConnection = await client.endpoint().connect(Factory.forProtocol(LenderConnection))
    except CancelledError:
        raise
    except Exception as error:
        raise unreachable(server, what, error) from error
    connection.ask(request)
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
