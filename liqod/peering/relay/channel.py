"""One connection of a borrower: forwards its requests one after another, or one upgraded stream.

Both ends speak HTTP/1.1 through ``http1``: an event that was parsed at one end is serialized at the other, so that no
unparsed byte passes. Back-pressure bounds what is buffered: the buffers of the two sockets and ``MAX_AHEAD``.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.timer import Timer
from liqod.http1.connection import Connection
from liqod.http1.errors import Malformed
from liqod.http1.messages import Data, EndOfMessage, Header, InformationalResponse, Request, Response, make_response
from liqod.http1.responses import whole_response
from liqod.model.ids import ClusterID
from liqod.peering.relay import policy
from liqod.peering.relay.policy import Answer, Call
from liqod.peering.relay.rejection import Rejected, status
from liqod.peering.relay.upstream import LINGER, UpstreamConnection
from liqod.peering.session.usage import PeerUsage

IDLE: Final = 120.0
"""Seconds for which an idle connection is kept; borrowers close theirs after 60."""
HEAD: Final = 10.0
"""Seconds from the first byte of a head to its last (protection against slow-header attacks)."""
STALLED: Final = 60.0
"""Seconds without a byte of a request body after which the connection is closed."""
TUNNEL: Final = 4 * 3600.0
"""Seconds of silence after which an upgraded stream is closed: the default of the kubelet's
``streamingConnectionIdleTimeout`` (4 h)."""
MAX_AHEAD: Final = 64 << 10
"""Bytes that are buffered beyond the current request."""


class RequestGate(Protocol):
    """Admits requests, and owns the connections to the API server."""

    @property
    def clock(self) -> IReactorTime: ...

    def admit(self, channel: RelayChannel, call: Call) -> str:
        """Return the user to impersonate; raises Rejected for a request that is not forwarded."""
        ...

    def rejected(self, channel: RelayChannel, rejected: Rejected) -> None:
        """Count and log a request that was not forwarded."""

    def answered(self, channel: RelayChannel, call: Call, code: int) -> None:
        """Handle the status code of the API server's response."""

    def own_headers(self, user: str) -> list[Header]:
        """Return the daemon's own headers: Host, credentials, the user to impersonate."""
        ...

    @property
    def base(self) -> bytes:
        """The path of the API server's URL, without a trailing ``/``."""
        ...

    def idle(self) -> UpstreamConnection | None:
        """Return an open idle connection, or None."""
        ...

    def open(self) -> Deferred[UpstreamConnection]:
        """Open a connection."""
        ...

    def release(self, upstream: UpstreamConnection) -> None:
        """Return a connection to the pool."""

    def channel_lost(self, channel: RelayChannel) -> None:
        """Drop a borrower's connection that was closed."""


@implementer(IPushProducer)
class RelayChannel(TwistedProtocol):
    """The borrower's connection; ``caller`` was authenticated by its key before the first byte was read.

    ``usage`` is what the borrower takes by all of its connections: once it had its share, nothing more is read of it
    for a while, and of the API server for it.
    """

    transport: Any

    def __init__(
        self, gate: RequestGate, caller: ClusterID, fingerprint: str, address: str, usage: PeerUsage | None = None
    ) -> None:
        self.caller = caller
        self.fingerprint = fingerprint
        self.address = address
        self._gate = gate
        self._usage = usage or PeerUsage()
        self._http = Connection("server", policy.LIMITS)
        # The current request, what is still to be sent for it, and the response once its head was received.
        self._call: Call | None = None
        self._forwarded: Request | None = None
        self._request_complete = False
        self._answer: Answer | None = None
        self._close = False
        self._upstream: UpstreamConnection | None = None
        self._opening: Deferred[UpstreamConnection] | None = None
        self._tunnel = False
        self._over = False
        self._slow = False
        self._held: set[str] = set()
        self._until: float | None = None
        self._timer = Timer(gate.clock)
        self._share_of_others = Timer(gate.clock)
        self._reading_head = False

    # From the borrower.

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)
        self._wait(IDLE)

    def dataReceived(self, data: bytes) -> None:
        if self._over:
            return
        began = self._gate.clock.seconds()
        if self._tunnel and self._upstream is not None:
            self._wait(TUNNEL)
            self._upstream.write(data)
        else:
            self._http.receive(data)
            self._advance()
        self._worked(began)

    def _advance(self) -> None:
        try:
            while not self._over and not self._tunnel and self._step():
                pass
        except Malformed as malformed:
            self._reject(Rejected(malformed.code, "RelayBadRequest", malformed.message))
        except Rejected as rejected:
            self._reject(rejected)
        if not self._over:
            self._hold("ahead", not self._tunnel and len(self._http.unread) > MAX_AHEAD)

    def _step(self) -> bool:
        """Process the next event of the request stream; returns whether there may be another."""
        if self._call is None:
            # Each refusal of a request is bytes for a borrower who may not read them.
            waits = bool(self._http.unread) and self._waits(relay=True)
            return not self._slow and not waits and self._begin()
        if self._request_complete or self._upstream is None:
            return False
        event = self._http.next_event()
        if not isinstance(event, Data | EndOfMessage):
            return False
        self._request_complete = isinstance(event, EndOfMessage)
        self._wait(None if self._request_complete else STALLED)
        if isinstance(event, Data):
            self._usage.passed_on(len(event.data), self._gate.clock.seconds())
        self._upstream.send(event)
        return True

    def _worked(self, began: float) -> None:
        """Count the time since ``began`` as the borrower's; of a stream nothing is read once it had its share."""
        now = self._gate.clock.seconds()
        self._usage.worked(now - began, now)
        if self._tunnel and not self._over:
            self._waits()

    def _waits(self, *, relay: bool = False) -> bool:
        """Return whether the borrower has had its share: reading goes on by itself when it is others' turn no more."""
        if self._share_of_others.running:
            return True
        wait = self._usage.hold(self._gate.clock.seconds(), relay=relay)
        if wait > 0:
            self._share_of_others.start(wait, self._has_turn)
            self._hold("share", True)
            self._pause_upstream()
        return wait > 0

    def _has_turn(self) -> None:
        if self._over:
            return
        self._hold("share", False)
        self._pause_upstream()
        self._advance()

    def _pause_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.pause(self._slow or (self._tunnel and self._share_of_others.running))

    def _begin(self) -> bool:
        request = self._http.next_event()
        if not isinstance(request, Request):
            if not self._reading_head and self._http.unread:
                self._reading_head = True
                self._wait(HEAD)
            return False
        self._reading_head = False
        call = policy.examine(request)
        # The end of an empty body arrives with the head.
        complete = call.length == 0 and isinstance(self._http.next_event(), EndOfMessage)
        try:
            user = self._gate.admit(self, call)
        except Rejected as rejected:
            self._reject(rejected, keep=complete and not call.close)
            return True
        self._call, self._close, self._request_complete = call, call.close, complete
        self._wait(None if complete else STALLED)
        self._forwarded = policy.forward(self._gate.base, call, self._gate.own_headers(user))
        upstream = self._gate.idle()
        if upstream is not None:
            self._use(upstream, self._forwarded)
        else:
            self._open()
        return True

    def _open(self) -> None:
        self._opening = self._gate.open()
        self._opening.addCallbacks(self._opened, self._not_opened)

    def _opened(self, upstream: UpstreamConnection) -> None:
        self._opening = None
        if self._over or self._forwarded is None:
            upstream.abort()
            return
        self._use(upstream, self._forwarded)
        self._advance()

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if not self._over and not failure.check(CancelledError):
            # The error may contain addresses of this cluster: it goes to the daemon's log, not to the borrower.
            self._reject(Rejected(502, "RelayApiUnreachable", "the lender's API server does not answer its own daemon"))

    def _use(self, upstream: UpstreamConnection, request: Request) -> None:
        self._upstream = upstream
        upstream.user = self
        upstream.pause(self._slow)
        if self._request_complete:
            upstream.send(request, EndOfMessage())
        else:
            upstream.send(request)

    # From the API server.

    def from_upstream(self, data: bytes) -> None:
        """Forward bytes of the API server."""
        upstream = self._upstream
        began = self._gate.clock.seconds()
        if self._tunnel:
            self._wait(TUNNEL)
            self.transport.write(data)
        elif upstream is not None:
            upstream.http.receive(data)
            self._read_answer(upstream)
        self._worked(began)

    def _read_answer(self, upstream: UpstreamConnection) -> None:
        # One write for all events: a TLS record and a system call cost more than the copy.
        out: list[bytes] = []
        ended = False
        try:
            while not (ended or self._tunnel) and (event := upstream.http.next_event()) is not None:
                if isinstance(event, Data):
                    out.append(self._http.send(event))
                elif isinstance(event, EndOfMessage):
                    out.append(self._http.send(event))
                    ended = True
                elif isinstance(event, InformationalResponse):
                    if event.status_code == 101:
                        self._answered(event.status_code)
                        out.append(self._http.send(policy.switch(event)) + upstream.http.unread)
                        self._switch()
                elif isinstance(event, Response):
                    self._answered(event.status_code)
                    answer = policy.answer(event)
                    self._close = self._close or answer.close or not self._request_complete
                    out.append(self._http.send(answer.response(close=self._close)))
                    self._answer = answer
        except Malformed as malformed:
            self._reject(Rejected(502, "RelayBadAnswer", malformed.message))
            return
        except Rejected as rejected:
            self._reject(rejected)
            return
        if out:
            self.transport.write(b"".join(out))
        if self._tunnel:
            self._send_ahead(upstream)
        elif ended:
            self._finish(upstream)

    def _answered(self, code: int) -> None:
        if self._call is not None:
            self._gate.answered(self, self._call, code)
        if code == 401:
            raise Rejected(502, "RelayApiUnauthorized", "the API server does not know the lender's own daemon")

    def _finish(self, upstream: UpstreamConnection) -> None:
        """Complete a response: continue with the next request, or close."""
        self._upstream = upstream.user = None
        # Bytes after the response belong to no request (response smuggling): such a connection is not reused.
        if not self._close and not upstream.http.unread and upstream.http.start_next_cycle():
            self._gate.release(upstream)
        else:
            upstream.close()
        self._call = self._forwarded = self._answer = None
        if self._close or not self._http.start_next_cycle():
            self.end()
            return
        self._hold("api", False)
        self._wait(IDLE)
        self._advance()

    def _switch(self) -> None:
        """Switch to forwarding raw bytes in both directions (101 Switching Protocols)."""
        self._tunnel = True
        self._wait(TUNNEL)
        self._hold("ahead", False)

    def _send_ahead(self, upstream: UpstreamConnection) -> None:
        ahead = self._http.unread
        if ahead:
            upstream.write(ahead)

    def upstream_lost(self, *, clean: bool) -> None:
        """Handle the loss of the connection to the API server; ``clean``: it was closed, not aborted."""
        upstream, self._upstream = self._upstream, None
        call = self._call
        if self._over:
            return
        if self._tunnel:
            self.end()
        elif self._answer is not None and self._answer.unbounded and clean and upstream is not None:
            upstream.http.receive_eof()
            self._read_answer(upstream)
        elif self._answer is not None or call is None:
            # Aborted, so that the client does not take a truncated body for a complete one (RFC 9112, section 8).
            self.abort()
        elif upstream is not None and not upstream.fresh and _repeatable(call) and not upstream.http.unread:
            self._open()  # a reused connection that the server closed while it was idle (RFC 9112, section 9.3.1)
        else:
            self._reject(Rejected(502, "RelayApiUnreachable", "the lender's API server closed the connection"))

    def upstream_full(self, full: bool) -> None:
        """Pause or resume reading from the borrower: the API server's socket is full, or writable again."""
        self._hold("api", full)

    # Rejections and closing.

    def _reject(self, rejected: Rejected, *, keep: bool = False) -> None:
        if self._over:
            return
        self._gate.rejected(self, rejected)
        if self._answer is not None:
            self.abort()
            return
        body, headers = status(rejected), [(b"Content-Type", b"application/json")]
        if keep:
            response = make_response(rejected.code, [*headers, (b"Content-Length", b"%d" % len(body))])
            self.transport.write(self._http.send(response, Data(data=body), EndOfMessage()))
            self._http.start_next_cycle()
            self._wait(IDLE)
        else:
            self.transport.write(whole_response(rejected.code, headers, body))
            self.end()

    def end(self) -> None:
        """Close after the written bytes were sent."""
        if self._over:
            return
        self._stop()
        self.transport.unregisterProducer()
        # loseConnection waits until the write buffer is empty, without a limit if the borrower does not read.
        self._timer.start(LINGER, self._cut)
        self.transport.loseConnection()

    def abort(self) -> None:
        """Abort both connections."""
        self._stop()
        self._cut()

    def _stop(self) -> None:
        self._over = True
        self._timer.cancel()
        self._share_of_others.cancel()
        if self._opening is not None:
            self._opening.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            if self._tunnel:
                upstream.close()
            else:
                upstream.abort()
        # A paused transport does not notice that the connection was closed.
        for why in tuple(self._held):
            self._hold(why, False)

    def _cut(self) -> None:
        if self.transport is not None and self.transport.connected:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._held.clear()
        self._stop()
        self._gate.channel_lost(self)

    # IPushProducer: the transport pauses this channel while the borrower does not read.

    def pauseProducing(self) -> None:
        self._slow = True
        self._pause_upstream()

    def resumeProducing(self) -> None:
        self._slow = False
        self._pause_upstream()
        if self._call is None and not self._over:
            self._advance()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    def _hold(self, why: str, held: bool) -> None:
        """Pause reading from the borrower while there is any reason to."""
        before = bool(self._held)
        (self._held.add if held else self._held.discard)(why)
        if bool(self._held) != before:
            # A paused socket fills, its window closes, and the borrower stops: nothing is buffered here without bound.
            (self.transport.pauseProducing if self._held else self.transport.resumeProducing)()

    # Time-outs: one timer, which is rescheduled only when it fires.

    def _wait(self, seconds: float | None) -> None:
        if seconds is None:
            self._until = None
            return
        self._until = self._gate.clock.seconds() + seconds
        self._timer.start_if_earlier(seconds, self._look)

    def _look(self) -> None:
        if self._until is None:
            return
        left = self._until - self._gate.clock.seconds()
        if left > 0:
            self._timer.start(left, self._look)
        elif self._call is None and not self._reading_head:
            self.end()
        elif self._tunnel:
            self.abort()
        else:
            self._reject(Rejected(408, "RelayBadRequest", "the request did not arrive in time"))


def _repeatable(call: Call) -> bool:
    """Return whether a request may be repeated: a safe method (RFC 9110, section 9.2.1) without a body."""
    return call.method == b"GET" and call.length == 0
