"""What the tests of flow and kube share: an HTTP server in memory and a look into the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import attrs
from constantly import NamedConstant
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import ILogObserver, LogLevel, globalLogPublisher
from twisted.test import iosim
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource as WebResource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface import implementer

from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.model.objects.meta import Object


class ConfigMap(Object, frozen=True):
    """A view for tests; a value that is no text makes an object unreadable."""

    data: dict[str, str] = {}


def warnings_of(case: SynchronousTestCase) -> list[dict[str, Any]]:
    """Return a list that gathers the warnings logged during a test."""
    return logged(case, LogLevel.warn)


def logged(case: SynchronousTestCase, *levels: NamedConstant) -> list[dict[str, Any]]:
    """Return a list that gathers what is logged at these levels during a test."""
    events: list[dict[str, Any]] = []

    @implementer(ILogObserver)
    def observe(event: dict[str, Any]) -> None:
        if event.get("log_level") in levels:
            events.append(event)

    observer = cast(ILogObserver, observe)
    globalLogPublisher.addObserver(observer)
    case.addCleanup(globalLogPublisher.removeObserver, observer)
    return events


Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None


class Answers(WebResource):
    """Answers every request by a function; None leaves the answer open, to be written by hand."""

    isLeaf = True

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        super().__init__()
        self.answer = answer

    def render(self, request: Request) -> Any:
        given = self.answer(request)
        if given is None:
            return NOT_DONE_YET
        code, body, *headers = given
        request.setResponseCode(code)
        for name, value in (headers[0] if headers else {}).items():
            request.setHeader(name.encode(), value.encode())
        return body if isinstance(body, bytes) else json.dumps(body).encode()


@implementer(IStreamClientEndpoint)
class MemoryServer:
    """An HTTP server reached through memory: real client, real server, no sockets.

    ``refusing`` makes connections fail; ``flush`` carries bytes until both sides are quiet; ``cut`` breaks what
    is connected.
    """

    def __init__(self, answer: Callable[[Request], Answer], clock: Clock) -> None:
        self.clock = clock
        self.refusing = False
        self.connections = 0
        self._site = Site(Answers(answer), reactor=clock)
        self._site.startFactory()
        self._pumps: list[Any] = []

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        if self.refusing:
            return fail(ConnectionRefusedError())
        self.connections += 1
        address = IPv4Address("TCP", "127.0.0.1", 6443)
        server = self._site.buildProtocol(address)
        client = protocolFactory.buildProtocol(address)
        pump = iosim.connect(
            server,
            iosim.FakeTransport(server, isServer=True, peerAddress=address),
            client,
            iosim.FakeTransport(client, isServer=False, peerAddress=address),
        )
        self._pumps.append(pump)
        return succeed(client)

    def flush(self) -> None:
        for _ in range(8):
            for pump in list(self._pumps):
                pump.flush()
            self.clock.advance(0)

    def cut(self) -> None:
        for pump in self._pumps:
            for transport in (pump.clientIO, pump.serverIO):
                transport.abortConnection()
        self.flush()
        self._pumps.clear()


def memory_client(
    answer: Callable[[Request], Answer], clock: Clock | None = None, config: ClientConfig | None = None, **options: Any
) -> tuple[Client, MemoryServer]:
    """Return a client and the server in memory that it talks to."""
    clock = clock or MemoryReactorClock()
    server = MemoryServer(answer, clock)
    config = attrs.evolve(config or ClientConfig("http://api.test:6443"), dial=server)
    client = Client(config, clock, random=lambda: 0.5, **options)
    return client, server


def status(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """Return a Status body."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def config_map(name: str, version: int, namespace: str = "default", uid: str = "", **data: Any) -> dict[str, Any]:
    """Return a ConfigMap as the API sends it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:data": {}}}],
        },
        "data": data,
    }
