"""Where the body of an HTTP/1.1 message ends, without I/O: bytes pass through unchanged and are counted.

Chunks are read as strictly as they are written by those who have nothing to hide: a size in hex digits, no extensions,
no trailers. So the bytes mean the same to every reader, and can be passed on as they are.
"""

from __future__ import annotations

from typing import Final, Protocol

from liqod.peering.relay.heads import AnswerHead, BadHead, RequestHead

_SIZE: Final = 8
"""Hex digits of the size of a chunk."""
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


class Body(Protocol):
    """A body that is passing; ``done`` once its last byte was taken."""

    done: bool

    def take(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body; raises BadHead for what is no body."""
        ...


class Sized:
    """A body of known length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def take(self, data: bytes) -> int:
        taken = min(self._left, len(data))
        self._left -= taken
        self.done = self._left == 0
        return taken


class UntilClosed:
    """The body of an answer that ends with its connection."""

    done = False

    def take(self, data: bytes) -> int:
        return len(data)


class Chunked:
    """A body in chunks, of at most ``maximum`` bytes without their framing (None: of any length)."""

    def __init__(self, maximum: int | None = None) -> None:
        self.done = False
        self._maximum = maximum
        self._total = 0
        self._line = b""
        self._left = 0
        self._expected = b""
        self._last = False

    def take(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            elif self._expected:
                step = min(len(self._expected), len(data) - at)
                if data[at : at + step] != self._expected[:step]:
                    raise BadHead(400, "RelayBadRequest", "a chunk does not end where it says")
                self._expected = self._expected[step:]
                at += step
                self.done = self._last and not self._expected
            else:
                at += self._size(data, at)
        return at

    def _size(self, data: bytes, at: int) -> int:
        """Read on in the line that tells the size of the next chunk; returns the bytes that were read."""
        end = data.find(b"\n", at)
        part = data[at : end + 1] if end >= 0 else data[at:]
        self._line += part
        if len(self._line) > _SIZE + 2:
            raise BadHead(400, "RelayBadRequest", "a chunk begins with its size in at most 8 hex digits")
        if end < 0:
            return len(part)
        line, self._line = self._line, b""
        digits = line[:-2]
        if not line.endswith(b"\r\n") or not digits or not _HEX.issuperset(digits):
            raise BadHead(400, "RelayBadRequest", "a chunk begins with its size in hex digits and nothing else")
        self._left = int(digits, 16)
        self._last = self._left == 0
        self._expected = b"\r\n"
        self._total += self._left
        if self._maximum is not None and self._total > self._maximum:
            raise BadHead(413, "RelayBadRequest", f"a request has at most {self._maximum} bytes")
        return len(part)


def body_of_request(head: RequestHead, maximum: int) -> Body:
    """Return how the body of a request passes."""
    return Chunked(maximum) if head.length is None else Sized(head.length)


def body_of_answer(head: AnswerHead) -> Body:
    """Return how the body of an answer to a GET, POST, PUT, PATCH or DELETE passes (RFC 9112, section 6.3)."""
    if head.code < 200 or head.code in (204, 304):
        return Sized(0)
    if head.chunked:
        return Chunked()
    return UntilClosed() if head.length is None else Sized(head.length)
