"""One end of an HTTP/1.1 connection, without I/O: bytes in, events out; events in, bytes out.

h11 parses, serializes, and tracks the protocol state. What it would repair is refused first (``grammar``), and what it
would not limit is bounded here. Bodies are streamed: only an incomplete head or chunk frame, and the bytes after the
current message, are buffered.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs
import h11

from liqod.http1 import grammar
from liqod.http1.errors import Malformed

Event = h11.Request | h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage

_EVENTS: Final = (h11.Request, h11.Response, h11.InformationalResponse, h11.Data, h11.EndOfMessage)
_HEADS: Final = frozenset((h11.IDLE, h11.SEND_RESPONSE))
_FRAME: Final = grammar.MAX_SIZE_DIGITS + 6
"""Bytes of the longest frame: the end of the chunk before, a size, an empty line."""


@attrs.frozen
class Limits:
    """Limits of a message: bytes and lines of the head; bytes and chunks of a request's body."""

    head: int = 64 << 10
    headers: int = 64
    body: int = 4 << 20
    # A chunk costs far more time than its bytes; clients send kilobytes in each.
    chunks: int = 16 << 10


class Connection:
    """One end of a connection; ``role`` is ours. After Malformed nothing is read; a server may still answer once."""

    def __init__(self, role: Literal["client", "server"], limits: Limits) -> None:
        self._is_server = role == "server"
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER if self._is_server else h11.CLIENT, limits.head + 4)
        self._failure: Malformed | None = None
        # Whether a chunk's frame comes next, and what was announced of the body so far.
        self._frame_next = False
        self._chunks = 0
        self._announced = 0

    # Reading.

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer; ``next_event`` reads them."""
        if data:
            self._h11.receive_data(data)

    def receive_eof(self) -> None:
        """Record that the peer closed the connection: a body without a length is complete (RFC 9112, section 6.3)."""
        self._h11.receive_data(b"")

    def next_event(self) -> Event | None:
        """Return what comes next, None until there is more data or, after the end of a message, the next cycle.

        Raises Malformed, and does so again at each call after that.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._next_event()
        except Malformed as failure:
            self._failure = failure
            raise
        except h11.RemoteProtocolError as error:
            # The text after the colon quotes the message, which may hold credentials.
            self._failure = Malformed(400, f"the message is not HTTP/1.1: {str(error).partition(':')[0]}")
            raise self._failure from None

    def _next_event(self) -> Event | None:
        state = self._h11.their_state
        length: int | None = 0
        if state in _HEADS:
            data = self.unread
            if not self._is_server and state is h11.IDLE:
                if data:
                    raise Malformed(502, "an answer came to a request that was not sent")
                return None
            end = grammar.head_end(data, self._limits.head)
            if not end:
                return None
            check = grammar.check_request_head if self._is_server else grammar.check_response_head
            length = check(data[:end], self._limits.headers)
        elif state is not h11.SEND_BODY or (self._frame_next and not self._take_frame()):
            return None
        event = self._h11.next_event()
        if isinstance(event, h11.Data):
            self._frame_next = bool(event.chunk_end)
        elif isinstance(event, h11.Request):
            self._begin_request(length)
        elif isinstance(event, h11.Response):
            self._chunks = 0
            # These have no body, regardless of their headers (RFC 9112, section 6.3).
            self._frame_next = length is None and event.status_code not in (204, 304)
        return event if isinstance(event, _EVENTS) else None

    def _begin_request(self, length: int | None) -> None:
        self._chunks = self._announced = 0
        self._frame_next = length is None
        if length is not None and length > self._limits.body:
            raise self._too_large()

    def _take_frame(self) -> bool:
        """Check the frame of the next chunk; returns whether it is complete."""
        size = grammar.chunk_size(self.unread[:_FRAME], first=self._chunks == 0)
        if size is None:
            return False
        self._frame_next = False
        self._chunks += 1
        if self._is_server:
            self._announced += size
            if self._announced > self._limits.body:
                raise self._too_large()
            if self._chunks > self._limits.chunks:
                raise Malformed(400, f"a request has at most {self._limits.chunks} chunks")
        return True

    def _too_large(self) -> Malformed:
        return Malformed(413, f"a request has at most {self._limits.body} bytes")

    @property
    def unread(self) -> bytes:
        """What was received and not yet read: of a head, of a frame, or what follows the message or the switch."""
        return self._h11.trailing_data[0]

    # Writing.

    def send(self, *events: Event) -> bytes:
        """Return the bytes of events; raises ValueError for what is no HTTP, or not our turn to send."""
        try:
            return b"".join([self._h11.send(event) or b"" for event in events])
        except h11.LocalProtocolError:
            # Not quoted: headers hold credentials.
            raise ValueError("this is no HTTP/1.1, or not ours to send now") from None

    def start_next_cycle(self) -> bool:
        """Go on with the next request; returns False where the connection must end instead.

        It must where either side said so or closed, or where a message is not complete.
        """
        complete = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if not complete or self._h11.trailing_data[1]:
            return False
        self._h11.start_next_cycle()
        return True
