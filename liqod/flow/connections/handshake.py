"""TLS whose handshake is bounded: in bytes, in time, and in how many begin in a second; where HTTP is served behind it,
so are connections and the time for a request.

OpenSSL reads up to 100 KB of certificates, and verifies what it can of them, before anybody is asked. So the bytes are
counted here, before they are given to it. What is served behind a completed handshake is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.connections.admission import OF_API_SERVERS, REQUEST, Admission
from liqod.flow.connections.listening import plain_host

MAX_HANDSHAKE: Final = 20 << 10
"""Bytes that the other side may send until the handshake is complete: 16 KiB of certificates, and the rest of it."""


class BoundedConnection(BufferingTLSTransport):
    """One connection; until its handshake is complete, what comes is counted."""

    factory: BoundedTLS
    _complete = False
    _received = 0
    _begun = False
    _early = b""
    _put_off: IDelayedCall | None = None
    _deadline: IDelayedCall | None = None
    _served = False

    def makeConnection(self, transport: Any) -> None:
        self.factory.came(self, transport)
        self._hurry()
        super().makeConnection(transport)

    def evict(self, reason: str, message: str) -> None:
        """Close at once: somebody else needs the place."""
        self._cut()

    def serve(self) -> None:
        """The request is known and its caller may ask: from here on the connection keeps its place."""
        self._served = True
        self._clear()
        self.factory.served(self)

    def rest(self) -> None:
        """The request is answered: the connection waits for the next one."""
        self._served = False
        self._clear()
        self.factory.waits(self)

    def dataReceived(self, data: bytes) -> None:
        if self._complete:
            if not self._served and self._deadline is None:
                self._hurry()  # a request begins
            super().dataReceived(data)
            return
        if self._put_off is not None or (not self._begun and not self._may_begin()):
            self._early += data
            if len(self._early) > MAX_HANDSHAKE:
                self._cut()
            return
        if self._aborted:
            return
        # What a client says in the same breath as the end of its handshake is not of the handshake.
        allowed, rest = data[: MAX_HANDSHAKE - self._received], data[MAX_HANDSHAKE - self._received :]
        self._received += len(allowed)
        super().dataReceived(allowed)
        handle = self.getHandle()
        if handle is None or self._aborted:
            return
        if handle.get_peer_finished() is not None:
            self._complete = True
            if rest:
                super().dataReceived(rest)
        elif self._received >= MAX_HANDSHAKE:
            self._cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._clear()
        self._early = b""
        self.factory.left(self)
        super().connectionLost(reason)

    def _may_begin(self) -> bool:
        self._begun = True
        delay = self.factory.delay(self)
        if delay is None:
            self._cut()
        elif delay > 0:
            cast(Any, self.transport).pauseProducing()
            self._put_off = self.factory.clock.callLater(delay, self._go_on)
            return False
        return True

    def _go_on(self) -> None:
        self._put_off = None
        early, self._early = self._early, b""
        cast(Any, self.transport).resumeProducing()
        self.dataReceived(early)

    def _hurry(self) -> None:
        if self.factory.seconds is not None:
            self._deadline = self.factory.clock.callLater(self.factory.seconds, self._cut)

    def _cut(self) -> None:
        self._clear()
        self._early = b""
        self.abortConnection()

    def _clear(self) -> None:
        for timer in (self._put_off, self._deadline):
            if timer is not None and timer.active():
                timer.cancel()
        self._put_off = self._deadline = None


class BoundedTLS(TLSMemoryBIOFactory):
    """Wraps connections in TLS with a bounded handshake.

    ``admission`` sets the pace of handshakes (None: they are not paced). ``seconds`` is the time from the beginning of
    a connection until it is served, and for each request after that; None: what is wrapped has time-outs, and places,
    of its own.
    """

    protocol = BoundedConnection

    def __init__(
        self,
        creator: Any,
        is_client: bool,
        wrapped: IProtocolFactory,
        clock: Any = None,
        *,
        admission: Admission | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(creator, is_client, wrapped, clock)
        self.clock: IReactorTime = self._clock
        self.seconds = seconds
        self._admission = admission

    def delay(self, connection: BoundedConnection) -> float | None:
        """Return after how many seconds the handshake of a connection may begin, None for never."""
        if self._admission is None:
            return 0.0
        return self._admission.handshake(host_of(cast(Any, connection.transport).getPeer()))

    def came(self, connection: BoundedConnection, transport: Any) -> None:
        """A connection takes its place, where it is ours to give."""
        if self._admission is not None and self.seconds is not None:
            self._admission.enters(connection, host_of(transport.getPeer()))

    def served(self, connection: BoundedConnection) -> None:
        """A connection keeps its place."""
        if self._admission is not None:
            self._admission.served(connection)

    def waits(self, connection: BoundedConnection) -> None:
        """A connection may be asked to make room."""
        if self._admission is not None:
            self._admission.waits(connection)

    def left(self, connection: BoundedConnection) -> None:
        """A connection is over."""
        if self._admission is not None and self.seconds is not None:
            self._admission.closed(connection)


@implementer(IStreamClientEndpoint)
class BoundedClient:
    """Connects by another endpoint, and speaks TLS with a bounded handshake there (as ``wrapClientTLS`` without)."""

    def __init__(self, creator: Any, endpoint: Any) -> None:
        self._creator = creator
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting: Deferred[Any] = self._endpoint.connect(BoundedTLS(self._creator, True, protocolFactory))
        return connecting.addCallback(lambda connection: connection.wrappedProtocol)


def https(creator: Any, wrapped: IProtocolFactory, clock: Any, refused: Callable[[str, str, str], None]) -> Door:
    """Return what listens where API servers call: HTTP behind TLS, with places that silent connections do not keep.

    What is wrapped says when a connection is served, and when it rests, by ``serve`` and ``rest``.
    """
    admission = Admission(clock, OF_API_SERVERS, refused)
    return Door(admission, BoundedTLS(creator, False, wrapped, clock, admission=admission, seconds=REQUEST))


def serve(transport: object) -> None:
    """A request on this transport is known and its caller may ask."""
    if isinstance(transport, BoundedConnection):
        transport.serve()


def rest(transport: object) -> None:
    """The request on this transport is answered."""
    if isinstance(transport, BoundedConnection) and transport.connected:
        transport.rest()


class Door(Factory):
    """Turns away before TLS begins: a refused connection costs no handshake."""

    noisy = False

    def __init__(self, admission: Any, behind: TLSMemoryBIOFactory) -> None:
        self._admission = admission
        self._behind = behind

    def hang_up(self) -> None:
        """Close every connection at once."""
        for connection in list(self._behind.protocols):
            connection.abortConnection()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        if not self._admission.has_room(host_of(addr)):
            return None
        return self._behind.buildProtocol(cast(Any, addr))


def host_of(address: object) -> str:
    """Return the address of a caller as it calls itself, for counting."""
    return plain_host(str(getattr(address, "host", "") or "a local socket"))
