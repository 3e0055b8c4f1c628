"""Serves metrics and health checks over HTTP; retries if the port is in use, instead of failing the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.server import Site

from liqod.flow.clocks import Reactor
from liqod.flow.connections.listening import server_endpoint
from liqod.metrics.registry import Registry
from liqod.metrics.resource import pages

RETRY = 10.0
"""Seconds between two attempts to listen."""


class _Quiet(Site):
    """A site without access log: metrics are scraped every few seconds."""

    def log(self, request: Request) -> None:
        return


class MetricsServer(Service):
    """Listens where ``listen`` (an endpoint string) says and serves one registry; ``port`` is the bound port or 0."""

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        listen: str,
        registry: Registry,
        health: Callable[[], Sequence[str]],
        readiness: Callable[[], Sequence[str]],
    ) -> None:
        self._reactor = reactor
        self._listen = listen
        self._site = _Quiet(pages(registry, health, readiness))
        self._site.displayTracebacks = False
        self._site.noisy = False
        self._listening: IListeningPort | None = None
        self._attempt: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._said = ""

    @property
    def port(self) -> int:
        if self._listening is None:
            return 0
        return int(getattr(self._listening.getHost(), "port", 0))

    def startService(self) -> None:
        super().startService()
        self._bind()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempt is not None:
            self._attempt.cancel()
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        return maybeDeferred(listening.stopListening).addCallback(lambda _: None)

    def _bind(self) -> None:
        self._timer = None
        endpoint = server_endpoint(self._reactor, self._listen)
        self._attempt = maybeDeferred(endpoint.listen, self._site).addCallbacks(self._bound, self._not_bound)

    def _bound(self, listening: IListeningPort) -> None:
        self._attempt = None
        self._listening = listening
        self._log.info("metrics, health and readiness are served on {address}", address=listening.getHost())

    def _not_bound(self, failure: Failure) -> None:
        self._attempt = None
        if not self.running or failure.check(CancelledError):
            return
        sentence = failure.getErrorMessage()
        if sentence != self._said:
            self._said = sentence
            self._log.warn("metrics.listen = {listen}: {error}; tried again", listen=self._listen, error=sentence)
        self._timer = self._reactor.callLater(RETRY, self._bind)
