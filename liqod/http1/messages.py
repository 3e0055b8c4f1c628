"""The events of a connection: how they are created, checked before they are sent, and their headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

import attrs

from liqod.http1 import grammar
from liqod.http1.errors import Malformed

Header = tuple[bytes, bytes]

STREAM_HEADERS: Final = frozenset(
    (
        b"x-stream-protocol-version",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
        b"sec-websocket-accept",
    )
)
"""Headers of an upgrade that concern the streams inside (SPDY, RFC 6455): both ends of those must see the same ones."""
NO_BODY: Final = frozenset((204, 304))
"""Status codes of responses that have no body, regardless of their headers (RFC 9112, section 6.3)."""

_PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_CHUNKED: Final = (b"Transfer-Encoding", b"chunked")


@attrs.frozen
class Request:
    """The head of a request; names of headers that were read are in lower case.

    ``length``: bytes of the body, None where it is chunked. ``head``: the bytes to send, empty where it was read.
    """

    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    length: int | None = 0
    head: bytes = attrs.field(default=b"", repr=False, eq=False, kw_only=True)


@attrs.frozen
class Response:
    """The head of a response, with the fields of ``Request``.

    ``to_close``: the length is unknown, and the body ends with the connection (RFC 9112, section 6.3).
    """

    status_code: int
    headers: tuple[Header, ...]
    length: int | None = 0
    http_version: bytes = b"1.1"
    to_close: bool = attrs.field(default=False, kw_only=True)
    head: bytes = attrs.field(default=b"", repr=False, eq=False, kw_only=True)


@attrs.frozen
class InformationalResponse:
    """The head of a response 1xx; 101 switches protocols."""

    status_code: int
    headers: tuple[Header, ...]
    head: bytes = attrs.field(default=b"", repr=False, eq=False, kw_only=True)


@attrs.frozen
class Data:
    """A part of a body."""

    data: bytes


@attrs.frozen
class EndOfMessage:
    """The end of a message, with or without a body."""


Event = Request | Response | InformationalResponse | Data | EndOfMessage


def make_request(method: bytes, target: bytes, headers: Sequence[Header]) -> Request:
    """Return the event that begins a request; raises ValueError for bytes that no head may hold."""
    # Their responses are framed differently (RFC 9112, section 6.3); nothing here sends them.
    if method in (b"HEAD", b"CONNECT"):
        raise ValueError("HEAD and CONNECT are not sent")
    head, length = _serialize(b"%s %s HTTP/1.1\r\n" % (method, target), headers, grammar.check_request_head)
    return Request(method, target, tuple(headers), length, head=head)


def make_response(code: int, headers: Sequence[Header]) -> Response:
    """Return the event that begins a response; raises ValueError for bytes that no head may hold.

    A body without a length is sent in chunks.
    """
    if code in NO_BODY:
        headers = [header for header in headers if header[0].lower() not in (b"content-length", b"transfer-encoding")]
    elif not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers):
        headers = [*headers, _CHUNKED]
    head, length = _serialize(_status_line(code), headers, grammar.check_response_head)
    return Response(code, tuple(headers), length, head=head)


def make_switch(headers: Sequence[Header]) -> InformationalResponse:
    """Return the event that switches protocols; raises ValueError for bytes that no head may hold."""
    all_headers = ((b"Connection", b"Upgrade"), *headers)
    head, _ = _serialize(_status_line(101), all_headers, grammar.check_response_head)
    return InformationalResponse(101, all_headers, head=head)


def _status_line(code: int) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (code, _PHRASES.get(code, b"Unknown"))


def _serialize(line: bytes, headers: Sequence[Header], check: grammar.CheckHead) -> tuple[bytes, int | None]:
    """Return the bytes of a head, which pass the check of a head that is read, and the length of the body."""
    head = b"".join([line, *[b"%s: %s\r\n" % header for header in headers], b"\r\n"])
    try:
        # Each header is one line: a line break inside a value would add one.
        if head.count(b"\n") == len(headers) + 2:
            return head, check(head, len(headers))
    except Malformed:
        pass
    # The offending value is not quoted: headers may hold credentials.
    raise ValueError("a message with such a target or header is not HTTP/1.1, and is not sent")


def fields(message: Request | Response | InformationalResponse) -> dict[bytes, list[bytes]]:
    """Return the values of a message's headers by name in lower case."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in message.headers:
        found.setdefault(name.lower(), []).append(value)
    return found


def tokens(values: Iterable[bytes]) -> frozenset[bytes]:
    """Return the members of a header that is a list, in lower case (RFC 9110, section 5.6.1)."""
    return frozenset([token.strip().lower() for value in values for token in value.split(b",")])
