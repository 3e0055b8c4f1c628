"""Serves the page on 127.0.0.1: GET and HEAD only, to those who know the token in its address.

Every user of this host can connect to a port of 127.0.0.1, hence the token. A site in the user's browser could point
its own name at 127.0.0.1 (DNS rebinding), hence the check of Host: no name but localhost is answered.
"""

from __future__ import annotations

import hashlib
import secrets
from importlib.resources import files
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from twisted.internet.defer import Deferred
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import CACHED, OK
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.web.cluster_reader import ClusterReader
from liqod.cli.web.pages import error_page, overview_page, peer_html
from liqod.cli.web.view import overview, peer_page
from liqod.flow.connections.factories import QuietSite
from liqod.model.addresses import parse_ip

HERE: Final = "127.0.0.1"
CONNECTIONS: Final = 32
IDLE: Final = 30.0
"""Seconds after which a connection without a request is closed."""
STATIC: Final = {
    "style.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HTML: Final = "text/html; charset=utf-8"
PLAIN: Final = "text/plain; charset=utf-8"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_local(host: str) -> bool:
    """Return whether a Host header is one of this host's loopback: nobody else can make a name of it. Pure."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    address = parse_ip(name)
    return name == "localhost" or (address is not None and address.is_loopback)


class Pages(Resource):
    """The whole tree of pages under ``/TOKEN/``."""

    isLeaf = True

    def __init__(self, latest: ClusterReader) -> None:
        super().__init__()
        self.token = secrets.token_urlsafe(16)
        self._latest = latest
        folder = files("liqod.cli.web").joinpath("files")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def render(self, request: Request) -> bytes | int:
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        if request.method not in (b"GET", b"HEAD"):
            request.setHeader("Allow", "GET, HEAD")
            return _refuse(request, 405, "this page can only be read")
        if not is_local(request.getHeader("host") or ""):
            return _refuse(request, 403, "the name of this host is not answered; use the address that was printed")
        token, _, path = request.path.decode("ascii", "replace").lstrip("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _refuse(request, 404, "there is no such page; use the whole address that was printed")
        if path in STATIC:
            return _answer(request, self._static[path], STATIC[path])
        if path and not path.startswith("peer/"):
            return _refuse(request, 404, "there is no such page")
        peer = unquote(path.removeprefix("peer/"))
        # A browser that went away does not end the reading: others may wait for it.
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)
        work = Deferred.fromCoroutine(self._render(request, peer))
        work.addErrback(lambda failure: _defect(request, failure))
        work.addCallback(lambda body: None if gone else _finish(request, body))
        return NOT_DONE_YET

    async def _render(self, request: Request, peer: str) -> bytes:
        up = "../" if peer else None
        try:
            records, trouble = await self._latest.read()
        except CliError as error:
            request.setResponseCode(503)
            return _answer(request, error_page(error.code, error.message, error.hint, up=up), HTML)
        if not peer:
            return _answer(request, overview_page(overview(records), trouble), HTML)
        page = peer_page(records, peer)
        if page is not None:
            return _answer(request, peer_html(page, trouble), HTML)
        if not records.facts.knows_peers:
            request.setResponseCode(503)
            hint = "the first page says why; this page goes on by itself"
            return _answer(request, error_page(errors.UNREACHABLE, "the peers could not be read", hint, up=up), HTML)
        request.setResponseCode(404)
        hint = "all clusters that are known are on the first page"
        return _answer(request, error_page(errors.NO_SUCH_PEER, "there is no such peer", hint, up=up), HTML)


class LimitedConnections(WrappingFactory):
    """Refuses connections above ``CONNECTIONS``; a browser opens six."""

    noisy = False

    def buildProtocol(self, addr: Any) -> Any:
        return super().buildProtocol(addr) if len(self.protocols) < CONNECTIONS else None


def site(pages: Pages) -> Any:
    """Return the factory that serves pages: Any, since Twisted declares wrapping factories as ones of clients."""
    return LimitedConnections(QuietSite(pages, timeout=IDLE))


def _answer(request: Request, body: str | bytes, kind: str) -> bytes:
    """Return the body to send; none where the browser has it already."""
    data = body if isinstance(body, bytes) else body.encode("utf-8", "replace")
    request.setHeader("Content-Type", kind)
    if request.code == OK and request.setETag(f'"{hashlib.sha256(data).hexdigest()[:32]}"'.encode()) is CACHED:
        return b""
    request.setHeader("Content-Length", str(len(data)))
    return data


def _refuse(request: Request, code: int, why: str) -> bytes:
    request.setResponseCode(code)
    return _answer(request, why + "\n", PLAIN)


def _finish(request: Request, body: bytes) -> None:
    request.write(body)
    request.finish()


def _defect(request: Request, failure: Failure) -> bytes:
    request.setResponseCode(500)
    error = f"a defect of liqod: {type(failure.value).__name__}: {failure.getErrorMessage()}"
    return _answer(request, error_page(errors.DEFECT, error, errors.MEANINGS[errors.DEFECT][1]), HTML)
