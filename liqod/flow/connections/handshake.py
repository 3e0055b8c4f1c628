"""Bounds TLS handshakes in bytes, time and rate; for HTTP servers also connections and request times.

OpenSSL accepts up to 100 KB of certificates (``SSL_CTX_set_max_cert_list``), and verifies them, before the verify
result is known here. So the bytes are counted before they reach OpenSSL. Data after the handshake is not inspected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.connections.admission import OF_API_SERVERS, REQUEST, Admission, PortLimits
from liqod.flow.connections.listening import plain_host
from liqod.flow.timer import Timer

MAX_HANDSHAKE: Final = 20 << 10
"""Maximum bytes from the other side until the handshake is complete: 16 KiB of certificates, and the other messages."""


class BoundedConnection(BufferingTLSTransport):
    """One TLS connection; counts received bytes until the handshake is complete."""

    factory: BoundedTLS
    _complete = False
    _received = 0
    _begun = False
    _early = b""
    _served = False

    def makeConnection(self, transport: Any) -> None:
        self._put_off, self._deadline = Timer(self.factory.clock), Timer(self.factory.clock)
        self.factory.came(self, transport)
        self._hurry()
        super().makeConnection(transport)

    def evict(self, reason: str, message: str) -> None:
        """Close the connection at once, in favor of a newer one."""
        self._cut()

    def serve(self) -> None:
        """Mark the connection as served: its request was read and its caller is authorized."""
        self._served = True
        self._clear()
        self.factory.served(self)

    def rest(self) -> None:
        """Mark the connection as waiting for its next request."""
        self._served = False
        self._clear()
        self.factory.waits(self)

    def dataReceived(self, data: bytes) -> None:
        if self._complete:
            if not self._served and not self._deadline.running:
                self._hurry()  # a request starts
            super().dataReceived(data)
            return
        if self._put_off.running or (not self._begun and not self._may_begin()):
            self._early += data
            if len(self._early) > MAX_HANDSHAKE:
                self._cut()
            return
        if self._aborted:
            return
        # A client may send application data in the same segment as its Finished: it is not part of the handshake.
        allowed, rest = data[: MAX_HANDSHAKE - self._received], data[MAX_HANDSHAKE - self._received :]
        self._received += len(allowed)
        super().dataReceived(allowed)
        handle = self.getHandle()
        if handle is None or self._aborted:
            return
        # OpenSSL knows the peer's Finished once the handshake is complete (SSL_get_peer_finished(3)); before, its
        # length is 0.
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
            # The bytes of a peer that is put off stay in its socket's buffer, and TCP slows it down.
            cast(Any, self.transport).pauseProducing()
            self._put_off.start(delay, self._go_on)
            return False
        return True

    def _go_on(self) -> None:
        early, self._early = self._early, b""
        cast(Any, self.transport).resumeProducing()
        self.dataReceived(early)

    def _hurry(self) -> None:
        if self.factory.seconds is not None:
            self._deadline.start(self.factory.seconds, self._cut)

    def _cut(self) -> None:
        self._clear()
        self._early = b""
        # Not loseConnection(): the TLS close needs a peer that answers, and a hostile one does not.
        self.abortConnection()

    def _clear(self) -> None:
        self._put_off.cancel()
        self._deadline.cancel()


class BoundedTLS(TLSMemoryBIOFactory):
    """Wraps connections in TLS with a bounded handshake.

    ``admission`` limits the rate of handshakes (None: unlimited). ``seconds`` is the time limit from the start of a
    connection until it is served, and for each later request; None: the wrapped protocol has its own time-outs and
    admission.
    """

    protocol = BoundedConnection

    def __init__(
        self,
        creator: Any,
        is_client: bool,
        wrapped: IProtocolFactory,
        clock: IReactorTime | None = None,
        *,
        admission: Admission | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(creator, is_client, wrapped, clock)
        self.clock: IReactorTime = self._clock
        self.seconds = seconds
        self._admission = admission

    def delay(self, connection: BoundedConnection) -> float | None:
        """Return the seconds until the handshake of a connection may start, None if it is refused."""
        if self._admission is None:
            return 0.0
        return self._admission.handshake(host_of(cast(Any, connection.transport).getPeer()))

    def came(self, connection: BoundedConnection, transport: Any) -> None:
        """Add a new connection to the admission, if this factory manages it."""
        if self._admission is not None and self.seconds is not None:
            self._admission.enters(connection, host_of(transport.getPeer()))

    def served(self, connection: BoundedConnection) -> None:
        """Mark a connection as served."""
        if self._admission is not None:
            self._admission.served(connection)

    def waits(self, connection: BoundedConnection) -> None:
        """Mark a connection as waiting: it may be evicted."""
        if self._admission is not None:
            self._admission.waits(connection)

    def left(self, connection: BoundedConnection) -> None:
        """Remove a closed connection."""
        if self._admission is not None and self.seconds is not None:
            self._admission.closed(connection)


@implementer(IStreamClientEndpoint)
class BoundedClient:
    """Connects by a wrapped endpoint and starts TLS with a bounded handshake (``wrapClientTLS`` has no bounds)."""

    def __init__(self, creator: Any, endpoint: IStreamClientEndpoint) -> None:
        self._creator = creator
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting: Deferred[Any] = self._endpoint.connect(BoundedTLS(self._creator, True, protocolFactory))
        return connecting.addCallback(lambda connection: connection.wrappedProtocol)


def https(
    creator: Any,
    wrapped: IProtocolFactory,
    clock: IReactorTime,
    refused: Callable[[str, str, str], None],
    limits: PortLimits = OF_API_SERVERS,
) -> LimitedFactory:
    """Return the factory for ports with HTTP over TLS, by default for those that API servers call.

    Silent connections may be evicted.

    The wrapped protocol calls ``serve`` when a request starts to be served, and ``rest`` when it is answered.
    """
    admission = Admission(clock, limits, refused)
    return LimitedFactory(admission, BoundedTLS(creator, False, wrapped, clock, admission=admission, seconds=REQUEST))


def serve(transport: object) -> None:
    """Mark the connection of a transport as served: its request was read and its caller is authorized."""
    if isinstance(transport, BoundedConnection):
        transport.serve()


def rest(transport: object) -> None:
    """Mark the connection of a transport as waiting: its request is answered."""
    if isinstance(transport, BoundedConnection) and transport.connected:
        transport.rest()


class LimitedFactory(Factory):
    """Refuses connections before TLS starts: a refused connection costs no handshake."""

    noisy = False

    def __init__(self, admission: Admission, behind: TLSMemoryBIOFactory) -> None:
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
    """Return the client's address for counting, an IPv4-mapped one as IPv4."""
    return plain_host(str(getattr(address, "host", "") or "a local socket"))
