"""The Twisted protocol of one connection with a peer: bytes <-> ``SessionProtocol``, time-outs, and flow control.

Nothing is sent before the TLS handshake is complete and the peer's certificate was read; only Hello, Join and Bye are
exchanged before the owner authenticated the peer's key. A connection ends in exactly one ``closed`` call to its owner.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IHandshakeListener, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.aligned_timer import in_step
from liqod.flow.timer import Timer
from liqod.identity.tls import EXPORTER, PeerCertificate, PeerTLS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from liqod.peering.session.liveness import Heartbeat
from liqod.peering.session.usage import PeerUsage
from liqod.wire.check import plain
from liqod.wire.codec import UnknownEvent
from liqod.wire.errors import RemoteProtocolError
from liqod.wire.events import Bye, Event, Hello, Join, Ping, Pong, Unsupported
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState

JOINING: Final = "joining"
"""The feature in a dialer's Hello that announces a Join: authentication waits for it."""
RELAY: Final = "relay"
"""The feature in a Hello whose sender can reach an API server over the peers' port."""
SPLICE: Final = "splice"
"""The feature in a Hello whose sender joins a stream of the relay with one of its API server, byte by byte."""
SLOW_READER: Final = 30.0
"""Seconds in which a peer must have read all that waits for it; otherwise it is disconnected."""
CLOSING: Final = 2.0
"""Seconds from our last event until the connection is aborted if the peer does not close it."""
PROBE: Final = 2.0
"""Seconds in which a probe must be answered."""
MAX_RATE: Final = 1000
"""Events per second that a peer may send; a normal peer sends a few."""
MAX_UNREAD: Final = 1024 * 1024
"""Bytes that are buffered at most for a peer that does not read."""


class Times(Protocol):
    """The settings of a connection."""

    @property
    def ping_interval(self) -> float: ...
    @property
    def handshake_timeout(self) -> float: ...


class Owner(Protocol):
    """Authenticates connections and receives their events."""

    def hello(self, connection: PeerConnection) -> Hello:
        """Return our Hello, the first event."""

    def join(self, connection: PeerConnection) -> Join | None:
        """Return a dialer's proof of its pairing token, None without a token."""

    async def authenticate(self, connection: PeerConnection, hello: Hello, join: Join | None) -> Bye | None:
        """Return None to trust the peer, or the Bye to send before the connection is closed."""

    def established(self, connection: PeerConnection) -> None:
        """Both sides trust each other: all events are allowed."""

    def received(self, connection: PeerConnection, event: Event) -> None:
        """An event was received in an established session."""

    def closed(self, connection: PeerConnection) -> None:
        """The connection was closed; ``connection.ending`` is the reason."""


@implementer(IHandshakeListener, IPushProducer)
class PeerConnection(TwistedProtocol):
    """The protocol of one connection; ``address`` is the peer's, for messages.

    ``expected`` and ``expected_key`` are the dialled cluster and fingerprint, None and empty when unknown. ``ending``
    is the Bye that ended the connection, ours or the peer's (``ended_by_peer``), or one that describes the failure of
    the network.
    """

    _log = Logger()

    def __init__(
        self,
        role: Literal["dialer", "listener"],
        owner: Owner,
        *,
        tls: PeerTLS,
        clock: IReactorTime,
        times: Times,
        address: str = "",
        expected: ClusterID | None = None,
        expected_key: str = "",
    ) -> None:
        self.role: Literal["dialer", "listener"] = role
        self.address = address
        self.expected = expected
        self.expected_key = expected_key
        self.certificate: PeerCertificate | None = None
        self.own_key: Fingerprint | None = None
        """The key of ours that the connection was opened with; it keeps it when the cluster uses another one."""
        self.ending: Bye | None = None
        self.ended_by_peer = False
        self.established_at: float | None = None
        self.heartbeat = Heartbeat()
        self.token_id = ""
        """Which pairing token of the peer's was sent over it; empty: none."""
        self.usage: PeerUsage | None = None
        """What the peer of an established session takes: of one that had its share nothing is read for a while."""
        self.writable = True
        self._owner = owner
        self._tls = tls
        self._clock = clock
        self._times = times
        self._session = SessionProtocol(role)
        self._deadline = Timer(clock)
        """By when the session must be established, a probe be answered or the connection be closed."""
        self._unread_until = Timer(clock)
        self._beat = Timer(clock)
        self._held = Timer(clock)
        self._authenticating: Deferred[Any] | None = None
        self._over = False
        self._unread = 0
        self._rate: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        return f"<{self.role} connection with {self.peer_id or 'nobody yet'} at {self.address}>"

    @property
    def peer_id(self) -> ClusterID | None:
        """The cluster ID that the peer claims; unauthenticated until ``established``."""
        hello = self._session.peer_hello
        return ClusterID(hello.cluster_id) if hello is not None else None

    @property
    def peer_hello(self) -> Hello | None:
        return self._session.peer_hello

    @property
    def established(self) -> bool:
        return self._session.state is SessionState.ESTABLISHED and not self._over

    # Called by the transport.

    def connectionMade(self) -> None:
        # Twisted calls this when TCP is open, before the TLS handshake: the peer is unknown here.
        self.own_key = self._tls.keypair.fingerprint
        bye = Bye("HandshakeTimeout", "the session was not established in time")
        self._deadline.start(self._times.handshake_timeout, self._cut, bye)

    # Once in a connection: TLS 1.3 has no renegotiation (RFC 8446, section 4.1.2).
    def handshakeCompleted(self) -> None:
        try:
            self.certificate = self._tls.peer_certificate(self.transport)
        except Refusal as refusal:
            self._cut(Bye(refusal.reason, plain(refusal.message)))
            return
        if self.expected_key and self.certificate.fingerprint != self.expected_key:
            # Closed before anything is sent: a peer with another key learns nothing about us, not even the cluster ID.
            self._cut(Bye("UnexpectedKey", f"another key than the expected one answers at {self.address}"))
            return
        # From here on the transport pauses this producer while more than its buffer waits to be sent.
        cast(Any, self.transport).registerProducer(self, True)
        if self.role == "dialer":
            self._write(self._session.send(self._owner.hello(self)))

    def dataReceived(self, data: bytes) -> None:
        # Twisted may deliver data that was buffered before loseConnection: it is ignored.
        if self.certificate is None or self._over:
            return
        began = self._clock.seconds()
        self._read(data)
        if self.usage is not None:
            now = self._clock.seconds()
            self.usage.worked(now - began, now)
            if not self._over and not self._held.running and (wait := self.usage.hold(now)) > 0:
                cast(Any, self.transport).pauseProducing()
                self._held.start(wait, cast(Any, self.transport).resumeProducing)

    def _read(self, data: bytes) -> None:
        self._session.receive_data(data)
        try:
            while not self._over:
                event = self._session.next_event()
                if event is NEED_DATA:
                    return
                self._dispatch(event)
        except RemoteProtocolError as error:
            self._write(self._session.final_bye())
            self._cut(Bye(error.reason, plain(error.message)), gently=True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        refusal = self._tls.refusal(self.transport) if self.ending is None else None
        if refusal is not None:
            self.ending = Bye(refusal.reason, plain(refusal.message))
        if self.ending is None:
            kind = "ConnectionLost" if self.certificate is not None else "HandshakeFailed"
            self.ending = Bye(kind, plain(f"the connection with {self.address} broke: {reason.value}"))
        self._cancel_timers()
        self._over = True
        if self._authenticating is not None:
            self._authenticating.cancel()
        self._owner.closed(self)

    # IPushProducer: the transport pauses this producer while the peer does not read.

    def pauseProducing(self) -> None:
        if self.writable and not self._over:
            self.writable = False
            bye = Bye("SlowReader", "the peer did not read what was sent to it")
            self._unread_until.start(SLOW_READER, self._cut, bye)

    def resumeProducing(self) -> None:
        self.writable = True
        self._unread = 0
        self._unread_until.cancel()

    def stopProducing(self) -> None:
        self.writable = False

    # Called by the owner.

    def send(self, event: Event) -> bool:
        """Send an event in an established session; returns False without one, or if the peer is of an older minor."""
        if not self.established or event.since > self.minor:
            return False
        data = self._session.send(event)
        if not self.writable:
            self._unread += len(data)
            if self._unread > MAX_UNREAD:
                self._cut(Bye("SlowReader", f"{self._unread} bytes wait for a peer that does not read"))
                return False
        self._write(data)
        return True

    def end(self, bye: Bye) -> None:
        """Send a Bye, and close."""
        if self._over:
            return
        if self.certificate is not None and self._session.state is not SessionState.CLOSED:
            # liqod/1 allows Bye at any time, also before Hello.
            self._write(self._session.send(bye))
        self._cut(bye, gently=True)

    def abort(self, bye: Bye) -> None:
        """Close at once, without a Bye."""
        self._cut(bye)

    def evict(self, reason: str, message: str) -> None:
        """Close at once to free a slot of the connection limits."""
        self._cut(Bye(reason, message))

    def hand_over(self) -> None:
        """Release the connection to another protocol, as agreed by ALPN; there was no session."""
        self._over = True
        self._cancel_timers()
        self.ending = Bye("NotNeeded", "the connection is for the relay or a stream")
        self._owner.closed(self)

    @property
    def minor(self) -> int:
        """The minor version of liqod/1 that both sides support, 0 before that is known."""
        return self._session.minor or 0

    def binding(self, purpose: bytes = EXPORTER) -> bytes:
        """Return 32 bytes of keying material of this TLS session for one purpose (RFC 5705)."""
        return self._tls.binding(self.transport, purpose)

    def probe(self) -> None:
        """Send a Ping now; without any event in time the connection is closed."""
        if self.established and self.writable and not self._deadline.running:
            self.send(Ping(0))
            bye = Bye("Unresponsive", "the peer did not answer a probe")
            self._deadline.start(PROBE, self._cut, bye)

    # Internal.

    def _dispatch(self, event: Event | UnknownEvent) -> None:
        self._note_activity()
        if self.usage is not None:
            self.usage.events += 1
        match event:
            case UnknownEvent(number=number):
                self.send(Unsupported(number))
            case Hello():
                self._hello_received(event)
            case Join():
                hello = self.peer_hello
                if hello is not None and JOINING in hello.features and self._authenticating is None:
                    self._start_authentication(hello, event)
            case Bye():
                self.ended_by_peer = True
                self._cut(event, gently=True)
            case Ping(payload=payload):
                self.send(Pong(payload))
            case _:
                if self._session.state is not SessionState.ESTABLISHED:
                    return  # a Welcome that waits for our own authentication of the peer
                if self.established_at is None:
                    self._establish()
                elif not isinstance(event, Pong | Unsupported):
                    self._owner.received(self, event)

    def _hello_received(self, hello: Hello) -> None:
        if self.role == "listener":
            self._write(self._session.send(self._owner.hello(self)))
            if self._session.minor is None:
                self.end(Bye("NoCommonMinor", "there is no minor version of liqod/1 that both of us speak"))
                return
        if self.role == "dialer" or JOINING not in hello.features:
            self._start_authentication(hello, None)

    def _start_authentication(self, hello: Hello, join: Join | None) -> None:
        self._authenticating = Deferred.fromCoroutine(self._authenticate(hello, join))
        self._authenticating.addErrback(self._authentication_failed)

    async def _authenticate(self, hello: Hello, join: Join | None) -> None:
        bye = await self._owner.authenticate(self, hello, join)
        if self._over:
            return
        if bye is not None:
            self.end(bye)
            return
        own = self._session.hello
        if self.role == "dialer" and own is not None and JOINING in own.features:
            introduction = self._owner.join(self)
            if introduction is None:
                self.end(Bye("Duplicate", "the invitation was used meanwhile"))
                return
            self.token_id = introduction.token
            self._write(self._session.send(introduction))
        self._write(self._session.send(self._session.welcome()))
        if self.established and self.established_at is None:
            self._establish()

    def _authentication_failed(self, failure: Failure) -> None:
        if failure.check(CancelledError) and self._over:
            return
        self._log.failure("authenticating {peer} failed", failure, peer=self.peer_id)
        self.end(Bye("Internal", "an error in the daemon of the other cluster; its log has it", 5.0))

    def _establish(self) -> None:
        self._deadline.cancel()
        self.established_at = self._clock.seconds()
        self._arm_beat()
        self._owner.established(self)

    def _pass_beat(self) -> None:
        self.heartbeat = self.heartbeat.beat()
        if self.heartbeat.dead:
            self._cut(Bye("Unresponsive", "the peer answered none of three pings"))
            return
        # The listener pings, which shows the dialer that it is alive; a dialer that receives nothing pings too.
        if self.writable and (self.role == "listener" or self.heartbeat.missed):
            self.send(Ping(self.heartbeat.missed))
        self._arm_beat()

    def _arm_beat(self) -> None:
        every = self._times.ping_interval
        # Shifted against the listener's beats: its Ping arrives well before the dialer's next beat.
        shift = every / 8 if self.role == "dialer" else 0.0
        wait = in_step(self._clock.seconds(), every, shift)
        self._beat.start(wait, self._pass_beat)

    def _note_activity(self) -> None:
        self.heartbeat = self.heartbeat.note_activity()
        if self.established_at is not None:
            self._deadline.cancel()  # a probe was answered
        second = int(self._clock.seconds())
        self._rate = (second, self._rate[1] + 1) if self._rate[0] == second else (second, 1)
        if self._rate[1] > MAX_RATE:
            self.end(Bye("TooFast", f"more than {MAX_RATE} events in a second", 60.0))

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._unread_until, self._beat, self._held):
            timer.cancel()

    def _write(self, data: bytes) -> None:
        if data:
            cast(Any, self.transport).write(data)

    def _cut(self, ending: Bye, *, gently: bool = False) -> None:
        """End the connection; ``gently`` flushes the written bytes first, for a bounded time."""
        if self._over:
            return
        self._over = True
        if self.ending is None:
            self.ending = ending
        transport = cast(Any, self.transport)
        if self._held.running:
            # A paused transport does not notice that the connection was closed.
            transport.resumeProducing()
        self._cancel_timers()
        if self.certificate is not None:
            transport.unregisterProducer()
        if gently and self.writable:
            # loseConnection waits until the write buffer is empty, without a limit if the peer does not read.
            self._deadline.start(CLOSING, transport.abortConnection)
            transport.loseConnection()
        else:
            transport.abortConnection()
