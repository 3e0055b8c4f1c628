"""HTTP/1.1 for requests that are upgraded, without I/O: the head that is sent, and what is answered to it.

The answer comes from a lender, so everything in it is bounded and checked before any of it is passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

MAX_HEAD: Final = 32 << 10
MAX_BODY: Final = 64 << 10
"""Bytes of a refusal that are read; a Status of the API is about 300."""

PASSED_ON: Final = (
    b"Upgrade",
    b"X-Stream-Protocol-Version",
    b"Sec-WebSocket-Key",
    b"Sec-WebSocket-Version",
    b"Sec-WebSocket-Protocol",
    b"Sec-WebSocket-Extensions",
    b"Sec-WebSocket-Accept",
)
"""Headers of an upgrade that concern the streams inside; both ends of those must see the same ones."""

_LOWER: Final = frozenset(name.lower() for name in PASSED_ON)

Header = tuple[bytes, bytes]


class BadAnswer(Exception):
    """The answer is not HTTP, or not within the bounds; the text says which."""


@frozen
class Head:
    """The head of an answer: status code, the reason phrase, and headers (names in lower case)."""

    code: int
    phrase: bytes
    headers: tuple[Header, ...]

    def first(self, name: bytes) -> bytes:
        """Return the first header of a name (in lower case), or nothing."""
        return next((value for key, value in self.headers if key == name), b"")


def request(method: bytes, path: bytes, headers: Iterable[Header]) -> bytes:
    """Return the head of a request without a body; raises ValueError for line breaks where none may be."""
    lines = [method + b" " + path + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header of the request holds a line break")
    return b"\r\n".join((*lines, b"", b""))


def upgrade_headers(headers: Iterable[Header]) -> list[Header]:
    """Return those headers of an upgrade that are passed on, in either direction."""
    return [(name, value) for name, value in headers if name.lower() in _LOWER]


def switching(head: Head) -> bytes:
    """Return the head of the answer 101 to pass on."""
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Connection: Upgrade"]
    lines += [name + b": " + value for name, value in upgrade_headers(head.headers)]
    return b"\r\n".join((*lines, b"", b""))


def parse(data: bytes) -> tuple[Head, bytes] | None:
    """Return the head and what follows it, or None while it is not complete; raises BadAnswer."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MAX_HEAD:
            raise BadAnswer(f"its head is longer than {MAX_HEAD} bytes")
        return None
    if end > MAX_HEAD:
        raise BadAnswer(f"its head is longer than {MAX_HEAD} bytes")
    first, *rest = data[:end].split(b"\r\n")
    version, _, status = first.partition(b" ")
    code, _, phrase = status.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != 3:
        raise BadAnswer("it is not HTTP/1.1")
    return Head(int(code), phrase, _headers(rest)), data[end + 4 :]


def _headers(lines: Sequence[bytes]) -> tuple[Header, ...]:
    headers: list[Header] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        # Only printable bytes: a bare CR or LF would end a line for whoever reads what we pass on.
        if not colon or not name or not _is_token(name) or any(byte < 32 or byte == 127 for byte in value):
            raise BadAnswer("it has a malformed header")
        headers.append((name.lower(), value))
    return tuple(headers)


def _is_token(name: bytes) -> bool:
    return name.isascii() and all(character.isalnum() or character in "-_.!#$%&'*+^`|~" for character in name.decode())


def body(head: Head, data: bytes, *, ended: bool) -> bytes | None:
    """Return the body of a refusal once ``data`` holds it (at most ``MAX_BODY`` bytes of it), None before.

    ``ended`` tells that nothing more will come.
    """
    full = ended or len(data) >= MAX_BODY
    if head.first(b"transfer-encoding").lower() == b"chunked":
        whole, done = _dechunked(data)
        return whole[:MAX_BODY] if done or full else None
    length = head.first(b"content-length")
    if length.isdigit() and len(length) < 10:
        wanted = int(length)
        return data[: min(wanted, MAX_BODY)] if len(data) >= wanted or full else None
    return data[:MAX_BODY] if full else None


def _dechunked(data: bytes) -> tuple[bytes, bool]:
    """Return what the complete chunks hold, and whether the last one was among them (or nothing more can be had)."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return b"".join(parts), False
        try:
            size = int(data[at:end].partition(b";")[0], 16)
        except ValueError:
            return b"".join(parts), True
        if size <= 0:
            return b"".join(parts), True
        chunk = data[end + 2 : end + 2 + size]
        parts.append(chunk)
        if len(chunk) < size:
            return b"".join(parts), False
        at = end + 2 + size + 2
