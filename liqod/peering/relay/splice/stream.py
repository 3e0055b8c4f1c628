"""One end of a stream: what it receives is written at the other end, unread, as fast as that is read there.

Nothing is buffered but what the sockets have and, before two ends are joined, ``MAX_AHEAD``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.share import Share
from liqod.flow.timer import Timer
from liqod.peering.relay.splice.limits import BURST, MAX_AHEAD, RATE, SILENT, UNREAD, is_tls
from liqod.peering.session.usage import LONGEST, PeerUsage

LINGER: Final = 15.0
"""Seconds that a closing end has to send what was written."""


class StreamBudget:
    """What passes by all streams of one peer: bytes, and time of the event loop."""

    def __init__(self, clock: IReactorTime, usage: PeerUsage) -> None:
        self._clock = clock
        self._usage = usage
        self._share = Share(float(RATE), float(BURST))

    def passed(self, length: int, began: float) -> float:
        """Count bytes that were passed on since a time; return the seconds for which no more are read."""
        now = self._clock.seconds()
        self._share.take(float(length), now)
        self._usage.worked(now - began, now)
        return max(min(self._share.wait(now), LONGEST), self._usage.hold(now))


@implementer(IPushProducer)
class StreamEnd(TwistedProtocol):
    """One of two ends; ``closed`` is called once, when its connection is lost."""

    transport: Any

    def __init__(
        self, clock: IReactorTime, budget: StreamBudget, closed: Callable[[StreamEnd], object] = lambda _: None
    ) -> None:
        self.is_over = False
        self.clock = clock
        self.limit = Timer(clock)
        """Until when something has to happen: the first byte, a stream, the end of silence, of a closing."""
        self._budget = budget
        self._closed = closed
        self._other: StreamEnd | None = None
        self.active_at = 0.0
        self._held: set[str] = set()
        self._is_slow = False
        self._turn = Timer(clock)
        self._unread = Timer(clock)

    @property
    def is_joined(self) -> bool:
        """Whether there is another end."""
        return self._other is not None

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and used by nobody."""
        return not (self.is_over or self.is_joined)

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)
        self.opened()

    def opened(self) -> None:
        """Begin to wait; called when there is a connection."""

    def early(self, data: bytes) -> None:
        """Take what came before there was another end."""
        self.abort()

    def dataReceived(self, data: bytes) -> None:
        if self.is_over:
            return
        other = self._other
        if other is None:
            self.early(data)
            return
        began = self.active_at = self.clock.seconds()
        other.transport.write(data)
        wait = self._budget.passed(len(data), began)
        if wait > 0 and not self._turn.running:
            self.hold("share", True)
            self._turn.start(wait, self.hold, "share", False)

    def meet(self, other: StreamEnd) -> None:
        """Pass on to another end from now on."""
        self._other = other
        self.active_at = self.clock.seconds()
        self.limit.start(SILENT, self._look, other)
        other.hold("reader", self._is_slow)
        self.hold("early", False)

    def _look(self, other: StreamEnd) -> None:
        left = max(self.active_at, other.active_at) + SILENT - self.clock.seconds()
        if left > 0:
            self.limit.start(left, self._look, other)
        else:
            self.abort()

    # Closing.

    def end(self) -> None:
        """Close after what was written is sent; the other end likewise."""
        if self.is_over:
            return
        other = self._stop()
        if self.transport is not None and self.transport.connected:
            self.transport.unregisterProducer()
            # loseConnection waits until all is written, without a limit where nothing is read.
            self.limit.start(LINGER, self._cut)
            self.transport.loseConnection()
        if other is not None:
            other.end()

    def abort(self) -> None:
        """Close at once, the other end as well."""
        other = self._stop()
        self._cut()
        if other is not None:
            other.abort()

    def _stop(self) -> StreamEnd | None:
        self.is_over = True
        for timer in (self.limit, self._turn, self._unread):
            timer.cancel()
        # A paused transport does not notice that the connection was closed.
        for why in tuple(self._held):
            self.hold(why, False)
        other, self._other = self._other, None
        return other

    def _cut(self) -> None:
        if self.transport is not None and self.transport.connected:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._held.clear()
        other = self._stop()
        if other is not None:
            other.end()
        self._closed(self)

    # IPushProducer: this end's transport says whether what is written to it is read.

    def pauseProducing(self) -> None:
        self._is_slow = True
        self._unread.start_unless_running(UNREAD, self.abort)
        if self._other is not None:
            self._other.hold("reader", True)

    def resumeProducing(self) -> None:
        self._is_slow = False
        self._unread.cancel()
        if self._other is not None:
            self._other.hold("reader", False)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    def hold(self, why: str, held: bool) -> None:
        """Read nothing from this end while there is any reason not to."""
        before = bool(self._held)
        (self._held.add if held else self._held.discard)(why)
        if bool(self._held) != before and self.transport is not None and self.transport.connected:
            (self.transport.pauseProducing if self._held else self.transport.resumeProducing)()


class FirstSpeaker(StreamEnd):
    """An end whose first bytes, a ClientHello, make that another end is looked for; ``spoke`` is called with them."""

    def __init__(
        self,
        clock: IReactorTime,
        budget: StreamBudget,
        closed: Callable[[StreamEnd], object],
        spoke: Callable[[FirstSpeaker], object],
    ) -> None:
        super().__init__(clock, budget, closed)
        self._spoke = spoke
        self._ahead = b""

    @property
    def has_spoken(self) -> bool:
        """Whether anything has come."""
        return bool(self._ahead) or self.is_joined

    @property
    def is_idle(self) -> bool:
        return not (self.is_over or self.has_spoken)

    def early(self, data: bytes) -> None:
        is_first = not self._ahead
        self._ahead += data
        if (is_first and not is_tls(data)) or len(self._ahead) > MAX_AHEAD:
            self.abort()
        elif is_first:
            self.hold("early", True)
            self._spoke(self)

    def join(self, other: StreamEnd) -> None:
        """Join another end, which gets first what came before."""
        ahead, self._ahead = self._ahead, b""
        other.transport.write(ahead)
        self._budget.passed(len(ahead), self.clock.seconds())
        # Each end knows the other one before either reads on.
        other.meet(self)
        self.meet(other)


class Refused(TwistedProtocol):
    """A connection that is closed as soon as it is one."""

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()
