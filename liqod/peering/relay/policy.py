"""Allow lists for requests of borrowers and responses of the API server. Pure.

These functions get messages parsed by ``http1``. No head is forwarded verbatim: it is built from the parsed fields, and
has no header that is not listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.http1.connection import MessageLimits
from liqod.http1.messages import (
    STREAM_HEADERS,
    Header,
    InformationalResponse,
    Request,
    Response,
    fields,
    make_request,
    make_response,
    make_switch,
    tokens,
)
from liqod.peering.relay.rejection import Rejected

LIMITS: Final = MessageLimits()
"""The defaults suffice: the command of an exec is in the query (64 KiB); API servers accept bodies up to 3 MiB
(k8s.io/apiserver, MaxRequestBodyBytes)."""

METHODS: Final = frozenset((b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"))
UPGRADES: Final = frozenset((b"websocket", b"spdy/3.1"))
REQUEST_HEADERS: Final = frozenset((b"accept", b"accept-encoding", b"content-type"))
"""Request headers that are forwarded, besides those of the body and of an upgrade."""
RESPONSE_HEADERS: Final = frozenset(
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
"""Response headers that are forwarded, besides those of the body and of an upgrade."""
_ANSWERED: Final = RESPONSE_HEADERS | {b"content-length"}
_SWITCHED: Final = RESPONSE_HEADERS | STREAM_HEADERS
CONNECTION_OPTIONS: Final = frozenset((b"keep-alive", b"close", b"upgrade"))

# No authority (``//``), no fragment: a target that the API server would parse as another path does not match.
_TARGET: Final = re.compile(rb"/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_BEARER: Final = b"bearer.authorization.k8s.io"
_IDENTITY: Final = (b"impersonate-", b"x-remote-", b"x-forwarded-", b"front-proxy-")

Fields = Mapping[bytes, list[bytes]]


@attrs.frozen(kw_only=True)
class Call:
    """A well-formed request; ``length`` is None for a chunked body, ``upgrade`` is empty where there is none.

    ``close``: the connection is closed after the response, also where an upgrade is not made.
    """

    method: bytes
    target: bytes
    length: int | None
    upgrade: bytes
    close: bool
    headers: tuple[Header, ...]


def examine(request: Request) -> Call:
    """Check the headers of a request and return it as a Call; raises Rejected."""
    headers = fields(request)
    if request.method not in METHODS:
        raise _bad(405, "the relay passes on GET, POST, PUT, PATCH and DELETE")
    if _TARGET.fullmatch(request.target) is None:
        raise _bad(400, "the target of a request is a path that begins with one /")
    # 100-continue would need an interim response before the body (RFC 9110, section 10.1.1); client-go does not use it.
    if b"expect" in headers:
        raise _bad(417, "the relay expects nothing: send the body")
    _reject_identity(headers)
    options = tokens(headers.get(b"connection", ()))
    if options - CONNECTION_OPTIONS:
        # The next hop removes each header that Connection names (RFC 9110, section 7.6.1), which could be one that
        # the relay adds, such as Impersonate-User.
        raise _bad(400, "Connection names keep-alive, close or Upgrade, and no other header")
    upgrade = _upgrade(headers, options)
    length = request.length
    if upgrade and length != 0:
        raise _bad(400, "a request for an upgrade has no body")
    allowed = REQUEST_HEADERS | STREAM_HEADERS if upgrade else REQUEST_HEADERS
    return Call(
        method=request.method,
        target=request.target,
        length=length,
        upgrade=upgrade,
        close=b"close" in options or bool(upgrade),
        headers=_only(headers, allowed),
    )


def forward(base: bytes, call: Call, own: Iterable[Header]) -> Request:
    """Return the request to send to the API server.

    ``base`` is the path of the server's URL, ``own`` are the daemon's headers: Host, credentials, impersonated user.
    """
    headers = [*own, *call.headers]
    if call.upgrade:
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", call.upgrade)]
    elif call.length is None:
        headers.append((b"Transfer-Encoding", b"chunked"))
    elif call.length or call.method in (b"POST", b"PUT", b"PATCH"):
        headers.append((b"Content-Length", b"%d" % call.length))
    return make_request(call.method, base + call.target, headers)


@attrs.frozen
class Answer:
    """A response that may be forwarded, without the Connection header.

    ``unbounded``: the body ends with the API server's connection (RFC 9112, section 6.3).
    """

    code: int
    headers: tuple[Header, ...]
    close: bool
    unbounded: bool

    def response(self, *, close: bool) -> Response:
        """Return the response to forward; ``close``: the connection is closed after it."""
        return make_response(self.code, [*self.headers, (b"Connection", b"close")] if close else self.headers)


def answer(response: Response) -> Answer:
    """Return the response to forward. A body without a length is forwarded in chunks."""
    headers = fields(response)
    close = b"close" in tokens(headers.get(b"connection", ())) or response.http_version < b"1.1"
    unbounded = response.to_close
    return Answer(response.status_code, _only(headers, _ANSWERED), close or unbounded, unbounded)


def switch(response: InformationalResponse) -> InformationalResponse:
    """Return the response 101 to forward."""
    headers = fields(response)
    upgrade = (b"Upgrade", b", ".join(headers.get(b"upgrade", ())))
    return make_switch([*_only(headers, _SWITCHED), upgrade])


def _reject_identity(headers: Fields) -> None:
    """Reject requests with headers of identity (impersonation, X-Remote-*): a borrower is identified by its key."""
    # Impersonate-* are honoured for the daemon's own account, X-Remote-* by an API server with a front proxy
    # (Kubernetes: "User impersonation", "Authenticating Proxy").
    for name in headers:
        if name.startswith(_IDENTITY):
            raise Rejected(403, "RelayIdentityClaimed", f"the header {name.decode()} is not for users of the relay")
    # Browsers' WebSocket clients cannot set Authorization: the API server also takes a bearer token from this
    # subprotocol (base64url.bearer.authorization.k8s.io).
    if any(_BEARER in value for value in headers.get(b"sec-websocket-protocol", ())):
        raise Rejected(
            403, "RelayIdentityClaimed", "a token inside Sec-WebSocket-Protocol is not for users of the relay"
        )


def _upgrade(headers: Fields, options: frozenset[bytes]) -> bytes:
    wanted = headers.get(b"upgrade", [])
    if not wanted and b"upgrade" not in options:
        return b""
    if len(wanted) != 1 or b"upgrade" not in options or wanted[0].lower() not in UPGRADES:
        raise _bad(400, "a connection is upgraded to websocket or to SPDY/3.1")
    return wanted[0]


def _only(headers: Fields, allowed: frozenset[bytes]) -> tuple[Header, ...]:
    return tuple((name, value) for name, values in headers.items() if name in allowed for value in values)


def _bad(code: int, message: str) -> Rejected:
    return Rejected(code, "RelayBadRequest", message)
