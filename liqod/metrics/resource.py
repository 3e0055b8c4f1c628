"""The pages for machines: ``/metrics``, ``/healthz`` (is the process sound?), ``/readyz`` (does it do its work?).

With an ``Access``, ``/metrics`` is for those whom it admits, and so are the sentences of ``/readyz``: everybody gets
the two codes, as probes need them. Both need the right to ``/metrics``, as every cluster lets everybody get ``/readyz``
(the ClusterRole ``system:public-info-viewer``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from liqod.flow.connections.handshake import host_of, rest, serve
from liqod.metrics.access import Access, Denied
from liqod.metrics.registry import CONTENT_TYPE, Registry

TEXT: Final = "text/plain; charset=utf-8"
GUARDED: Final = "/metrics"
"""The path that a caller has to be allowed to get."""
# Without a body, and with Connection: close, as the rest of the request is not read (RFC 9110, section 15.5.14).
WITH_BODY: Final = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Refused = Callable[[str, str, str], None]
"""What counts a refusal: its reason, the caller's address, and a sentence."""


def pages(
    registry: Registry,
    health: Callable[[], Sequence[str]],
    readiness: Callable[[], Sequence[str]],
    access: Access | None = None,
    refused: Refused = lambda reason, source, message: None,
) -> Resource:
    """Return the root; ``health`` and ``readiness`` return the problems, one sentence each."""
    root = Resource()
    root.putChild(b"", _Index())
    numbers, ready = _Numbers(registry), _Check(readiness)
    root.putChild(b"metrics", numbers if access is None else _Guarded(numbers, "/metrics", access, refused))
    root.putChild(b"healthz", _Check(health))
    root.putChild(b"readyz", ready if access is None else _Guarded(ready, "/readyz", access, refused, ready.brief))
    return root


class _Index(Resource):
    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        request.setHeader("content-type", TEXT)
        return b"liqod: /metrics /healthz /readyz\n"


class _Numbers(Resource):
    isLeaf = True

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def render_GET(self, request: Request) -> bytes:
        request.setHeader("content-type", CONTENT_TYPE)
        return self._registry.text()


class _Check(Resource):
    isLeaf = True

    def __init__(self, missing: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self._missing = missing

    def render_GET(self, request: Request) -> bytes:
        request.setHeader("content-type", TEXT)
        missing = self._missing()
        if not missing:
            return b"ok\n"
        request.setResponseCode(503)
        return "".join(f"{sentence}\n" for sentence in missing).encode()

    def brief(self, request: Request) -> bytes:
        """Answer without a sentence, for a caller that nobody knows."""
        return b"ok\n" if self.render_GET(request) == b"ok\n" else b"not ready; with a token this page says why\n"


class _Guarded(Resource):
    """A page for those whom ``access`` lets get the metrics; without a token others get ``brief``, where there is one.

    The right that is asked for is that to ``GUARDED``, whatever a request has: one to something below is none to this
    page. ``path`` is the page's, for the log.
    """

    isLeaf = True
    _log = Logger(namespace="liqod.metrics")

    def __init__(
        self,
        page: _Numbers | _Check,
        path: str,
        access: Access,
        refused: Refused,
        brief: Callable[[Request], bytes] | None = None,
    ) -> None:
        super().__init__()
        self._page = page
        self._path = path
        self._access = access
        self._refused = refused
        self._brief = brief

    def render_GET(self, request: Request) -> bytes | int:
        scheme, _, token = (request.getHeader(b"authorization") or b"").partition(b" ")
        if self._brief is not None and not scheme:
            return self._brief(request)
        working = Deferred.fromCoroutine(self._answer(request, token.strip() if scheme.lower() == b"bearer" else b""))
        request.notifyFinish().addErrback(lambda _: working.cancel())
        working.addErrback(lambda failure: failure.trap(CancelledError))
        return NOT_DONE_YET

    async def _answer(self, request: Request, token: bytes) -> None:
        source, transport = host_of(request.getClientAddress()), _transport_of(request)
        try:
            await self._access.admit(token, GUARDED, source)
            # From here on the connection is one that is served, and is not cut for a newer one.
            serve(transport)
            body = self._page.render_GET(request)
        except CancelledError:
            raise
        except Denied as denied:
            self._refused(denied.reason, source, str(denied))
            request.setResponseCode(denied.code)
            request.setHeader("content-type", TEXT)
            if denied.code == 401:
                request.setHeader("www-authenticate", 'Bearer realm="liqod"')
            body = f"{denied.message}\n".encode()
        except Exception:
            self._log.failure("answering {path} failed", path=self._path)
            request.setResponseCode(500)
            body = b"the page failed; the log of liqod says why\n"
        request.setHeader("content-length", str(len(body)))
        request.write(body)
        request.finish()


class Bodiless(Request):
    """A request that has no body: one that announces any is refused before a byte of it is kept."""

    _is_refused = False

    def gotLength(self, length: int | None) -> None:
        if length == 0:
            super().gotLength(length)
            return
        self._is_refused = True
        transport = _transport_of(self)
        if transport is not None:
            transport.write(WITH_BODY)
            self.channel.loseConnection()

    def handleContentChunk(self, data: bytes) -> None:
        """Keep nothing: what comes here belongs to a request that was refused."""

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if not self._is_refused:
            super().requestReceived(command, path, version)

    def finish(self) -> None:
        transport = _transport_of(self)
        super().finish()
        rest(transport)


def _transport_of(request: Request) -> Any:
    return getattr(request.channel, "transport", None)
