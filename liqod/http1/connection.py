"""One end of an HTTP/1.1 connection, without I/O: bytes in, events out; events in, bytes out.

h11 parses heads and chunks. What it would repair is refused first (``grammar``), and what it would not limit is bounded
here. A body of known length needs no parser: its bytes are counted and passed on as they are. Bodies are streamed: only
an incomplete head or chunk frame, and the bytes after the current message, are buffered.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs
import h11

from liqod.http1 import grammar
from liqod.http1.errors import Malformed
from liqod.http1.messages import (
    NO_BODY,
    Data,
    EndOfMessage,
    Event,
    Header,
    InformationalResponse,
    Request,
    Response,
    tokens,
)

__all__ = ["Connection", "Event"]

_FRAME: Final = grammar.MAX_SIZE_DIGITS + 6
"""Bytes of the longest frame: the end of the chunk before, a size, an empty line."""
# h11 reads a response only after a request; these stand for ours. It accepts a 101 only if an upgrade was requested.
_ASKED: Final = h11.Request(method="GET", target="/", headers=[("Host", "x")])
_ASKED_UPGRADE: Final = h11.Request(
    method="GET", target="/", headers=[("Host", "x"), ("Connection", "Upgrade"), ("Upgrade", "x")]
)

State = Literal["head", "length", "chunked", "to close", "end", "done", "switched"]


@attrs.frozen
class MessageLimits:
    """Limits of a message: bytes and lines of the head; bytes and chunks of a request's body."""

    head: int = 64 << 10
    headers: int = 64
    body: int = 4 << 20
    # A chunk costs far more time than its bytes; clients send kilobytes in each.
    chunks: int = 16 << 10


class Connection:
    """One end of a connection; ``role`` is ours. After Malformed nothing is read; a server may still answer once."""

    def __init__(self, role: Literal["client", "server"], limits: MessageLimits) -> None:
        self._is_server = role == "server"
        self._limits = limits
        self._failure: Malformed | None = None
        self._data = b""
        # How much of it is known to hold no end of a head.
        self._searched = 0
        self._eof = False
        # Whether another message may follow on this connection.
        self._keep = True
        # The message that is read: its parser from the head on, where it is, the bytes left of a body of known length.
        self._parser: h11.Connection | None = None
        self._reading: State = "head"
        self._left = 0
        # The last headers of a request without a body: clients repeat them, so that only its first line is new.
        self._known: tuple[bytes, tuple[Header, ...]] = b"", ()
        # Whether a chunk's frame comes next, and what was announced of the body so far.
        self._frame_next = False
        self._chunks = 0
        self._announced = 0
        # The message that is sent.
        self._sending: State = "head"
        self._unsent = 0

    # Reading.

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer; ``next_event`` reads them."""
        self._data = self._data + data if self._data else data

    def receive_eof(self) -> None:
        """Record that the peer closed the connection: a body without a length is complete (RFC 9112, section 6.3)."""
        self._eof = True

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
        match self._reading:
            case "head":
                return self._read_head()
            case "length" | "to close" if self._data:
                return self._read_bytes()
            case "chunked":
                return self._read_chunk()
            case "end":
                self._reading = "done"
                return EndOfMessage()
            case "to close" if self._eof:
                self._reading = "done"
                return EndOfMessage()
        return None

    def _read_head(self) -> Event | None:
        if not self._is_server and self._sending == "head":
            if self._data:
                raise Malformed(502, "an answer came to a request that was not sent")
            return None
        end = grammar.head_end(self._data, self._limits.head, self._searched) if self._data else 0
        # A head that comes in crumbs is not searched from its beginning for each of them.
        self._searched = 0 if end else len(self._data)
        if not end:
            return None
        head, self._data = self._data[:end], self._data[end:]
        repeated = self._repeated_request(head) if self._is_server else None
        return repeated or self._parse_head(head)

    def _parse_head(self, head: bytes) -> Event:
        check = grammar.check_request_head if self._is_server else grammar.check_response_head
        length = check(head, self._limits.headers)
        self._parser = self._parser or h11.Connection(h11.SERVER, self._limits.head + 4)
        self._parser.receive_data(head)
        event = self._parser.next_event()
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                self._reading = "switched"
            return InformationalResponse(event.status_code, tuple(event.headers))
        if not isinstance(event, h11.Request | h11.Response):
            raise Malformed(400, "the head of a message is incomplete")
        headers: tuple[Header, ...] = tuple(event.headers)
        self._keep = self._keep and _is_kept(headers, event.http_version)
        self._chunks = self._announced = 0
        self._frame_next = length is None
        if isinstance(event, h11.Response):
            return self._begin_response(event, headers, length)
        self._begin_body(length)
        if length is not None and length > self._limits.body:
            raise self._too_large()
        if length == 0 and self._keep:
            self._known = head[head.index(b"\n") + 1 :], headers
        return Request(event.method, event.target, headers, length)

    def _begin_response(self, event: h11.Response, headers: tuple[Header, ...], length: int | None) -> Response:
        code = event.status_code
        if code in NO_BODY:
            length = 0
        elif length == 0 and not any(name == b"content-length" for name, _ in headers):
            self._reading, self._keep = "to close", False
            return Response(code, headers, None, event.http_version, to_close=True)
        self._begin_body(length)
        return Response(code, headers, length, event.http_version)

    def _repeated_request(self, head: bytes) -> Request | None:
        """Return a request with the same headers as one before on this connection, byte by byte; None otherwise."""
        known, headers = self._known
        if not known or not head.endswith(known):
            return None
        parts = grammar.request_line(head[: -len(known)])
        if parts is None:
            return None
        self._reading = "end"
        return Request(*parts, headers)

    def _begin_body(self, length: int | None) -> None:
        self._left = length or 0
        self._reading = "chunked" if length is None else "length" if length else "end"

    def _read_bytes(self) -> Data:
        data, self._data = self._data, b""
        if self._reading == "length":
            if len(data) > self._left:
                data, self._data = data[: self._left], data[self._left :]
            self._left -= len(data)
            if not self._left:
                self._reading = "end"
        return Data(data)

    def _read_chunk(self) -> Event | None:
        """Have h11 read a part of a chunk, or the frame of the last one; it gets no byte beyond that."""
        if self._parser is None or (self._frame_next and not self._take_frame()):
            return None
        taken, self._data = self._data[: self._left], self._data[self._left :]
        if not taken:
            return None
        self._left -= len(taken)
        self._parser.receive_data(taken)
        event = self._parser.next_event()
        if not self._left:
            self._frame_next = True
        if isinstance(event, h11.EndOfMessage):
            self._reading = "done"
            return EndOfMessage()
        return Data(bytes(event.data)) if isinstance(event, h11.Data) else None

    def _take_frame(self) -> bool:
        """Check the frame of the next chunk; returns whether it is complete. ``_left`` becomes its bytes and data."""
        found = grammar.chunk_frame(self._data[:_FRAME], first=self._chunks == 0)
        if found is None:
            return False
        size, frame = found
        self._frame_next = False
        self._chunks += 1
        self._left = frame + size
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
        return self._data

    # Writing.

    def send(self, *events: Event) -> bytes:
        """Return the bytes of events; raises ValueError for what is not ours to send now.

        Heads were checked when they were made (``messages``).
        """
        return b"".join([self._send(event) for event in events])

    def _send(self, event: Event) -> bytes:
        state = self._sending
        if isinstance(event, Data):
            if state == "chunked":
                return b"%x\r\n%s\r\n" % (len(event.data), event.data) if event.data else b""
            if state == "length" and len(event.data) <= self._unsent:
                self._unsent -= len(event.data)
                return event.data
        elif isinstance(event, EndOfMessage):
            if state == "chunked" or (state == "length" and not self._unsent):
                self._sending = "done"
                return b"0\r\n\r\n" if state == "chunked" else b""
        elif state == "head" and event.head and isinstance(event, Request) is not self._is_server:
            # A server answers a request whose head was read, or could not be.
            if self._is_server and self._reading == "head" and self._failure is None:
                raise ValueError("there is no request to answer")
            self._begin_sending(event)
            return event.head
        raise ValueError("this is not ours to send now")

    def _begin_sending(self, event: Request | Response | InformationalResponse) -> None:
        if isinstance(event, InformationalResponse):
            self._sending = self._reading = "switched"
            return
        self._unsent = event.length or 0
        self._sending = "chunked" if event.length is None else "length"
        if isinstance(event, Request):
            self._parser = h11.Connection(h11.CLIENT, self._limits.head + 4)
            upgrade = any(name.lower() == b"upgrade" for name, _ in event.headers)
            self._parser.send(_ASKED_UPGRADE if upgrade else _ASKED)
            if upgrade:
                self._parser.send(h11.EndOfMessage())

    def start_next_cycle(self) -> bool:
        """Go on with the next request; returns False where the connection must end instead.

        It must where either side said so or closed, or where a message is not complete.
        """
        if not (self._keep and not self._eof and self._reading == self._sending == "done"):
            return False
        self._parser = None
        self._reading = self._sending = "head"
        return True


def _is_kept(headers: tuple[Header, ...], version: bytes) -> bool:
    """Return whether the connection persists after a message with these headers (RFC 9112, section 9.3)."""
    if version < b"1.1":
        return False
    return b"close" not in tokens([value for name, value in headers if name == b"connection"])
