"""The pages for machines: ``/metrics``, ``/healthz`` (is the process sound?), ``/readyz`` (does it do its work?)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.web.resource import Resource
from twisted.web.server import Request

from liqod.metrics.registry import CONTENT_TYPE, Registry


def pages(registry: Registry, health: Callable[[], Sequence[str]], readiness: Callable[[], Sequence[str]]) -> Resource:
    """Return the root; ``health`` and ``readiness`` return the problems, one sentence each."""
    root = Resource()
    root.putChild(b"", _Index())
    root.putChild(b"metrics", _Numbers(registry))
    root.putChild(b"healthz", _Check(health))
    root.putChild(b"readyz", _Check(readiness))
    return root


class _Index(Resource):
    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        request.setHeader("content-type", "text/plain; charset=utf-8")
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
        request.setHeader("content-type", "text/plain; charset=utf-8")
        missing = self._missing()
        if not missing:
            return b"ok\n"
        request.setResponseCode(503)
        return "".join(f"{sentence}\n" for sentence in missing).encode()
