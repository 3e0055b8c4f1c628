"""One connection of a borrower: its requests, one after another, each passed on and answered; or one tunnel.

Bytes are held for as long as the other side takes to read them, never more than the buffers of the two sockets and
``MAX_AHEAD``. Bodies are not looked at; where they end is all that matters here.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.model.ids import ClusterID
from liqod.peering.relay import framing, heads
from liqod.peering.relay.framing import Body, UntilClosed
from liqod.peering.relay.heads import BadHead, Header, RequestHead
from liqod.peering.relay.statuses import status
from liqod.peering.relay.upstream import LINGER, Upstream

IDLE: Final = 120.0
"""Seconds that an unused connection is kept; borrowers close theirs after 60."""
HEAD: Final = 10.0
"""Seconds from the first byte of a head to its last."""
STALLED: Final = 60.0
"""Seconds that a body may take to go on."""
TUNNEL: Final = 4 * 3600.0
"""Seconds of silence after which a tunnel is closed: the kubelet's own ``streamingConnectionIdleTimeout``."""
MAX_AHEAD: Final = 64 << 10
"""Bytes that are taken of what follows the request at hand."""


class Gate(Protocol):
    """Who decides about requests, and has the connections to the API server."""

    @property
    def clock(self) -> IReactorTime: ...

    def admit(self, channel: Channel, head: RequestHead) -> str:
        """Return the user to act as; raises BadHead for a request that is not passed on."""
        ...

    def refused(self, channel: Channel, bad: BadHead) -> None:
        """A request was not passed on."""

    def answered(self, channel: Channel, head: RequestHead, code: int) -> None:
        """The API server answered a request."""

    def own_headers(self, user: str) -> list[Header]:
        """Return the headers of the daemon's own: Host, credentials, the user to act as."""
        ...

    @property
    def base(self) -> bytes:
        """The path of the API server's URL, without a last ``/``."""
        ...

    def idle(self) -> Upstream | None:
        """Return an open connection that nobody uses."""
        ...

    def open(self) -> Deferred[Upstream]:
        """Open a connection."""
        ...

    def release(self, upstream: Upstream) -> None:
        """Take a connection back."""

    def gone(self, channel: Channel) -> None:
        """A borrower's connection is over."""


@implementer(IPushProducer)
class Channel(TwistedProtocol):
    """The borrower's end; ``caller`` was proven by its key before the first byte was read."""

    transport: Any

    def __init__(self, gate: Gate, caller: ClusterID, fingerprint: str, address: str) -> None:
        self.caller = caller
        self.fingerprint = fingerprint
        self.address = address
        self._gate = gate
        self._ahead = bytearray()
        self._early = bytearray()
        self._head: RequestHead | None = None
        self._sent: bytes = b""
        self._body: Body | None = None
        self._answer: Body | None = None
        self._close = False
        self._up: Upstream | None = None
        self._opening: Deferred[Upstream] | None = None
        self._tunnel = False
        self._over = False
        self._slow = False
        self._held: set[str] = set()
        self._until: float | None = None
        self._timer: IDelayedCall | None = None
        self._heading = False

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._head is not None

    # What the borrower sends.

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)
        self._wait(IDLE)

    def dataReceived(self, data: bytes) -> None:
        if self._over:
            return
        if self._tunnel and self._up is not None:
            self._wait(TUNNEL)
            self._up.write(data)
            return
        self._ahead += data
        self._advance()

    def _advance(self) -> None:
        try:
            while self._ahead and not self._over and not self._tunnel and self._step():
                pass
        except BadHead as bad:
            self._refuse(bad)
        self._hold("ahead", len(self._ahead) > MAX_AHEAD)

    def _step(self) -> bool:
        """Take what comes next of the requests; returns whether there may be more to take."""
        if self._head is None:
            return self._begin()
        if self._body is None or self._body.done or self._up is None:
            return False
        data = bytes(self._ahead)
        taken = self._body.take(data)
        self._up.write(data[:taken])
        del self._ahead[:taken]
        self._wait(None if self._body.done else STALLED)
        return True

    def _begin(self) -> bool:
        end = heads.split(self._ahead)
        if not end:
            if not self._heading:
                self._heading = True
                self._wait(HEAD)
            return False
        self._heading = False
        raw = bytes(self._ahead[:end])
        del self._ahead[:end]
        head = heads.parse_request(raw)
        try:
            user = self._gate.admit(self, head)
        except BadHead as bad:
            self._refuse(bad, keep=head.length == 0 and not head.upgrade and not head.close)
            return True
        self._head, self._close = head, head.close
        self._body = framing.body_of_request(head, heads.MAX_BODY)
        self._wait(None if self._body.done else STALLED)
        self._sent = heads.request(self._gate.base, head, self._gate.own_headers(user))
        upstream = self._gate.idle()
        if upstream is not None:
            self._use(upstream)
        else:
            self._open()
        return True

    def _open(self) -> None:
        self._opening = self._gate.open()
        self._opening.addCallbacks(self._opened, self._not_opened)

    def _opened(self, upstream: Upstream) -> None:
        self._opening = None
        if self._over:
            upstream.abort()
            return
        self._use(upstream)
        self._advance()

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if not self._over and not failure.check(CancelledError):
            # The error may name addresses of this cluster: the daemon's log is the place for them.
            self._refuse(BadHead(502, "RelayApiUnreachable", "the lender's API server does not answer its own daemon"))

    def _use(self, upstream: Upstream) -> None:
        self._up = upstream
        upstream.user = self
        upstream.pause(self._slow)
        upstream.write(self._sent)

    # What the API server sends.

    def from_upstream(self, data: bytes) -> None:
        """Pass on what the API server sent."""
        if self._tunnel:
            self._wait(TUNNEL)
            self.transport.write(data)
            return
        try:
            if self._answer is None:
                self._early += data
                self._read_answer()
            else:
                self._pass(b"", data)
        except BadHead as bad:
            self._refuse(BadHead(502, bad.reason, bad.message))

    def _read_answer(self) -> None:
        while self._answer is None and (end := heads.split(self._early)):
            raw = bytes(self._early[:end])
            del self._early[:end]
            answer = heads.parse_answer(raw)
            if answer.code < 200 and answer.code != 101:
                continue
            head, up = self._head, self._up
            if head is None or up is None:
                raise BadHead(502, "RelayBadAnswer", "the API server answered a request that was not sent")
            self._gate.answered(self, head, answer.code)
            if answer.code == 401:
                raise BadHead(502, "RelayApiUnauthorized", "the API server does not know the lender's own daemon")
            rest = bytes(self._early)
            self._early.clear()
            if answer.code == 101:
                if not head.upgrade:
                    raise BadHead(502, "RelayBadAnswer", "the API server switched protocols without being asked")
                self._switch(up, heads.answer(answer, close=False) + rest)
                return
            self._answer = framing.body_of_answer(answer)
            ends = isinstance(self._answer, UntilClosed)
            self._close = self._close or answer.close or ends or bool(head.upgrade) or not self._body_done
            self._pass(heads.answer(answer, close=self._close), rest)

    @property
    def _body_done(self) -> bool:
        return self._body is None or self._body.done

    def _pass(self, head: bytes, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            return
        taken = answer.take(data) if data else 0
        self.transport.write(head + data[:taken] if head else data[:taken])
        if answer.done:
            self._finish(clean=taken == len(data))

    def _finish(self, *, clean: bool) -> None:
        """An answer is complete: go on with the next request, or close."""
        up, self._up = self._up, None
        self._sent = b""
        if up is not None:
            up.user = None
            if clean and not self._close:
                self._gate.release(up)
            else:
                up.close()
        self._head = self._body = self._answer = None
        if self._close:
            self.end()
            return
        self._hold("api", False)
        self._wait(IDLE)
        if self._ahead:
            self._advance()

    def _switch(self, up: Upstream, answer: bytes) -> None:
        """From here on bytes pass both ways, uninterpreted."""
        self._tunnel = True
        self._wait(TUNNEL)
        self.transport.write(answer)
        ahead = bytes(self._ahead)
        self._ahead.clear()
        self._hold("ahead", False)
        if ahead:
            up.write(ahead)

    def upstream_lost(self) -> None:
        """The connection to the API server is gone."""
        up, self._up = self._up, None
        head = self._head
        if self._over:
            return
        if self._tunnel or isinstance(self._answer, UntilClosed):
            self.end()
        elif self._answer is not None or head is None:
            # Cut off, so that the reader does not take a part for the whole.
            self.abort()
        elif up is not None and not up.fresh and head.method == b"GET" and not self._early:
            self._open()  # it was closed while it was idle; a GET may be sent again
        else:
            self._refuse(BadHead(502, "RelayApiUnreachable", "the lender's API server closed the connection"))

    def upstream_full(self, full: bool) -> None:
        """Whether the API server takes no more for now."""
        self._hold("api", full)

    # Refusals and ends.

    def _refuse(self, bad: BadHead, *, keep: bool = False) -> None:
        if self._over:
            return
        self._gate.refused(self, bad)
        if self._answer is not None:
            self.abort()
            return
        self.transport.write(heads.refusal(bad.code, status(bad), close=not keep))
        if not keep:
            self.end()

    def end(self) -> None:
        """Let what was written go out, and close."""
        if self._over:
            return
        self._stop()
        self.transport.unregisterProducer()
        self._timer = self._gate.clock.callLater(LINGER, self._cut)
        self.transport.loseConnection()

    def abort(self) -> None:
        """Close at once, on both sides."""
        self._stop()
        self._cut()

    def _stop(self) -> None:
        self._over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._opening is not None:
            self._opening.cancel()
        up, self._up = self._up, None
        if up is not None:
            if self._tunnel:
                up.close()
            else:
                up.abort()
        self._ahead.clear()
        # Unread, it would never see its own end.
        for why in tuple(self._held):
            self._hold(why, False)

    def _cut(self) -> None:
        if self.transport is not None and self.transport.connected:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._held.clear()
        self._stop()
        self._gate.gone(self)

    # Flow control: the transport pauses us while the borrower does not read.

    def pauseProducing(self) -> None:
        self._slow = True
        if self._up is not None:
            self._up.pause(True)

    def resumeProducing(self) -> None:
        self._slow = False
        if self._up is not None:
            self._up.pause(False)

    def stopProducing(self) -> None:
        """The connection is gone: that is told by ``connectionLost``."""

    def _hold(self, why: str, held: bool) -> None:
        """Read no more from the borrower while there is a reason not to."""
        before = bool(self._held)
        (self._held.add if held else self._held.discard)(why)
        if bool(self._held) != before:
            (self.transport.pauseProducing if self._held else self.transport.resumeProducing)()

    # Time: one timer, which is set anew only when it fires.

    def _wait(self, seconds: float | None) -> None:
        clock = self._gate.clock
        if seconds is None:
            self._until = None
            return
        self._until = until = clock.seconds() + seconds
        if self._timer is not None and self._timer.active():
            if self._timer.getTime() <= until:
                return
            self._timer.cancel()
        self._timer = clock.callLater(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._until is None or self._over:
            return
        left = self._until - self._gate.clock.seconds()
        if left > 0:
            self._timer = self._gate.clock.callLater(left, self._look)
        elif self._head is None and not self._heading:
            self.end()
        elif self._tunnel:
            self.abort()
        else:
            self._refuse(BadHead(408, "RelayBadRequest", "the request did not arrive in time"))
