"""Serializes responses without the ``Connection`` that parsed the request."""

from __future__ import annotations

from collections.abc import Sequence

from liqod.http1.messages import Header, make_response, make_switch


def whole_response(code: int, headers: Sequence[Header], body: bytes) -> bytes:
    """Return a complete response, after which the connection is closed."""
    framing = [(b"Content-Length", b"%d" % len(body)), (b"Connection", b"close")]
    return make_response(code, [*headers, *framing]).head + body


def switching(headers: Sequence[Header]) -> bytes:
    """Return the head of a response 101, for a request that another parser read; raises ValueError."""
    return make_switch(headers).head
