"""The ports at which tenants ask: one for each, by UDP and TCP, on each address of this process.

A tenant that asks more than it may is not read until it may ask again: what comes meanwhile waits in its own socket, or
is dropped, by the kernel or before it is decoded. What was read from a connection already waits as well, and while a
client does not read its answers none of its questions are read. Between two looks at other sockets only a few of its
messages are decoded. Sources: RFC 7766 (DNS over TCP), RFC 6891.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from twisted.protocols.basic import Int16StringReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.clocks import Reactor
from liqod.flow.connections.admission import Admission, PortLimits
from liqod.flow.connections.factories import quiet
from liqod.flow.timer import Timer
from liqod.names.question import MAX_QUESTION

CONNECTIONS: Final = PortLimits(64, per_address=16, waiting=64)
"""Connections of one tenant; where there are more, the one that waits longest is closed (RFC 7766, 6.2.2)."""
IDLE: Final = 10.0
"""Seconds without a question after which a connection is closed (RFC 7766, 6.2.3)."""
PIPELINED: Final = 16
"""Questions of a connection that are answered at the same time; further ones wait, and no more are read."""
AT_ONCE: Final = 2048
"""Bytes that are read from a socket before others have their turn: some forty questions."""


class Answering(Protocol):
    """What answers at a port: ``resolver.Resolver``, ``home_port.HomeQuestions``."""

    def wait(self) -> float:
        """Return the seconds until more may be asked; 0 for now."""
        ...

    def ask(self, message: bytes, way: Literal["udp", "tcp"], reply: Callable[[bytes], None]) -> None:
        """Answer a message by calling ``reply``, at once or later, once or not at all; raises nothing."""
        ...


A = TypeVar("A", bound=Answering)
Admits = Callable[[str], bool]


class _ByUdp(DatagramProtocol):
    """Questions in datagrams."""

    noisy = False
    transport: Any

    def __init__(self, reactor: Reactor, resolver: Answering, admits: Admits) -> None:
        self._resolver = resolver
        self._admits = admits
        self._pause = Timer(reactor)

    def startProtocol(self) -> None:
        self.transport.maxThroughput = AT_ONCE

    def stopProtocol(self) -> None:
        self._pause.cancel()

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        if not self._admits(addr[0]):
            return
        if not self._pause.running and (wait := self._resolver.wait()) > 0:
            # No further datagram is read before; this one, and what this turn of the socket has read, is dropped.
            self._pause.start(wait, self._resume)
            self.transport.stopReading()
        if not self._pause.running:
            self._resolver.ask(datagram, "udp", partial(self._reply, addr))

    def _resume(self) -> None:
        if self.transport is not None:
            self.transport.startReading()

    def _reply(self, addr: Any, answer: bytes) -> None:
        if self.transport is not None:
            self.transport.write(answer, addr)


@implementer(IPushProducer)
class _Backlog:
    """Answers of a connection that its client does not read; the transport says when they are too many."""

    def __init__(self, drained: Callable[[], None], full: Callable[[], None]) -> None:
        self._drained = drained
        self._full = full
        self.is_full = False

    def pauseProducing(self) -> None:
        self.is_full = True
        self._full()

    def resumeProducing(self) -> None:
        self.is_full = False
        self._drained()

    def stopProducing(self) -> None:
        pass


class _ByTcp(Int16StringReceiver, TimeoutMixin):
    """Questions by a connection, several at a time."""

    MAX_LENGTH = MAX_QUESTION
    transport: Any

    def __init__(self, reactor: Reactor, resolver: Answering, admission: Admission, admits: Admits) -> None:
        self._reactor = reactor
        self._resolver = resolver
        self._admission = admission
        self._open = 0
        self._admits = admits
        self._pause = Timer(reactor)
        self._backlog = _Backlog(self._resume, self.pauseProducing)

    def callLater(self, seconds: float, *work: Any) -> IDelayedCall:
        """Use the daemon's clock for the time-out."""
        return self._reactor.callLater(seconds, *work)

    def connectionMade(self) -> None:
        host = self.transport.getPeer().host
        if not self._admits(host) or not self._admission.has_room(host):
            self.transport.abortConnection()
            return
        self._admission.enters(self, host)
        self.setTimeout(IDLE)
        self.transport.registerProducer(self._backlog, True)

    def stringReceived(self, string: bytes) -> None:
        self.resetTimeout()
        self._open += 1
        self._resolver.ask(string, "tcp", self._reply)
        wait = self._resolver.wait()
        if wait > 0 or self._open >= PIPELINED:
            # The transport alone would not do: what it has read already holds further questions.
            self.pauseProducing()
            self._pause.start(max(wait, 0.01), self._resume)

    def lengthLimitExceeded(self, length: int) -> None:
        self.transport.abortConnection()

    def timeoutConnection(self) -> None:
        self.transport.abortConnection()

    def evict(self, reason: str, message: str) -> None:
        """Close the connection in favour of a newer one."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.setTimeout(None)
        self._pause.cancel()
        self._admission.closed(self)

    def _resume(self) -> None:
        if self._open >= PIPELINED:
            self._pause.start_unless_running(0.01, self._resume)
        elif not self._pause.running and not self._backlog.is_full:
            self.resumeProducing()

    def _reply(self, answer: bytes) -> None:
        self._open -= 1
        if self.transport.connected:
            self.sendString(answer)


class Server(Generic[A]):
    """One port, of a tenant or of the processes that answer; it reads nothing of sources that it does not admit."""

    _log = Logger()

    def __init__(
        self, reactor: Reactor, resolver: A, addresses: Sequence[str], port: int, *, admits: Admits = lambda _: True
    ) -> None:
        self._reactor = reactor
        self.resolver = resolver
        self.port = port
        self._addresses = addresses
        self._admits = admits
        self._admission = Admission(reactor, CONNECTIONS, self._refused)
        self._listening: list[Any] = []

    def listen(self) -> None:
        """Listen on each address; raises CannotListenError, and then listens nowhere."""
        try:
            for address in self._addresses:
                by_udp = _ByUdp(self._reactor, self.resolver, self._admits)
                self._listening.append(
                    self._reactor.listenUDP(self.port, by_udp, interface=address, maxPacketSize=MAX_QUESTION + 1)
                )
                factory: Any = quiet(self._connection)
                self._listening.append(self._reactor.listenTCP(self.port, factory, interface=address))
        except CannotListenError:
            self.close()
            raise

    def close(self) -> list[Deferred[Any]]:
        """Stop listening; existing connections end by their time-out."""
        listening, self._listening = self._listening, []
        return [maybeDeferred(one.stopListening) for one in listening]

    def _connection(self) -> _ByTcp:
        return _ByTcp(self._reactor, self.resolver, self._admission, self._admits)

    def _refused(self, reason: str, source: str, message: str) -> None:
        self._log.debug("a connection from {address} is refused: {detail}", address=source, detail=message)
