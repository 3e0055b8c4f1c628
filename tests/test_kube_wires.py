"""Connections that are kept: used again, closed in time, and never taken for another request's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionClosed
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.kube.answers import Answer, BadAnswer
from liqod.kube.wires import CLOSING, Wires

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REST = 60.0


class Line(StringTransport):
    """A transport that tells how it was ended."""

    def __init__(self, protocol: Protocol) -> None:
        super().__init__()
        self.ends: list[str] = []
        self.protocol = protocol

    def loseConnection(self) -> None:
        self.ends.append("lost")

    def abortConnection(self) -> None:
        self.ends.append("aborted")


class Endpoint:
    """Connects at once to a transport that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        self.lines.append(Line(protocol))
        protocol.makeConnection(self.lines[-1])
        return succeed(protocol)


class WiresTests(SynchronousTestCase):
    """What becomes of connections."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint()
        endpoint: Any = self.endpoint
        self.wires = Wires(self.clock, endpoint, REST)

    def ask(self, request: bytes = b"GET / HTTP/1.1\r\n\r\n") -> Deferred[Answer]:
        return Deferred.fromCoroutine(self.wires.ask(request))

    def answered(self, line: int = 0, data: bytes = OK) -> Answer:
        pending = self.ask()
        self.endpoint.lines[line].protocol.dataReceived(data)
        return self.successResultOf(pending)

    def end(self, line: int) -> None:
        self.endpoint.lines[line].protocol.connectionLost(connectionDone)

    def test_one_after_the_other_share_a_connection(self) -> None:
        """Requests one after the other go over one connection, those at once over one each."""
        for _ in range(3):
            self.assertEqual(self.answered().body, b"ok")
        self.assertEqual(len(self.endpoint.lines), 1)
        pending = [self.ask(), self.ask()]
        self.assertEqual(len(self.endpoint.lines), 2)
        for line in self.endpoint.lines:
            line.protocol.dataReceived(OK)
        for one in pending:
            self.successResultOf(one)
        self.assertEqual((len(self.wires), self.endpoint.lines[0].ends), (2, []))

    def test_the_last_answer_of_a_connection(self) -> None:
        """A connection whose answer says that it is the last is closed and not used again."""
        self.answered(0, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(self.endpoint.lines[0].ends, ["lost"])
        self.answered(1)

    def test_what_nobody_asked_for(self) -> None:
        """Bytes on a connection at rest end it: they must not become the answer to the next request."""
        self.answered()
        self.endpoint.lines[0].protocol.dataReceived(OK)
        self.assertEqual(self.endpoint.lines[0].ends, ["aborted"])
        pending = self.ask()
        self.assertNoResult(pending)
        self.assertEqual(len(self.endpoint.lines), 2)

    def test_an_answer_that_cannot_be_read(self) -> None:
        """What is no answer fails the request and ends the connection."""
        pending = self.ask()
        self.endpoint.lines[0].protocol.dataReceived(b"220 mail\r\n\r\n")
        self.failureResultOf(pending, BadAnswer)
        self.assertEqual(self.endpoint.lines[0].ends, ["aborted"])

    def test_a_connection_that_breaks(self) -> None:
        """A request fails with what ended its connection; one at rest that ended is not used."""
        pending = self.ask()
        self.endpoint.lines[0].protocol.dataReceived(OK[:-1])
        self.end(0)
        self.failureResultOf(pending, ConnectionClosed)
        self.answered(1)
        self.end(1)
        self.answered(2)
        self.assertEqual(len(self.wires), 1)

    def test_cancelling_ends_the_connection(self) -> None:
        """A cancelled request's connection is aborted: its answer would be taken for another's."""
        pending = self.ask()
        pending.cancel()
        self.failureResultOf(pending, CancelledError)
        self.assertEqual(self.endpoint.lines[0].ends, ["aborted"])
        self.answered(1)

    def test_rest_is_bounded(self) -> None:
        """A connection that nobody used for its time of rest is closed; one that is used goes on."""
        self.answered()
        self.clock.advance(REST / 2)
        pending = [self.ask(), self.ask()]
        for line in self.endpoint.lines:
            line.protocol.dataReceived(OK)
        for one in pending:
            self.successResultOf(one)
        self.clock.advance(REST / 2)
        self.assertEqual([line.ends for line in self.endpoint.lines], [[], []])
        self.answered(1)
        self.clock.advance(REST / 2)
        self.assertEqual([line.ends for line in self.endpoint.lines], [["lost"], []])
        self.clock.advance(REST / 2)
        self.assertEqual([line.ends for line in self.endpoint.lines], [["lost"], ["lost"]])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_connections_from_before_an_interruption(self) -> None:
        """Those made before a time are aborted, at rest or all; what is made later is used."""
        self.answered()
        pending = self.ask()
        self.wires.drop(1.0, idle=True)
        self.assertEqual(self.endpoint.lines[0].ends, [])
        self.wires.drop(0.0, idle=False)
        self.assertEqual(self.endpoint.lines[0].ends, [])
        self.wires.drop(1.0, idle=False)
        self.assertEqual(self.endpoint.lines[0].ends, ["aborted"])
        self.end(0)
        self.failureResultOf(pending, ConnectionClosed)
        self.clock.advance(2)
        self.answered(1)
        self.wires.drop(3.0, idle=True)
        self.assertEqual(self.endpoint.lines[1].ends, ["aborted"])
        self.ask()
        self.assertEqual(len(self.endpoint.lines), 3)

    def test_closing(self) -> None:
        """Closing ends what rests and waits for it a while only; what is in use ends with its answer."""
        busy, resting = self.ask(), self.ask()
        self.endpoint.lines[1].protocol.dataReceived(OK)
        self.successResultOf(resting)
        closed = self.wires.close()
        self.assertEqual([line.ends for line in self.endpoint.lines], [[], ["lost"]])
        self.assertNoResult(closed)
        self.clock.advance(CLOSING)
        self.assertEqual(self.endpoint.lines[1].ends, ["lost", "aborted"])
        self.end(1)
        self.successResultOf(closed)
        self.endpoint.lines[0].protocol.dataReceived(OK)
        self.successResultOf(busy)
        self.assertEqual(self.endpoint.lines[0].ends, ["lost"])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class _Server(Protocol):
    def __init__(self, received: Callable[[_Server, bytes], None]) -> None:
        self._received = received

    def dataReceived(self, data: bytes) -> None:
        self._received(self, data)


class SocketTests(TestCase):
    """Over real sockets."""

    async def test_a_request_larger_than_the_socket_takes(self) -> None:
        """A request of which the socket takes a part at once arrives whole, and so does a large answer."""
        size, heard = 8 << 20, bytearray()

        def received(server: _Server, data: bytes) -> None:
            heard.extend(data)
            if len(heard) == size and server.transport is not None:
                server.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"y" * size)

        there: Any = reactor
        port = there.listenTCP(0, Factory.forProtocol(lambda: _Server(received)), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        wires = Wires(there, TCP4ClientEndpoint(there, "127.0.0.1", port.getHost().port), REST)
        answer = await wires.ask(b"x" * size)
        self.assertEqual((answer.body, bytes(heard)), (b"y" * size, b"x" * size))
        await wires.close()
        self.assertEqual(len(wires), 0)
