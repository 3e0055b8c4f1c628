"""Creates the h11 events of a connection, and reads their headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

from h11 import Data, EndOfMessage, InformationalResponse, LocalProtocolError, Request, Response

__all__ = [
    "STREAM_HEADERS",
    "Data",
    "EndOfMessage",
    "Header",
    "InformationalResponse",
    "Request",
    "Response",
    "fields",
    "make_request",
    "make_response",
    "make_switch",
    "tokens",
]

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

_PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
# The offending value is not quoted: headers may hold credentials.
_UNFIT: Final = "a message with such a target or header is not HTTP/1.1, and is not sent"


def make_request(method: bytes, target: bytes, headers: Sequence[Header]) -> Request:
    """Return the event that begins a request; raises ValueError for bytes that no head may hold."""
    _check_values(headers)
    try:
        return Request(method=method, target=target, headers=list(headers))
    except LocalProtocolError:
        raise ValueError(_UNFIT) from None


def make_response(code: int, headers: Sequence[Header]) -> Response:
    """Return the event that begins a response; raises ValueError for bytes that no head may hold."""
    _check_values(headers)
    try:
        return Response(status_code=code, headers=list(headers), reason=_PHRASES.get(code, b"Unknown"))
    except LocalProtocolError:
        raise ValueError(_UNFIT) from None


def make_switch(headers: Sequence[Header]) -> InformationalResponse:
    """Return the event that switches protocols; raises ValueError for bytes that no head may hold."""
    _check_values(headers)
    all_headers = [(b"Connection", b"Upgrade"), *headers]
    try:
        return InformationalResponse(status_code=101, headers=all_headers, reason=_PHRASES[101])
    except LocalProtocolError:
        raise ValueError(_UNFIT) from None


def _check_values(headers: Sequence[Header]) -> None:
    """h11 refuses line breaks and zero bytes; other control characters are not sent either, as they are not read."""
    if _CONTROL.search(b"".join([value for _, value in headers])) is not None:
        raise ValueError(_UNFIT)


def fields(message: Request | Response | InformationalResponse) -> dict[bytes, list[bytes]]:
    """Return the values of a message's headers by name in lower case."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in message.headers.raw_items():
        found.setdefault(name.lower(), []).append(value)
    return found


def tokens(values: Iterable[bytes]) -> frozenset[bytes]:
    """Return the members of a header that is a list, in lower case (RFC 9110, section 5.6.1)."""
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))
