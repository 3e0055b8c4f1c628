"""The heads of HTTP/1.1 messages, without I/O: read strictly, written anew.

What two readers could understand differently is refused, not interpreted (RFC 9112, sections 2.2, 5 and 6; the attacks
are request smuggling and response splitting). Nothing of a head is passed on as it came: what goes to the API server is
written from what was understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

MAX_HEAD: Final = 64 << 10
"""Bytes of a head: a command that is run in a pod is part of the path."""
MAX_HEADERS: Final = 64
MAX_BODY: Final = 4 << 20
"""Bytes of a request's body; API servers take 3 MiB."""

Header = tuple[bytes, bytes]

METHODS: Final = frozenset((b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"))
UPGRADES: Final = frozenset((b"websocket", b"spdy/3.1"))
UPGRADE_HEADERS: Final = frozenset(
    (
        b"x-stream-protocol-version",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
        b"sec-websocket-accept",
    )
)
"""Headers of an upgrade that concern the streams inside; both ends of those must see the same ones."""
ASKED: Final = frozenset((b"accept", b"accept-encoding", b"content-type"))
"""Headers of a request that are passed on, besides those of its body and of an upgrade."""
TOLD: Final = frozenset(
    (
        b"audit-id",
        b"cache-control",
        b"content-encoding",
        b"content-type",
        b"date",
        b"retry-after",
        b"vary",
        b"warning",
        b"x-kubernetes-pf-flowschema-uid",
        b"x-kubernetes-pf-prioritylevel-uid",
    )
)
"""Headers of an answer that are passed on, besides those of its body and of an upgrade."""

_TOKEN: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET: Final = re.compile(rb"/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,10}")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
_BEARER: Final = b"bearer.authorization.k8s.io"
_HOPS: Final = frozenset((b"keep-alive", b"close", b"upgrade"))


@attrs.define
class BadHead(Exception):
    """A head that is not taken: status code, reason, and a sentence."""

    code: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@attrs.frozen
class RequestHead:
    """What a request asks for; ``length`` is None for a chunked body, ``upgrade`` empty where there is none."""

    method: bytes
    target: bytes
    length: int | None
    upgrade: bytes
    close: bool
    passed: tuple[Header, ...]


@attrs.frozen
class AnswerHead:
    """What was answered; ``length`` is None where the headers do not tell, ``chunked`` that chunks do."""

    code: int
    length: int | None
    chunked: bool
    close: bool
    passed: tuple[Header, ...]
    upgrade: bytes = b""


def split(data: bytes | bytearray) -> int:
    """Return where the head ends (behind the empty line), or 0 while it is not complete; raises BadHead."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD:
        if end > MAX_HEAD or len(data) > MAX_HEAD:
            raise BadHead(431, "RelayBadRequest", f"the head of a message is longer than {MAX_HEAD} bytes")
        return 0
    return end + 4


def parse_request(head: bytes) -> RequestHead:
    """Return what the complete head of a request says; raises BadHead."""
    first, headers = _lines(head)
    method, _, rest = first.partition(b" ")
    target, _, version = rest.partition(b" ")
    if version != b"HTTP/1.1":
        raise BadHead(505, "RelayBadRequest", "the relay speaks HTTP/1.1 and nothing else")
    if method not in METHODS:
        raise BadHead(405, "RelayBadRequest", "the relay passes on GET, POST, PUT, PATCH and DELETE")
    if _TARGET.fullmatch(target) is None:
        raise BadHead(400, "RelayBadRequest", "the target of a request is a path that begins with one /")
    if len(headers.get(b"host", ())) != 1:
        raise BadHead(400, "RelayBadRequest", "a request has exactly one Host")
    if b"expect" in headers:
        raise BadHead(417, "RelayBadRequest", "the relay expects nothing: send the body")
    _refuse_identity(headers)
    hops = _hops(headers)
    upgrade = _upgrade(headers, hops)
    length = _body(headers)
    if (length is None and upgrade) or (upgrade and length):
        raise BadHead(400, "RelayBadRequest", "a request for an upgrade has no body")
    if length is not None and length > MAX_BODY:
        raise BadHead(413, "RelayBadRequest", f"a request has at most {MAX_BODY} bytes")
    return RequestHead(method, target, length, upgrade, b"close" in hops, _passed(headers, ASKED, upgrade))


def parse_answer(head: bytes) -> AnswerHead:
    """Return what the complete head of an answer says; raises BadHead."""
    first, headers = _lines(head)
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadHead(502, "RelayBadAnswer", "the answer is not HTTP/1.1")
    hops = {hop.strip().lower() for value in headers.get(b"connection", ()) for hop in value.split(b",")}
    length = headers.get(b"content-length", [])
    coding = [value.lower() for value in headers.get(b"transfer-encoding", ())]
    if coding not in ([], [b"chunked"]) or len(length) > 1 or (coding and length):
        raise BadHead(502, "RelayBadAnswer", "the length of the answer is not clear")
    if length and _LENGTH.fullmatch(length[0]) is None:
        raise BadHead(502, "RelayBadAnswer", "the length of the answer is not a number")
    upgrade = b", ".join(headers.get(b"upgrade", ()))
    return AnswerHead(
        code=int(match[1]),
        length=int(length[0]) if length else None,
        chunked=bool(coding),
        close=b"close" in hops or first.startswith(b"HTTP/1.0"),
        passed=_passed(headers, TOLD, upgrade),
        upgrade=upgrade,
    )


def request(base: bytes, head: RequestHead, own: Iterable[Header]) -> bytes:
    """Return the head to send to the API server.

    ``base`` is the path of the server's URL, ``own`` are the daemon's headers: Host, credentials, user.
    """
    lines = [head.method + b" " + base + head.target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in own]
    lines += [name + b": " + value for name, value in head.passed]
    if head.upgrade:
        lines += [b"Connection: Upgrade", b"Upgrade: " + head.upgrade]
    elif head.length is None:
        lines.append(b"Transfer-Encoding: chunked")
    elif head.length or head.method in (b"POST", b"PUT", b"PATCH"):
        lines.append(b"Content-Length: %d" % head.length)
    return b"\r\n".join((*lines, b"", b""))


def answer(head: AnswerHead, *, close: bool) -> bytes:
    """Return the head of an answer to pass on; ``close``: the connection ends with it."""
    lines = [b"HTTP/1.1 %d %s" % (head.code, _PHRASES.get(head.code, b"Answer"))]
    lines += [name + b": " + value for name, value in head.passed]
    if head.code == 101:
        lines += [b"Connection: Upgrade", b"Upgrade: " + head.upgrade]
        return b"\r\n".join((*lines, b"", b""))
    if head.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    elif head.length is not None:
        lines.append(b"Content-Length: %d" % head.length)
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join((*lines, b"", b""))


def refusal(code: int, body: bytes, *, close: bool) -> bytes:
    """Return a whole answer of the relay's own; ``body`` is JSON."""
    head = AnswerHead(code, len(body), False, close, ((b"Content-Type", b"application/json"),))
    return answer(head, close=close) + body


def _lines(head: bytes) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """Return the first line, and the headers by name in lower case; raises BadHead."""
    first, *rest = head[:-4].split(b"\r\n")
    if b"\n" in head[:-4].replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b"") or b"\0" in head:
        raise BadHead(400, "RelayBadRequest", "a line of the head ends with CR and LF, and holds neither")
    if len(rest) > MAX_HEADERS:
        raise BadHead(431, "RelayBadRequest", f"a head has at most {MAX_HEADERS} headers")
    headers: dict[bytes, list[bytes]] = {}
    for line in rest:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise BadHead(400, "RelayBadRequest", "a header is a name, a colon and a value of printable characters")
        headers.setdefault(name.lower(), []).append(value)
    return first, headers


def _refuse_identity(headers: Mapping[bytes, list[bytes]]) -> None:
    """Whoever asks is known by its key: a header that says otherwise is an attempt, and is refused as one."""
    for name in headers:
        if name.startswith((b"impersonate-", b"x-remote-", b"x-forwarded-", b"front-proxy-")):
            raise BadHead(403, "RelayIdentityClaimed", f"the header {name.decode()} is not for those who use the relay")
    if any(_BEARER in value for value in headers.get(b"sec-websocket-protocol", ())):
        raise BadHead(
            403, "RelayIdentityClaimed", "a token inside Sec-WebSocket-Protocol is not for those who use the relay"
        )


def _hops(headers: Mapping[bytes, list[bytes]]) -> frozenset[bytes]:
    """Return what Connection names: nothing but what the relay itself means by it."""
    hops = frozenset(hop.strip().lower() for value in headers.get(b"connection", ()) for hop in value.split(b","))
    if hops - _HOPS:
        raise BadHead(400, "RelayBadRequest", "Connection names keep-alive, close or Upgrade, and no other header")
    return hops


def _upgrade(headers: Mapping[bytes, list[bytes]], hops: frozenset[bytes]) -> bytes:
    wanted = headers.get(b"upgrade", [])
    if not wanted and b"upgrade" not in hops:
        return b""
    if len(wanted) != 1 or b"upgrade" not in hops or wanted[0].lower() not in UPGRADES:
        raise BadHead(400, "RelayBadRequest", "a connection is upgraded to websocket or to SPDY/3.1")
    return wanted[0]


def _body(headers: Mapping[bytes, list[bytes]]) -> int | None:
    """Return the length of a request's body, None for a chunked one."""
    length, coding = headers.get(b"content-length", []), headers.get(b"transfer-encoding", [])
    if coding:
        if length or len(coding) != 1 or coding[0].lower() != b"chunked":
            raise BadHead(400, "RelayBadRequest", "a body has a Content-Length or is chunked, and nothing else")
        return None
    if not length:
        return 0
    if len(length) != 1 or _LENGTH.fullmatch(length[0]) is None:
        raise BadHead(400, "RelayBadRequest", "Content-Length is one number")
    return int(length[0])


def _passed(headers: Mapping[bytes, list[bytes]], wanted: frozenset[bytes], upgrade: bytes) -> tuple[Header, ...]:
    names = wanted | UPGRADE_HEADERS if upgrade else wanted
    return tuple((name, value) for name, values in headers.items() if name in names for value in values)


_PHRASES: Final = {
    101: b"Switching Protocols",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    204: b"No Content",
    304: b"Not Modified",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    409: b"Conflict",
    410: b"Gone",
    413: b"Content Too Large",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
