"""Pool of connections from the relay to the API server: kept alive, one request at a time on each."""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.connections.factories import quiet
from liqod.flow.timer import Timer
from liqod.http1.connection import Connection, Event
from liqod.kube.client import Client
from liqod.kube.connection.transport import CACHED_FOR
from liqod.peering.relay import policy

MAX_IDLE: Final = 32
"""Idle connections that are kept at most."""
LINGER: Final = 15.0
"""Seconds that a closing connection has to flush its buffer."""


class UpstreamUser(Protocol):
    """The current user of an upstream connection."""

    def from_upstream(self, data: bytes) -> None:
        """Handle bytes of the API server."""

    def upstream_lost(self, *, clean: bool) -> None:
        """Handle the loss of the connection; ``clean``: it was closed, not aborted."""

    def upstream_full(self, full: bool) -> None:
        """Pause or resume sending: the socket's buffer is full, or writable again."""


@implementer(IPushProducer)
class UpstreamConnection(TwistedProtocol):
    """One connection; ``fresh`` until its first answer is complete."""

    transport: Any

    def __init__(self, clock: IReactorTime) -> None:
        self.http = Connection("client", policy.LIMITS)
        self.user: UpstreamUser | None = None
        self.fresh = True
        self.lost = False
        self.idle_since = 0.0
        self._clock = clock
        self._paused = False
        self._closing: IDelayedCall | None = None

    def connectionMade(self) -> None:
        # The transport pauses the borrower's side while the API server does not read.
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        if self.user is not None:
            self.user.from_upstream(data)
        elif self._closing is None:
            self.abort()  # a response without a request

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
        user, self.user = self.user, None
        if user is not None:
            user.upstream_lost(clean=reason.check(ConnectionDone) is not None)

    def send(self, *events: Event) -> None:
        """Send a part of a request to the API server."""
        self.transport.write(self.http.send(*events))

    def write(self, data: bytes) -> None:
        """Send raw bytes to the API server, after a 101 response."""
        self.transport.write(data)

    def pause(self, paused: bool) -> None:
        """Pause or resume reading from the API server."""
        if paused != self._paused and not self.lost:
            self._paused = paused
            (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def close(self) -> None:
        """Close after the sent bytes were flushed."""
        self.user = None
        if self.lost or self._closing is not None:
            return
        self.transport.unregisterProducer()
        # A paused transport does not notice that the connection was closed.
        self.pause(False)
        # loseConnection waits until the write buffer is empty, without a limit if the server does not read.
        self._closing = self._clock.callLater(LINGER, self.abort)
        self.transport.loseConnection()

    def abort(self) -> None:
        """Close at once."""
        self.user = None
        if not self.lost:
            self.transport.abortConnection()

    # IPushProducer: the transport pauses its user while the API server does not read.

    def pauseProducing(self) -> None:
        if self.user is not None:
            self.user.upstream_full(True)

    def resumeProducing(self) -> None:
        if self.user is not None:
            self.user.upstream_full(False)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""


class Pool:
    """Connections to one API server; idle ones are reused, the newest first."""

    def __init__(self, client: Client, clock: IReactorTime) -> None:
        self._client = client
        self._clock = clock
        self._idle: list[UpstreamConnection] = []
        self._timer = Timer(clock)
        self._closed = False

    def idle(self) -> UpstreamConnection | None:
        """Return an idle open connection, or None."""
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.lost:
                return upstream
        return None

    def open(self) -> Deferred[UpstreamConnection]:
        """Open a connection, TLS included."""
        return cast("Deferred[UpstreamConnection]", self._client.endpoint().connect(quiet(self._make)))

    def _make(self) -> UpstreamConnection:
        return UpstreamConnection(self._clock)

    def release(self, upstream: UpstreamConnection) -> None:
        """Return a connection to the pool after its response is complete."""
        upstream.user, upstream.fresh = None, False
        upstream.pause(False)
        if self._closed or len(self._idle) >= MAX_IDLE:
            upstream.close()
            return
        upstream.idle_since = self._clock.seconds()
        self._idle.append(upstream)
        self._timer.start_unless_running(CACHED_FOR, self._expire)

    def _expire(self) -> None:
        until = self._clock.seconds() - CACHED_FOR
        old = [upstream for upstream in self._idle if upstream.idle_since <= until or upstream.lost]
        self._idle = [upstream for upstream in self._idle if upstream not in old]
        for upstream in old:
            upstream.close()
        if self._idle:
            first = min(upstream.idle_since for upstream in self._idle)
            self._timer.start(max(1.0, first - until), self._expire)

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are released."""
        self._closed = True
        self._timer.cancel()
        idle, self._idle = self._idle, []
        for upstream in idle:
            upstream.abort()
