"""Tunnels upgraded connections (SPDY, WebSocket) to the lender's API server, without interpreting their bytes.

Each side is read only as fast as the other accepts data, so a tunnel buffers no more than its two transports. An idle
tunnel is closed after the kubelet's own timeout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from liqod.flow.timer import Timer
from liqod.http1.connection import Connection, MessageLimits
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
"""Seconds; the default of the kubelet's ``streamingConnectionIdleTimeout``."""
LIMITS: Final = MessageLimits(head=32 << 10)
MAX_BODY: Final = 64 << 10
"""Maximum bytes that are read of a refusal; a Status of the API has about 300."""
UPGRADE_HEADERS: Final = STREAM_HEADERS | {b"upgrade"}
ANSWER_TIMEOUT: Final = 30.0
LINGER: Final = 15.0
"""Seconds that a closing connection has to send its buffered data."""


class BadAnswer(Exception):
    """Raised when the answer is not valid HTTP or exceeds the limits; the text is the reason."""


class LenderConnection(Protocol):
    """The connection to the lender.

    ``answer`` fires with the headers of the 101 response to pass on; the bytes after it go to the tunnel. ``answer``
    fails with BadAnswer, ApiError (the lender refused) or the reason why the connection was lost.
    """

    transport: Any

    def __init__(self) -> None:
        self.answer: Deferred[list[Header]] = Deferred(lambda _: self._abort())
        self._http = Connection("client", LIMITS)
        self._refusal = 0
        self._body = b""
        self._tunnel: StreamProxy | None = None

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
                # Read nothing until the tunnel is attached: there is no receiver for the bytes yet.
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
            # The status code is known even if the body is incomplete.
            self._finish(from_status(self._refusal, self._body))
        else:
            self.answer.errback(reason)

    def attach(self, tunnel: StreamProxy) -> None:
        """Deliver all bytes to a tunnel, starting with those that arrived with the response head."""
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
    """Return the headers of an upgrade to pass on, in either direction."""
    return [(name, value) for name, value in headers if name.lower() in UPGRADE_HEADERS]


async def open_at_lender(
    client: Client, method: bytes, path: str, passed: list[Header]
) -> tuple[LenderConnection, list[Header]]:
    """Open an upgraded connection to the lender's API server; return it and the headers of the 101 response to pass on.

    ``passed`` are the headers of the caller's own upgrade. Nothing is read from the connection before ``attach``.
    Raises ApiError with the lender's message, Unreachable, or ValueError for headers that cannot be sent.
    """
    what = f"{method.decode()} {path.partition('?')[0]}"
    server = client.config.server
    whole = urlsplit(server).path.rstrip("/") + path
    sent = client.request_headers()
    # Streams have no media type: the API server answers 406 to an Accept header that it cannot satisfy.
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
    """Close a connection at once; a closed one is skipped, because TLS transports do not check that themselves."""
    if side is not None and side.connected:
        side.abortConnection()


class StreamProxy:
    """Joins two connections; ``home`` and ``lender`` are their transports, ``idle`` is the timeout in seconds."""

    def __init__(self, home: Any, lender: Any, clock: IReactorTime, idle: float = IDLE) -> None:
        self._home = home
        self._lender = lender
        self._clock = clock
        self._idle = idle
        self._used = clock.seconds()
        self._ended = False
        # Back-pressure: each side is the push producer of the other.
        home.registerProducer(lender, True)
        lender.registerProducer(home, True)
        # Used for the idle timeout, and after one side closed for the linger time of the other.
        self._timer = Timer(clock)
        self._timer.start(idle, self._look)

    def from_home(self, data: bytes) -> None:
        """Forward data of the home side."""
        self._used = self._clock.seconds()
        self._lender.write(data)

    def from_lender(self, data: bytes) -> None:
        """Forward data of the lender's side."""
        self._used = self._clock.seconds()
        self._home.write(data)

    def home_lost(self) -> None:
        """Close the lender's side: the home side was closed."""
        self._end(self._home, self._lender)

    def lender_lost(self) -> None:
        """Close the home side: the lender's side was closed."""
        self._end(self._lender, self._home)

    def _look(self) -> None:
        left = self._used + self._idle - self._clock.seconds()
        if left > 0:
            self._timer.start(left, self._look)
            return
        self.abort()

    def abort(self) -> None:
        """Close both sides at once; buffered data is lost."""
        self._ended = True
        self._timer.cancel()
        for side in (self._home, self._lender):
            side.unregisterProducer()
            _abort(side)

    def _end(self, lost: Any, other: Any) -> None:
        self._timer.cancel()
        if self._ended:
            return
        self._ended = True
        # Twisted keeps a connection open for a producer: loseConnection() takes effect only once it is unregistered.
        lost.unregisterProducer()
        other.unregisterProducer()
        # It may have been paused for the closed side; a paused transport is not read and would never see its EOF.
        other.resumeProducing()
        other.loseConnection()
        self._timer.start(LINGER, _abort, other)
