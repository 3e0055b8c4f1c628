"""One session of ``liqod/1``: bytes in, events out, and the tables of which event may follow which.

Three verbs, no I/O: ``receive_data(bytes)``, ``next_event()`` until it returns NEED_DATA, ``send(event) -> bytes``.

Rule 1: everything that affects the state lives in this file, and most of it in the two tables.
Rule 2: the tables do not know which of the two parties we are; the same rules hold for us (LocalProtocolError) and them
(RemoteProtocolError).

Each party goes through SILENT -> GREETED -> TRUSTING, or to GONE from anywhere::

    dialer    SILENT --Hello--> GREETED --Welcome--> TRUSTING --(anything else)--> TRUSTING   GREETED --Join--> GREETED
    listener  SILENT --Hello--> GREETED --Welcome--> TRUSTING       Bye: from any of them to GONE

The listener sends its Hello after the dialer's; Join and Welcome come after both Hellos; everything else, Bye excepted,
requires both parties to be TRUSTING, that is, the session to be established.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from liqod.wire.codec import UnknownEvent, decode, encode
from liqod.wire.errors import LocalProtocolError, RemoteProtocolError
from liqod.wire.events import Bye, Event, Hello, Join, Welcome
from liqod.wire.framing import FrameBuffer, FrameLimits, frame

Role = Literal["dialer", "listener"]


class NeedData(enum.Enum):
    """The type of NEED_DATA."""

    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = NeedData.NEED_DATA
"""What ``next_event`` returns when the next event has not arrived in full."""


class SessionState(enum.Enum):
    """The state of a session, for its owner."""

    OPENING = "opening"
    """Not both have sent Hello."""
    JUDGING = "judging"
    """Both have sent Hello; not both have sent Welcome."""
    ESTABLISHED = "established"
    CLOSED = "closed"
    """One side sent Bye, or the peer broke the protocol."""


class Party(enum.IntEnum):
    """The state of one party."""

    SILENT = 0
    GREETED = 1
    TRUSTING = 2
    GONE = 3


_OTHER: Final = Event
"""The row of the tables for every event that has none of its own."""

# The next state of the party that sends an event. Absent: not allowed.
NEXT: Final[Mapping[Party, Mapping[type[Event], Party]]] = MappingProxyType(
    {
        Party.SILENT: {Hello: Party.GREETED, Bye: Party.GONE},
        Party.GREETED: {Join: Party.GREETED, Welcome: Party.TRUSTING, Bye: Party.GONE},
        Party.TRUSTING: {_OTHER: Party.TRUSTING, Bye: Party.GONE},
        Party.GONE: {},
    }
)
# The state that the other party must have reached before an event may be sent.
NEEDS: Final[Mapping[tuple[Role, type[Event]], Party]] = MappingProxyType(
    {
        ("dialer", Hello): Party.SILENT,
        ("listener", Hello): Party.GREETED,
        ("dialer", Welcome): Party.GREETED,
        ("listener", Welcome): Party.GREETED,
        ("dialer", Join): Party.GREETED,
        ("listener", Join): Party.GONE,  # never: the dialer is the one with a token
        ("dialer", Bye): Party.SILENT,
        ("listener", Bye): Party.SILENT,
        ("dialer", _OTHER): Party.TRUSTING,
        ("listener", _OTHER): Party.TRUSTING,
    }
)
_ROWS: Final = (Hello, Join, Welcome, Bye)


class SessionProtocol:
    """The protocol of one connection, seen from one end."""

    def __init__(self, role: Role, limits: FrameLimits | None = None) -> None:
        self.role: Role = role
        self.peer_role: Role = "listener" if role == "dialer" else "dialer"
        self.limits = limits if limits is not None else FrameLimits()
        self.hello: Hello | None = None
        """Our own Hello."""
        self.peer_hello: Hello | None = None
        """The peer's Hello: claims, until its key is authenticated."""
        self._we = Party.SILENT
        self._they = Party.SILENT
        self._buffer = FrameBuffer(self.limits)
        self._error: RemoteProtocolError | None = None
        self._final_bye_sent = False

    @property
    def state(self) -> SessionState:
        if self._error is not None or Party.GONE in (self._we, self._they):
            return SessionState.CLOSED
        if self._we is self._they is Party.TRUSTING:
            return SessionState.ESTABLISHED
        if Party.SILENT in (self._we, self._they):
            return SessionState.OPENING
        return SessionState.JUDGING

    @property
    def minor(self) -> int | None:
        """The minor version both speak (the highest), once both have sent Hello; None when there is none."""
        if self.hello is None or self.peer_hello is None:
            return None
        highest = min(self.hello.max_minor, self.peer_hello.max_minor)
        return highest if highest >= max(self.hello.min_minor, self.peer_hello.min_minor) else None

    @property
    def features(self) -> frozenset[str]:
        """The features of both, once both have sent Hello."""
        if self.hello is None or self.peer_hello is None:
            return frozenset()
        return frozenset(self.hello.features) & frozenset(self.peer_hello.features)

    def welcome(self) -> Welcome:
        """Return the Welcome that matches both Hellos; raises LocalProtocolError before there are both."""
        minor = self.minor
        if minor is None:
            raise LocalProtocolError("there is no common minor version yet: Welcome needs both Hellos")
        return Welcome(minor, sorted(self.features))

    def receive_data(self, data: bytes) -> None:
        """Feed bytes from the peer; after the end of the session they are dropped.

        Errors in them are raised by ``next_event``.
        """
        if self.state is SessionState.CLOSED:
            return
        try:
            self._buffer.feed(data)
        except RemoteProtocolError as error:
            self._fail(error)

    def next_event(self) -> Event | UnknownEvent | NeedData:
        """Return the peer's next event, or NEED_DATA.

        Raises RemoteProtocolError, and nothing else, when the peer broke the protocol; the session is closed then, and
        the same error is raised every time after.
        """
        if self._error is not None:
            raise self._error
        if self.state is SessionState.CLOSED:
            return NEED_DATA
        try:
            # Decoding a frame of nested arrays costs 0.4 us a byte: a stranger's must be small.
            payload = self._buffer.take(trusted=self._we is Party.TRUSTING)
            if payload is None:
                return NEED_DATA
            event = decode(payload, self.limits)
            following = self._step_of_peer(event)
            if isinstance(event, Hello):
                self._received_hello(event)
        except RemoteProtocolError as error:
            self._fail(error)
            raise
        self._they = following
        if isinstance(event, Bye):
            self._buffer.clear()
        return event

    def send(self, event: Event) -> bytes:
        """Return the bytes of an event for the peer.

        Raises LocalProtocolError, with the session unchanged, when the event is not allowed now or would be refused.
        """
        if self._error is not None:
            raise LocalProtocolError("the session ended with the peer's error; only final_bye may follow")
        row = _row(type(event))
        following = NEXT[self._we].get(row)
        if following is None or self._they is Party.GONE or self._they < NEEDS[self.role, row]:
            raise LocalProtocolError(f"{type(event).__name__} may not be sent while the session is {self.state.value}")
        if event.since > (self.minor or 0):
            raise LocalProtocolError(f"the peer does not know {type(event).__name__}: it came with minor {event.since}")
        if isinstance(event, Welcome) and not self._is_agreed(event):
            raise LocalProtocolError("Welcome differs from what both Hellos allow: use SessionProtocol.welcome()")
        data = frame(encode(event, self.limits))
        self._we = following
        if isinstance(event, Hello):
            self.hello = event
        if isinstance(event, Bye):
            self._buffer.clear()
        return data

    def final_bye(self) -> bytes:
        """Return, once, the Bye with the reason of a protocol error of the peer; empty when there is none to send."""
        if self._error is None or self._final_bye_sent or self._we is Party.GONE:
            return b""
        self._final_bye_sent = True
        return frame(encode(Bye(self._error.reason, self._error.message), self.limits))

    def _step_of_peer(self, event: Event | UnknownEvent) -> Party:
        row = _OTHER if isinstance(event, UnknownEvent) else _row(type(event))
        name = f"event {event.number}" if isinstance(event, UnknownEvent) else type(event).__name__
        following = NEXT[self._they].get(row)
        if following is None or self._we < NEEDS[self.peer_role, row]:
            raise RemoteProtocolError("OutOfOrder", f"{name} came while the session was {self.state.value}")
        if isinstance(event, Welcome) and not self._is_agreed(event):
            raise RemoteProtocolError("WelcomeDiffers", "Welcome names another minor or feature than both Hellos allow")
        return following

    def _received_hello(self, hello: Hello) -> None:
        self.peer_hello = hello
        if self.hello is not None and self.minor is None:
            raise RemoteProtocolError(
                "NoCommonMinor",
                f"they speak liqod/1 minors {hello.min_minor} to {hello.max_minor}, we "
                f"{self.hello.min_minor} to {self.hello.max_minor}: upgrade the older of the two clusters",
            )

    def _is_agreed(self, welcome: Welcome) -> bool:
        return welcome.minor == self.minor and self.features.issuperset(welcome.features)

    def _fail(self, error: RemoteProtocolError) -> None:
        self._error = error
        self._buffer.clear()


def _row(kind: type[Event]) -> type[Event]:
    return kind if kind in _ROWS else _OTHER
