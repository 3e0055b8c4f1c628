"""A network in memory: machines with addresses, processes that listen and connect, and what may go wrong between them.

A ``Process`` is what a program takes for its reactor. Bytes take ``LATENCY`` from one machine to the other and stay in
order; what is sent on a blocked way waits, as TCP would send it again, and arrives when the way is free. A killed
process does nothing any more, in the middle of whatever it was doing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import (
    CannotListenError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    TimeoutError,
    UserError,
)
from twisted.internet.interfaces import (
    IConnector,
    IHostnameResolver,
    IListeningPort,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    ITCPTransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.scenario.world import Event, World

LATENCY = 0.0002
FIRST_FREE_PORT = 32768


class Network:
    """Who listens where, which machines have power, and which ways are blocked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listening: dict[tuple[str, int], Port] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.unpowered: set[str] = set()
        self._waiting: dict[End, None] = {}
        self._port = FIRST_FREE_PORT

    def fresh_port(self) -> int:
        """Return a port that nobody has."""
        self._port += 1
        return self._port

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from one address to another; the other direction is not touched."""
        self.blocked.add((source, target))

    def part(self, one: str, two: str) -> None:
        """Let nothing pass between two addresses."""
        self.block(one, two)
        self.block(two, one)

    def heal(self, late: float = 0.0) -> None:
        """Let everything pass again, beginning with what waits; that comes so many seconds later, because TCP tries
        ever less often.
        """
        self.blocked.clear()
        waiting, self._waiting = self._waiting, {}
        for end in waiting:
            if late:
                self.world.call(late, None, end.send_waiting)
            else:
                end.send_waiting()

    def passes(self, source: str, target: str) -> bool:
        """Tell whether anything gets from one address to another now."""
        return (source, target) not in self.blocked and not self.unpowered & {source, target}

    def waits(self, end: End) -> None:
        """Remember an end with something to send."""
        self._waiting[end] = None


@implementer(IHostnameResolver)
class _Literal:
    """Resolves addresses only."""

    def resolveHostName(
        self,
        resolutionReceiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        resolutionReceiver.resolutionBegan(self)
        if hostName.replace(".", "").isdigit():
            resolutionReceiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        resolutionReceiver.resolutionComplete()
        return self

    def cancel(self) -> None:
        """Nothing is under way."""


@implementer(IReactorTime, IReactorTCP, IReactorPluggableNameResolver)
class Process:
    """A running program on the machine with an address: its reactor. ``skew`` is how far its date is ahead."""

    running = True

    def __init__(self, network: Network, address: str, name: str = "") -> None:
        self.network = network
        self.world = network.world
        self.address = address
        self.name = name or address
        self.skew = 0.0
        self.dead = False
        self.steps = 0
        self.nameResolver = _Literal()
        self.watcher: Callable[[], None] | None = None
        self.ends: dict[End, None] = {}
        self._ports: dict[Port, None] = {}
        self._held: deque[Event] | None = None
        network.unpowered.discard(address)

    # Time.

    def seconds(self) -> float:
        return self.world.now

    def wall(self) -> datetime:
        """Return the time of day as this machine sees it."""
        return datetime.fromtimestamp(self.world.now + self.skew, UTC)

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any, **kwargs: Any) -> Event:
        return self.world.call(delay, self, callable, *args, **kwargs)

    def getDelayedCalls(self) -> list[Any]:
        return []

    def callFromThread(self, callable: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        self.callLater(0, callable, *args, **kwargs)

    def installNameResolver(self, resolver: Any) -> Any:
        raise OSError("names are not resolved here")

    def admits(self, event: Event) -> bool:
        """Tell whether an event may happen now; those of a stopped process wait until it is continued."""
        if self.dead:
            return False
        if self._held is not None:
            self._held.append(event)
            return False
        self.steps += 1
        if self.watcher is not None:
            self.watcher()
        return not self.dead

    # What may happen to it.

    def kill(self, *, power: bool = False) -> None:
        """End it at once. Its machine closes its connections, unless that lost ``power``: then nobody hears of it."""
        self.dead = True
        if power:
            self.network.unpowered.add(self.address)
        for port in list(self._ports):
            port.vanish()
        for end in list(self.ends):
            end.orphaned(silently=power)
        self.ends.clear()

    def suspend(self) -> None:
        """Stop it as if by a signal, or with its machine: it does nothing until resumed."""
        self._held = deque()

    def resume(self) -> None:
        """Let it go on, beginning with what it missed."""
        held, self._held = self._held or deque(), None
        for event in held:
            self.world.plan(event, self.world.now)

    # Sockets.

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Port:
        listening = Port(self, port or self.network.fresh_port(), factory)
        listening.startListening()
        self._ports[listening] = None
        return listening

    def port_closed(self, port: Port) -> None:
        self._ports.pop(port, None)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: Any = None) -> Connector:
        connector = Connector(self, host, port, factory, timeout)
        connector.connect()
        return connector


@implementer(IListeningPort)
class Port:
    """A port that is listened on."""

    def __init__(self, process: Process, number: int, factory: Any) -> None:
        self.process = process
        self.factory = factory
        self._key = (process.address, number)

    def startListening(self) -> None:
        known = self.process.network.listening
        if self._key in known:
            raise CannotListenError(*self._key, OSError("Address already in use"))
        known[self._key] = self
        self.factory.doStart()

    def stopListening(self) -> None:
        if self.vanish():
            self.process.port_closed(self)
            self.factory.doStop()

    def vanish(self) -> bool:
        """Be gone without a word; returns whether it was there."""
        known = self.process.network.listening
        if known.get(self._key) is not self:
            return False
        del known[self._key]
        return True

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", *self._key)


@implementer(IConnector)
class Connector:
    """An attempt to connect, and then the connection."""

    def __init__(self, process: Process, host: str, port: int, factory: Any, timeout: float) -> None:
        self._process = process
        self._target = (host, port)
        self._factory = factory
        self._seconds = timeout
        self._timeout: Event | None = None
        self.state = "disconnected"
        self.end: End | None = None

    def connect(self) -> None:
        if self.state != "disconnected":
            raise RuntimeError("can't connect in this state")
        self.state = "connecting"
        self._factory.doStart()
        self._factory.startedConnecting(self)
        if self.state != "connecting":
            return
        self._timeout = self._process.callLater(self._seconds, self._failed, TimeoutError())
        self._process.world.call(LATENCY, None, self._knock)

    def _knock(self) -> None:
        """The first packet arrives at the other machine."""
        process, network = self._process, self._process.network
        there, here = self._target[0], process.address
        if (
            process.dead
            or self.state != "connecting"
            or not (network.passes(here, there) and network.passes(there, here))
        ):
            return
        port = network.listening.get(self._target)
        if port is None:
            process.callLater(LATENCY, self._failed, ConnectionRefusedError())
            return
        port.process.callLater(0, self._accepted, port)

    def _accepted(self, port: Port) -> None:
        if self._process.dead or self.state != "connecting":
            return
        address = IPv4Address("TCP", self._process.address, self._process.network.fresh_port())
        mine, theirs = End(self._process, address), End(port.process, port.getHost())
        mine.peer, theirs.peer = theirs, mine
        self._process.callLater(LATENCY, self._connected, mine)
        protocol = port.factory.buildProtocol(address)
        if protocol is None:
            theirs.abortConnection()
            return
        theirs.attach(protocol, lambda reason: None)

    def _connected(self, end: End) -> None:
        if self.state != "connecting":
            end.protocol = _Nobody()
            end.abortConnection()
            return
        self._forget_timeout()
        self.state = "connected"
        self.end = end
        protocol = self._factory.buildProtocol(end.peer.address)
        if protocol is None:
            end.abortConnection()
            return
        end.attach(protocol, self._lost)

    def _lost(self, reason: Failure) -> None:
        self.state = "disconnected"
        self._factory.clientConnectionLost(self, reason)
        self._factory.doStop()

    def _failed(self, error: Exception) -> None:
        if self.state != "connecting":
            return
        self._forget_timeout()
        self.state = "disconnected"
        self._factory.clientConnectionFailed(self, Failure(error))
        self._factory.doStop()

    def _forget_timeout(self) -> None:
        if self._timeout is not None and self._timeout.active():
            self._timeout.cancel()

    def stopConnecting(self) -> None:
        self._failed(UserError())

    def disconnect(self) -> None:
        if self.state == "connecting":
            self.stopConnecting()
        elif self.end is not None:
            self.end.loseConnection()

    def getDestination(self) -> IPv4Address:
        return IPv4Address("TCP", *self._target)


class _Nobody:
    """Takes the place of a protocol that is not wanted any more."""

    def dataReceived(self, data: bytes) -> None: ...
    def connectionLost(self, reason: Failure) -> None: ...


@implementer(ITCPTransport)
class End:
    """One end of a connection: the transport of a protocol."""

    _log = Logger()

    def __init__(self, process: Process, address: IPv4Address) -> None:
        self.process = process
        self.address = address
        self.peer: End = self
        self.protocol: Any = None
        self.connected = True
        self.disconnecting = False
        self.disconnected = False
        self._on_lost: Callable[[Failure], object] = lambda reason: None
        self._out: list[bytes] = []
        self._flushing = False
        self._stalled: deque[bytes | Exception | None] = deque()
        self._inbox: deque[bytes | Exception | None] = deque()
        self._paused = False
        self._producer: Any = None
        self._gone = False
        process.ends[self] = None

    def attach(self, protocol: Any, on_lost: Callable[[Failure], object]) -> None:
        """Give the protocol its transport."""
        self.protocol = protocol
        self._on_lost = on_lost
        protocol.makeConnection(self)
        self._read()

    # What the protocol asks for.

    def write(self, data: bytes) -> None:
        if self.disconnected or not data:
            return
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self.process.callLater(0, self._flush)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self, *_: object) -> None:
        if self.disconnecting or self.disconnected:
            return
        self.disconnecting = True
        self._maybe_close()

    def abortConnection(self) -> None:
        if self.disconnected:
            return
        self.disconnecting = True
        self.disconnected = True
        self._out.clear()
        self._send(ConnectionLost())
        self.process.callLater(0, self._lose, ConnectionAborted())

    def loseWriteConnection(self) -> None:
        self.loseConnection()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        if self.disconnected:
            producer.stopProducing()
            return
        self._producer = producer
        if not streaming:
            self.process.callLater(0, self._pull, producer)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self.disconnecting:
            self._maybe_close()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        if self._paused:
            self._paused = False
            self.process.callLater(0, self._read)

    def stopProducing(self) -> None:
        self.loseConnection()

    def getPeer(self) -> IPv4Address:
        return self.peer.address

    def getHost(self) -> IPv4Address:
        return self.address

    def getTcpNoDelay(self) -> bool:
        return True

    def setTcpNoDelay(self, enabled: object) -> None:
        """There is no delay."""

    def getTcpKeepAlive(self) -> bool:
        return False

    def setTcpKeepAlive(self, enabled: object) -> None:
        """Nothing is probed."""

    def _pull(self, producer: Any) -> None:
        while self._producer is producer and not self.disconnected:
            producer.resumeProducing()

    def _maybe_close(self) -> None:
        if self._producer is None and not self._flushing and not self.disconnected:
            self.disconnected = True
            self._send(None)
            self.process.callLater(0, self._lose, ConnectionDone())

    # The wire.

    def _flush(self) -> None:
        self._flushing = False
        data, self._out = b"".join(self._out), []
        if data and not self.disconnected:
            self._send(data)
        if self.disconnecting:
            self._maybe_close()

    def _send(self, what: bytes | Exception | None) -> None:
        network = self.process.network
        if self._stalled or not network.passes(self.address.host, self.peer.address.host):
            self._stalled.append(what)
            network.waits(self)
        else:
            self.process.world.call(LATENCY, None, self.peer.arrive, what)

    def send_waiting(self) -> None:
        """Send what could not be sent."""
        network = self.process.network
        if not network.passes(self.address.host, self.peer.address.host):
            network.waits(self)
            return
        stalled, self._stalled = self._stalled, deque()
        for what in stalled:
            self.process.world.call(LATENCY, None, self.peer.arrive, what)

    def arrive(self, what: bytes | Exception | None) -> None:
        """Take what came over the wire; a machine without a process for it answers with a reset."""
        if self.process.dead:
            if isinstance(what, bytes):
                self._send(ConnectionLost())
            return
        self._inbox.append(what)
        self.process.callLater(0, self._read)

    def _read(self) -> None:
        while self._inbox and self.protocol is not None and not self._gone:
            what = self._inbox[0]
            if isinstance(what, Exception):
                self._inbox.clear()
                self._lose(what)
                return
            if self._paused:
                return
            self._inbox.popleft()
            if what is None:
                if not self.disconnected:
                    self._send(None)
                self._lose(ConnectionDone())
                return
            if self.disconnected:
                continue
            try:
                self.protocol.dataReceived(what)
            except Exception as error:
                self._log.failure("a protocol failed")
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        if self._gone:
            return
        self._gone = self.disconnecting = self.disconnected = True
        self.connected = False
        self.process.ends.pop(self, None)
        producer, self._producer = self._producer, None
        reason = Failure(error)
        if producer is not None:
            producer.stopProducing()
        if self.protocol is not None:
            self.protocol.connectionLost(reason)
        self._on_lost(reason)

    def orphaned(self, *, silently: bool) -> None:
        """The process is gone."""
        self.disconnected = True
        if not silently:
            self._send(ConnectionLost())
