"""Answers requests to virtual nodes: pages from local caches, logs and streams from the lender."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from liqod.flow.connections.handshake import serve
from liqod.http1.responses import switching
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError, Unauthorized
from liqod.kube.reviews import UserInfo
from liqod.kubelet.api.callers import Callers, user_of
from liqod.kubelet.api.nodes import Nodes, NoPorts, PodRoute, Ports
from liqod.kubelet.api.server import TEXT, ApiRequest, RequestRejected
from liqod.kubelet.api.targets import Logs, Page, Stream, Target, lender_path, parse, rights
from liqod.kubelet.api.tls import client_certificate
from liqod.kubelet.api.tunnel import StreamProxy, open_at_lender, upgrade_headers
from liqod.kubelet.api.usage import Usage
from liqod.kubelet.common.messages import clean_message

MAX_STREAMS: Final = 256
"""Maximum number of logs and tunnels open at the same time."""
MAX_FOLLOWED: Final = 192
"""Maximum number of those that are logs which are followed: what collects the logs of all pods must leave room for
people who look into one."""
JSON: Final = b"application/json"
END_AFTER: Final = 0.001
"""Seconds between the last data of a log and the end of its body, which are therefore in different TLS records: an API
server that serves a log over WebSocket drops data that it reads together with the end. Source: k8s.io/streaming,
pkg/httpstream/wsstream/stream.go, messageCopy."""
PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format 0.0.4, by which a scraper chooses its parser."""


class Answers:
    """Answers requests for the pods on virtual nodes."""

    def __init__(self, clock: IReactorTime, nodes: Nodes, callers: Callers, usage: Usage) -> None:
        self._clock = clock
        self._nodes = nodes
        self._callers = callers
        self._usage = usage
        self.ports: Ports = NoPorts()
        """The ports of the nodes, by which pages know which node they are of."""
        self._streams = 0
        self._followed = 0
        self._tunnels: set[StreamProxy] = set()

    def abort(self) -> None:
        """Close all tunnels at once, on both sides."""
        for tunnel in list(self._tunnels):
            tunnel.abort()

    async def answer(self, request: ApiRequest) -> None:
        """Answer one request, or raise RequestRejected."""
        user = await self._identify(request)
        uri = bytes(request.uri)
        if not uri.isascii():
            raise RequestRejected(400, "the path is not ASCII")
        target = parse(uri.decode("ascii"))
        route = self._nodes.route(target.pod) if isinstance(target, Logs | Stream) else None
        node = self._asked_node(request) if isinstance(target, Page) else route.node if route is not None else ""
        await self._authorize(user, target, bytes(request.method).decode("ascii", "replace"), node)
        serve(request.channel.transport)
        if target is None:
            raise RequestRejected(404, "virtual nodes do not serve this")
        allowed = (b"GET", b"POST") if isinstance(target, Stream) else (b"GET", b"HEAD")
        if request.method not in allowed:
            raise RequestRejected(405, f"this takes {' or '.join(method.decode() for method in allowed)}")
        if isinstance(target, Page):
            await self._page(request, target, node)
        else:
            await self._pass_on(request, target, route)

    async def _pass_on(self, request: ApiRequest, target: Logs | Stream, route: PodRoute | None) -> None:
        if route is None:
            raise RequestRejected(404, f"the pod {target.pod} is on none of the virtual nodes of this daemon")
        if not route.namespace:
            raise RequestRejected(
                404, f"the pod {target.pod} is not offloaded: its namespace has no counterpart at the lender"
            )
        if route.client is None:
            raise RequestRejected(
                503, f"the pod {target.pod} cannot be reached: {route.node} has no access to its lender"
            )
        _check_pod(target, route.there)
        if self._streams >= MAX_STREAMS:
            raise RequestRejected(503, f"{MAX_STREAMS} logs and streams are open, which is the limit; close some")
        follows = isinstance(target, Logs) and target.follows
        if follows and self._followed >= MAX_FOLLOWED:
            raise RequestRejected(503, f"{MAX_FOLLOWED} logs are followed, which is the limit; read this one without")
        path = lender_path(target, route.namespace)
        self._streams += 1
        self._followed += follows
        try:
            if isinstance(target, Logs):
                await self._log(request, route.client, path)
            else:
                await self._tunnel(request, route.client, path)
        except Unauthorized as error:
            # Passed on, 401 would tell the caller that its own credential is invalid.
            message = f"the lender does not accept the credential that it gave us: {error.message}"
            raise RequestRejected(502, clean_message(message)) from error
        except ApiError as error:
            raise RequestRejected(error.code, clean_message(error.message)) from error
        except KubeError as error:
            raise RequestRejected(502, clean_message(str(error))) from error
        finally:
            self._streams -= 1
            self._followed -= follows

    async def _identify(self, request: ApiRequest) -> UserInfo:
        certificate = client_certificate(request.channel.transport)
        user = user_of(certificate) if certificate is not None else None
        scheme, _, token = request.header(b"authorization").partition(b" ")
        if user is None and scheme.lower() == b"bearer":
            try:
                user = await self._callers.by_token(token.strip().decode("ascii", "replace"))
            except KubeError as error:
                raise RequestRejected(503, f"who calls could not be found out: {clean_message(str(error))}") from error
        if user is None:
            raise RequestRejected(
                401,
                "unauthorized: show a client certificate that this cluster's client CA signed, or a token it knows",
            )
        return user

    async def _authorize(self, user: UserInfo, target: Target | None, method: str, node: str) -> None:
        needed = rights(target, method)
        try:
            allowed = await self._callers.may(user, needed, node)
        except KubeError as error:
            raise RequestRejected(503, f"what {user.username} may do could not be found out: {error}") from error
        if not allowed:
            words = " or ".join(f"{right.verb} nodes/{right.subresource}" for right in needed)
            raise RequestRejected(403, f"forbidden: {clean_message(user.username)} may not {words} {node}".rstrip())

    def _asked_node(self, request: ApiRequest) -> str:
        """Return the node whose port a request came in by; empty if that is no node's own."""
        return self.ports.node_at(int(getattr(request.channel.transport.getHost(), "port", 0)))

    async def _page(self, request: ApiRequest, page: Page, node: str) -> None:
        if page.name == "healthz":
            request.send(200, b"ok")
        elif page.name == "pods":
            items = [
                {"metadata": msgspec.to_builtins(pod.metadata), "spec": pod.spec, "status": pod.status}
                for pod in self._nodes.pods(node)
            ]
            body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
            request.send(200, msgspec.json.encode(body), JSON)
        elif page.name == "stats/summary":
            request.send(200, msgspec.json.encode(await self._usage.summary(node)), JSON)
        else:
            request.send(200, (await self._usage.text(node)).encode(), PROMETHEUS)

    async def _log(self, request: ApiRequest, client: Client, path: str) -> None:
        relay = _LogBody(request, self._clock)
        abort = await client.stream(path, relay, counted=("get", "pods/log"))
        try:
            await relay.ended
        except CancelledError:
            abort()
            raise

    async def _tunnel(self, request: ApiRequest, client: Client, path: str) -> None:
        if not request.header(b"upgrade"):
            raise RequestRejected(400, "this takes a connection that is upgraded (Connection: Upgrade)")
        passed = upgrade_headers(
            (name, value) for name, values in request.requestHeaders.getAllRawHeaders() for value in values
        )
        try:
            lender, passed_back = await open_at_lender(client, bytes(request.method), path, passed)
        except ValueError as error:
            raise RequestRejected(400, "a header of the upgrade holds what no header may hold") from error
        home = request.channel.transport
        # The channel is the producer of its transport; from here the two transports are producers of each other.
        home.unregisterProducer()
        tunnel = StreamProxy(home, lender.transport, self._clock)
        self._tunnels.add(tunnel)
        try:
            request.upgrade(switching(passed_back), tunnel.from_home, tunnel.home_lost)
            lender.attach(tunnel)
            # As for any request, this is cancelled when the caller's connection is lost.
            await Deferred()
        finally:
            self._tunnels.discard(tunnel)


def _check_pod(target: Logs | Stream, there: bool | None) -> None:
    """Raise RequestRejected unless the pod at the lender, known there by its name alone, is the one that is asked for.

    While that is unknown (before the first list, or while its watch is interrupted) a log is passed on: it changes
    nothing, and is asked for in such times above all. What acts in a pod waits, because it might act in another one.
    """
    if there is False:
        raise RequestRejected(
            404, f"the pod {target.pod} is not at the lender: it is waiting to start there, or has gone from there"
        )
    if there is None and isinstance(target, Stream):
        raise RequestRejected(
            503, f"it is not known yet whether the lender runs the pod {target.pod} or a namesake; try again shortly"
        )


class _LogBody(Protocol):
    """Streams the body of a lender's response to a request; ``ended`` fires at its end."""

    transport: Any

    def __init__(self, request: ApiRequest, clock: IReactorTime) -> None:
        self.ended: Deferred[None] = Deferred(lambda _: None)
        self._request = request
        self._clock = clock
        request.setHeader(b"content-type", TEXT)

    def connectionMade(self) -> None:
        self._request.registerProducer(self.transport, True)
        # Send the response head at once: a followed log may stay silent for long.
        self._request.write(b"")

    def dataReceived(self, data: bytes) -> None:
        if not self.ended.called:
            self._request.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.ended.called:
            return
        self._request.unregisterProducer()
        if reason.check(ResponseDone, PotentialDataLoss):
            self._clock.callLater(END_AFTER, self._end)
        else:
            # Without the last chunk (RFC 9112) the reader recognises the truncated body.
            self._request.channel.loseConnection()
            self.ended.callback(None)

    def _end(self) -> None:
        # The caller may have left meanwhile, which cancels ``ended``.
        if not self.ended.called:
            self._request.finish()
            self.ended.callback(None)
