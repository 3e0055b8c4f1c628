"""From the bytes of a connection to HTTP/1.1 answers: bounded, strict about where an answer ends, without I/O.

Source: RFC 9112, sections 4 (status line), 5 (fields), 6.3 (length of a body), 7.1 (chunks).
"""

from __future__ import annotations

import re
from typing import Final

import attrs

MAX_BODY: Final = 64 << 20
"""Bytes of one answer; a page of 500 objects at 128 KiB each."""
MAX_HEAD: Final = 64 << 10
MAX_LINE: Final = 4 << 10
"""Bytes of the line before a chunk, and of one after the last."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_BODILESS: Final = (204, 304)


class BadAnswer(Exception):
    """What came is no answer that can be understood, or one that is too large; the connection is worthless."""


@attrs.frozen
class Answer:
    """An answer: status code, fields by their names in lower case (the last of a name counts), body."""

    code: int
    fields: dict[bytes, bytes]
    body: bytes = attrs.field(repr=False)
    keeps: bool
    """Whether the connection may be used again."""

    @property
    def retry_after(self) -> float:
        """Seconds after which the server wants to be asked again; 0 when it did not say so."""
        value = self.fields.get(b"retry-after", b"")
        return float(value[:6]) if value.isdigit() else 0.0


class Reader:
    """Reads the answer to one request; a new one is made for the next."""

    def __init__(self, longest: int = MAX_BODY) -> None:
        self._longest = longest
        self._buffer = b""
        self._code = 0
        self._fields: dict[bytes, bytes] = {}
        self._keeps = False
        self._parts: list[bytes] = []
        self._size = 0
        # What of the body, or of a chunk, is still to come; None where the end of the connection ends the body.
        self._left: int | None = 0
        self._is_chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> Answer | None:
        """Take what came; returns the answer when it is complete. Raises BadAnswer."""
        if not self._code:
            data = self._head(data)
            if not self._code:
                return None
        if self._is_chunked:
            return self._chunks(data)
        if self._left is None:
            self._take(data)
            return None
        if self._left:
            if len(data) > self._left:
                raise BadAnswer("more came than the answer's length")
            self._left -= len(data)
            self._take(data)
        elif data:
            raise BadAnswer("more came than one answer")
        return None if self._left else self._answer()

    def closed(self) -> Answer | None:
        """The connection ended: returns the answer whose end that is, None when one was not complete."""
        return self._answer() if self._code and self._left is None and not self._is_chunked else None

    def _head(self, data: bytes) -> bytes:
        """Read a head when it is complete; returns what follows it."""
        data = self._buffer + data if self._buffer else data
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > MAX_HEAD:
                if len(data) > MAX_HEAD:
                    raise BadAnswer(f"the head of an answer has more than {MAX_HEAD} bytes")
                self._buffer = data
                return b""
            first, *lines = data[:end].split(b"\r\n")
            data = data[end + 4 :]
            status = _STATUS.fullmatch(first)
            if status is None:
                raise BadAnswer("the answer does not begin with an HTTP/1 status line")
            code = int(status[2])
            # An interim answer (100 Continue, 103 Early Hints) is followed by the real one.
            if code >= 200:
                break
            if code == 101:
                raise BadAnswer("the server changes the protocol, which it was not asked to")
        self._buffer = b""
        self._read_fields(lines)
        self._frame(code, status[1] == b"1")
        self._code = code
        return data

    def _read_fields(self, lines: list[bytes]) -> None:
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name[-1:].isspace() or name[:1].isspace():
                raise BadAnswer("a header field of the answer cannot be read")
            name = name.lower()
            if name in (b"content-length", b"transfer-encoding") and name in self._fields:
                raise BadAnswer(f"the answer has {name.decode()} twice")
            self._fields[name] = value.strip(b" \t")

    def _frame(self, code: int, is_current: bool) -> None:
        """Find out where the body ends."""
        connection = self._fields.get(b"connection", b"").lower()
        self._keeps = b"close" not in connection and (is_current or b"keep-alive" in connection)
        coding, length = self._fields.get(b"transfer-encoding"), self._fields.get(b"content-length")
        if coding is not None and length is not None:
            raise BadAnswer("the answer has both a length and a transfer coding")
        if code in _BODILESS:
            return
        if coding is not None:
            if coding.lower() != b"chunked":
                raise BadAnswer("the answer has a transfer coding that was not asked for")
            self._is_chunked = True
        elif length is not None:
            if _LENGTH.fullmatch(length) is None:
                raise BadAnswer("the length of the answer is no number")
            self._left = int(length)
            self._check(self._left)
        else:
            self._left, self._keeps = None, False

    def _chunks(self, data: bytes) -> Answer | None:
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                part = data[at : at + self._left]
                # The line end behind a chunk counts as part of it until it is cut off here.
                self._left -= len(part)
                at += len(part)
                self._take(part)
                if not self._left:
                    self._cut()
                continue
            found = data.find(b"\r\n", at)
            if found < 0:
                if end - at > MAX_LINE:
                    raise BadAnswer("a line between chunks is too long")
                self._buffer = data[at:]
                return None
            line, at = data[at:found], found + 2
            if self._in_trailer:
                if not line:
                    if at < end:
                        raise BadAnswer("more came than one answer")
                    return self._answer()
                continue
            size = _SIZE.fullmatch(line)
            if size is None:
                raise BadAnswer("the size of a chunk is no number")
            count = int(size[1], 16)
            self._check(self._size + count)
            if count:
                self._left = count + 2
            else:
                self._in_trailer = True
        return None

    def _cut(self) -> None:
        """Take the line end off the chunk that is complete now; it may have come in two pieces."""
        last = self._parts.pop()
        if len(last) < 2:
            last = self._parts.pop() + last
        if last[-2:] != b"\r\n":
            raise BadAnswer("a chunk does not end where it should")
        self._size -= 2
        if len(last) > 2:
            self._parts.append(last[:-2])

    def _take(self, part: bytes) -> None:
        if part:
            self._size += len(part)
            self._check(self._size - 2 if self._is_chunked else self._size)
            self._parts.append(part)

    def _check(self, size: int) -> None:
        if size > self._longest:
            raise BadAnswer(f"an answer of more than {self._longest >> 20} MiB was not read")

    def _answer(self) -> Answer:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return Answer(self._code, self._fields, body, self._keeps)
