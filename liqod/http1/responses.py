"""Serializes responses without the ``Connection`` that parsed the request."""

from __future__ import annotations

from collections.abc import Sequence

from h11 import SERVER, Connection

from liqod.http1.messages import Data, EndOfMessage, Header, make_response, make_switch


def whole_response(code: int, headers: Sequence[Header], body: bytes) -> bytes:
    """Return a complete response, after which the connection is closed."""
    framing = [(b"Content-Length", b"%d" % len(body)), (b"Connection", b"close")]
    connection = Connection(SERVER)
    events = (make_response(code, [*headers, *framing]), Data(data=body), EndOfMessage())
    return b"".join([connection.send(event) or b"" for event in events])


def switching(headers: Sequence[Header]) -> bytes:
    """Return the head of a response 101, for a request that another parser read; raises ValueError.

    h11 writes a switch only where it read the request itself, so here it checks the headers and no more.
    """
    event = make_switch(headers)
    lines = [b"HTTP/1.1 101 " + event.reason, *(name + b": " + value for name, value in event.headers.raw_items())]
    return b"\r\n".join((*lines, b"", b""))
