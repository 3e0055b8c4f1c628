"""A second reader of HTTP/1.1, written by hand and kept apart from h11: what it refuses, ``liqod.http1`` must refuse.

It knows no leniency: every line, length and chunk has one form. It reads complete heads and cut bodies, and writes
nothing. ``SecondReader`` is what the property tests need of it, so that another reader (a server in another language)
can take its place.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import attrs

MAX_HEADERS: Final = 64
MAX_BODY: Final = 4 << 20
METHODS: Final = frozenset((b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"))
UPGRADES: Final = frozenset((b"websocket", b"spdy/3.1"))

_TOKEN: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET: Final = re.compile(rb"/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,10}")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")

Headers = dict[bytes, list[bytes]]


class Bad(Exception):
    """The message is refused; the text says why."""


@attrs.frozen(kw_only=True)
class Asked:
    """What a request says; ``length`` is None for a chunked body."""

    method: bytes
    target: bytes
    length: int | None
    upgrade: bytes
    close: bool
    headers: Headers


@attrs.frozen
class Answered:
    """What a response says; ``length`` is None where the headers do not say."""

    code: int
    length: int | None
    chunked: bool
    headers: Headers


class SecondReader(Protocol):
    """Reads what ``liqod.http1`` reads, independently; this module is one."""

    def parse_request(self, head: bytes) -> Asked:
        """Return what the complete head of a request says; raises Bad."""
        ...

    def parse_response(self, head: bytes) -> Answered:
        """Return what the complete head of a response says; raises Bad."""
        ...


def parse_request(head: bytes) -> Asked:
    """Return what the complete head of a request says; raises Bad."""
    first, headers = _lines(head)
    method, _, rest = first.partition(b" ")
    target, _, version = rest.partition(b" ")
    if version != b"HTTP/1.1" or method not in METHODS or _TARGET.fullmatch(target) is None:
        raise Bad("request line")
    if len(headers.get(b"host", ())) != 1 or b"expect" in headers:
        raise Bad("host, expect")
    for name in headers:
        if name.startswith((b"impersonate-", b"x-remote-", b"x-forwarded-", b"front-proxy-")):
            raise Bad("identity")
    if any(b"bearer.authorization.k8s.io" in value for value in headers.get(b"sec-websocket-protocol", ())):
        raise Bad("token")
    options = {item.strip().lower() for value in headers.get(b"connection", ()) for item in value.split(b",")}
    if options - {b"keep-alive", b"close", b"upgrade"}:
        raise Bad("connection")
    wanted = headers.get(b"upgrade", [])
    asks = bool(wanted) or b"upgrade" in options
    if asks and (len(wanted) != 1 or b"upgrade" not in options or wanted[0].lower() not in UPGRADES):
        raise Bad("upgrade")
    length, chunked = _framing(headers)
    if not chunked:
        length = length or 0
    if (asks and length != 0) or (length is not None and length > MAX_BODY):
        raise Bad("body")
    upgrade = wanted[0] if asks else b""
    close = b"close" in options
    return Asked(method=method, target=target, length=length, upgrade=upgrade, close=close, headers=headers)


def parse_response(head: bytes) -> Answered:
    """Return what the complete head of a response says; raises Bad."""
    first, headers = _lines(head)
    match = _STATUS.fullmatch(first)
    if match is None:
        raise Bad("status line")
    length, chunked = _framing(headers)
    return Answered(int(match[1]), length, chunked, headers)


def parse_switch(data: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Return the status and the headers that a lender answered to an upgrade with; raises Bad.

    It is more lenient about bodies, and stricter about values: no tabs inside.
    """
    first, *rest = data[: data.index(b"\r\n\r\n")].split(b"\r\n")
    version, _, status = first.partition(b" ")
    code = status.partition(b" ")[0]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != 3:
        raise Bad("status line")
    headers = []
    for line in rest:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or _TOKEN.fullmatch(name) is None or any(byte < 32 or byte == 127 for byte in value):
            raise Bad("header")
        headers.append((name.lower(), value))
    return int(code), headers


def _lines(head: bytes) -> tuple[bytes, Headers]:
    first, *rest = head[:-4].split(b"\r\n")
    if b"\n" in head[:-4].replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b"") or b"\0" in head:
        raise Bad("line ends")
    if len(rest) > MAX_HEADERS:
        raise Bad("too many")
    headers: Headers = {}
    for line in rest:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise Bad("header")
        headers.setdefault(name.lower(), []).append(value)
    return first, headers


def _framing(headers: Headers) -> tuple[int | None, bool]:
    lengths, codings = headers.get(b"content-length", []), headers.get(b"transfer-encoding", [])
    if codings:
        if lengths or len(codings) != 1 or codings[0].lower() != b"chunked":
            raise Bad("coding")
        return None, True
    if not lengths:
        return None, False
    if len(lengths) != 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise Bad("length")
    return int(lengths[0]), False


@attrs.define
class Chunks:
    """A body in chunks of at most ``maximum`` bytes; ``data`` is what it held so far, ``done`` that it is complete."""

    maximum: int
    data: bytes = b""
    done: bool = False
    _total: int = attrs.field(default=0, kw_only=True)
    _line: bytes = attrs.field(default=b"", kw_only=True)
    _left: int = attrs.field(default=0, kw_only=True)
    _expected: bytes = attrs.field(default=b"", kw_only=True)
    _last: bool = attrs.field(default=False, kw_only=True)

    def take(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body; raises Bad."""
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                self.data += data[at : at + step]
                self._left -= step
            elif self._expected:
                step = min(len(self._expected), len(data) - at)
                if data[at : at + step] != self._expected[:step]:
                    raise Bad("end of a chunk")
                self._expected = self._expected[step:]
                self.done = self._last and not self._expected
            else:
                step = self._size(data, at)
            at += step
        return at

    def _size(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        part = data[at : end + 1] if end >= 0 else data[at:]
        self._line += part
        if len(self._line) > 10:
            raise Bad("size")
        if end < 0:
            return len(part)
        line, self._line = self._line, b""
        digits = line[:-2]
        if not line.endswith(b"\r\n") or not digits or not _HEX.issuperset(digits):
            raise Bad("size")
        self._left = int(digits, 16)
        self._last = self._left == 0
        self._expected = b"\r\n"
        self._total += self._left
        if self._total > self.maximum:
            raise Bad("too large")
        return len(part)
