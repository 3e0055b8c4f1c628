"""The HTTP server of the API of virtual nodes; ``Answers`` answers each request.

After an upgrade all bytes of the connection go to the tunnel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, Request

from liqod.flow.connections.handshake import rest

MAX_HEAD: Final = 64 << 10
"""Maximum bytes of a request head: the words of an exec command are part of its URL."""
MAX_EARLY: Final = 64 << 10
IDLE: Final = 90
"""Seconds for which an idle connection is kept: API servers reuse connections."""

TEXT: Final = b"text/plain; charset=utf-8"


@define
class RequestRejected(Exception):
    """A request is answered with an error: status code and message."""

    code: int
    message: str

    def __str__(self) -> str:
        return f"{self.message} (HTTP {self.code})"


class KubeletChannel(HTTPChannel):
    """One connection; once ``receive`` is set, all data goes there instead of being parsed as HTTP."""

    totalHeadersSize = MAX_HEAD
    MAX_LENGTH = MAX_HEAD

    def __init__(self) -> None:
        super().__init__()
        self.receive: Callable[[bytes], None] | None = None
        self.lost: Callable[[], None] = lambda: None

    # HTTPChannel keeps what arrives during a request for the next one, and pauses reading soon: exec and port-forward
    # need every byte at once.
    def dataReceived(self, data: bytes) -> None:
        if self.receive is not None:
            self.receive(data)
        else:
            super().dataReceived(data)

    def rawDataReceived(self, data: bytes) -> None:
        if self.receive is not None:
            self.receive(data)
        else:
            super().rawDataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self.lost()


class ApiRequest(Request):
    """A request; failures become an error response, and a closed connection cancels the work on it."""

    _log = Logger()
    channel: Any
    answered_by: Callable[[ApiRequest], Awaitable[None]]
    _early = b""
    _has_body = False
    _gone = False

    def gotLength(self, length: int | None) -> None:
        # Not super().gotLength(): it makes a buffer or a temporary file of the length that the client announces.
        self._has_body = length != 0

    def handleContentChunk(self, data: bytes) -> None:
        """Drop the data: no served path takes a body."""

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        # Not super().requestReceived(): it parses arguments, cookies and forms, which no served path has.
        self.method, self.uri, self.clientproto = command, path, version
        self.process()

    def process(self) -> None:
        if self.header(b"upgrade"):
            self.channel.receive = self._keep_early
        transport = self.channel.transport
        working = Deferred.fromCoroutine(self._work())
        self.notifyFinish().addCallbacks(self._finished, self._left, (transport,), {}, (working,), {})
        working.addErrback(lambda failure: self._log.failure("answering a request for a pod failed", failure))

    def header(self, name: bytes) -> bytes:
        """Return the first value of a header; empty without one."""
        values = self.requestHeaders.getRawHeaders(name, ())
        return bytes(values[0]) if values else b""

    def upgrade(self, answer: bytes, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Send this response head and hand the connection over; data that arrived early is delivered at once."""
        channel = self.channel
        channel.transport.write(answer)
        early, self._early = self._early, b""
        channel.receive, channel.lost = receive, lost
        if early:
            receive(early)

    def send(self, code: int, body: bytes, content_type: bytes = TEXT) -> None:
        """Send a complete response."""
        self.setResponseCode(code)
        self.setHeader(b"content-type", content_type)
        self.setHeader(b"content-length", str(len(body)).encode())
        if self.header(b"upgrade"):
            # The client may have sent non-HTTP data after a request for an upgrade: the connection cannot be reused.
            self.setHeader(b"connection", b"close")
            self.channel.persistent = False
        self.write(body)
        self.finish()

    def _finished(self, _: object, transport: object) -> None:
        rest(transport)

    def _left(self, reason: Failure, working: Deferred[None]) -> None:
        self._gone = True
        working.cancel()

    async def _work(self) -> None:
        try:
            if self._has_body:
                raise RequestRejected(413, "requests to a virtual kubelet have no body")
            await self.answered_by(self)
        except CancelledError:
            return
        except RequestRejected as refusal:
            self._send_error(refusal.code, refusal.message)
        except Exception:
            self._log.failure(
                "answering {method} {path} failed", method=self.method, path=self.uri.decode("ascii", "replace")
            )
            self._send_error(500, "the virtual kubelet failed on this request; see the log of liqod")

    def _send_error(self, code: int, message: str) -> None:
        if self._gone or self.finished:
            return
        if self.startedWriting:
            # The status was sent already: only closing the connection shows that the body is incomplete.
            self.channel.loseConnection()
            return
        if code == 401:
            self.setHeader(b"www-authenticate", b'Bearer realm="liqod"')
        self.send(code, message.encode() + b"\n")

    def _keep_early(self, data: bytes) -> None:
        # A client may send before it has the answer to its Upgrade; what it sent belongs to the new protocol.
        self._early += data
        if len(self._early) > MAX_EARLY:
            self.channel.transport.abortConnection()


class Channels(Factory):
    """Makes channels whose requests are answered by ``answer``."""

    noisy = False

    def __init__(self, answer: Callable[[ApiRequest], Awaitable[None]], clock: IReactorTime) -> None:
        self._answer = answer
        self._clock = clock

    def buildProtocol(self, addr: IAddress | None) -> KubeletChannel:
        channel: Any = KubeletChannel()
        channel.factory = self
        channel.timeOut = IDLE
        channel.callLater = self._clock.callLater
        channel.requestFactory = self._request
        made: KubeletChannel = channel
        return made

    def log(self, request: Request) -> None:
        """Write no access log: requests through the API server are in its audit log."""

    def _request(self, channel: KubeletChannel, queued: object = None) -> ApiRequest:
        request = ApiRequest(channel)
        request.answered_by = self._answer
        return request
