"""A lender's API server of few words, and a connection that collects what comes."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure


class Connection(Protocol):
    """Collects what comes; ``until`` waits for some of it."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.pieces: list[bytes] = []
        """The data as it came: over TLS each piece is of one record."""
        self.lost: Failure | None = None
        self._waiting: list[tuple[bytes | None, Deferred[bytes]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(data)
        self._look()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason
        self._look()

    def until(self, wanted: bytes | None) -> Deferred[bytes]:
        """Fire with all data once it holds ``wanted`` (None: once the connection is closed)."""
        waiting: Deferred[bytes] = Deferred()
        self._waiting.append((wanted, waiting))
        self._look()
        return waiting

    def _look(self) -> None:
        for wanted, waiting in list(self._waiting):
            if (wanted is None and self.lost is not None) or (wanted is not None and wanted in self.data):
                self._waiting.remove((wanted, waiting))
                waiting.callback(self.data)
            elif self.lost is not None and wanted is not None:
                self._waiting.remove((wanted, waiting))
                waiting.errback(AssertionError(f"closed with {self.data[-200:]!r}"))


class LenderServer(Connection):
    """The lender's API server: what it does follows from the subresource that is asked for."""

    factory: LenderFactory
    upgraded = False

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if self.upgraded:
            self.transport.write(data.upper())
        elif b"\r\n\r\n" in self.data:
            self.factory.connections.append(self)
            head, _, rest = self.data.partition(b"\r\n\r\n")
            self.answer(head.split(b" ")[1].partition(b"?")[0].rsplit(b"/", 1)[-1], rest)

    def answer(self, subresource: bytes, rest: bytes) -> None:
        switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        if subresource == b"exec":
            self.upgraded = True
            self.transport.write(switch + b"first:" + rest.upper())
        elif subresource == b"attach":
            body = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not in\\nmy house"}'
            self.transport.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        elif subresource == b"portforward":
            self.transport.write(switch)
            self.transport.registerProducer(Flood(self), True)
            Flood(self).resumeProducing()
        elif subresource == b"pods":
            body = json.dumps({"items": self.factory.metrics}).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        elif subresource == b"log" and b"previous" in self.data:
            self.transport.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        elif subresource == b"log" and b"tailLines" in self.data:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\none\n")
        elif subresource == b"log":
            self.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")


class Flood:
    """Writes for as long as it may."""

    def __init__(self, server: LenderServer) -> None:
        self.server = server

    def resumeProducing(self) -> None:
        self.server.factory.paused = False
        self.more()

    def more(self) -> None:
        from twisted.internet import reactor

        factory = self.server.factory
        if not factory.paused and self.server.lost is None and factory.sent < 64 << 20:
            factory.sent += 65536
            self.server.transport.write(b"x" * 65536)
            reactor.callLater(0, self.more)

    def pauseProducing(self) -> None:
        self.server.factory.paused = True

    def stopProducing(self) -> None:
        self.pauseProducing()


class LenderFactory(Factory):
    """What the lender saw."""

    protocol: Any = LenderServer
    noisy = False

    def __init__(self) -> None:
        self.connections: list[LenderServer] = []
        self.metrics: list[dict[str, Any]] = []
        self.sent = 0
        self.paused = False
