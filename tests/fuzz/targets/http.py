"""Heads and bodies of HTTP/1.1, and what of requests the relay, and the API of a virtual node, pass on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote

from liqod.http1.connection import Connection, MessageLimits
from liqod.http1.errors import Malformed
from liqod.http1.messages import Data, EndOfMessage, Request, make_request
from liqod.kubelet.api import targets as node
from liqod.peering.relay import policy, targets
from liqod.peering.relay.rejection import Rejected
from tests.fuzz.cost import Target, step_of
from tests.http1 import oracle

LIMITS: Final = MessageLimits(body=1 << 20)
GET: Final = b"GET /api/v1/namespaces/shop-rome/pods HTTP/1.1\r\nHost: x\r\n"
CHUNKED: Final = GET + b"Transfer-Encoding: chunked\r\n\r\n"
PATHS: Final = (
    b"GET /api/v1/namespaces/shop-rome/pods/web/log?container=a",
    b"DELETE /apis/discovery.k8s.io/v1/namespaces/shop-rome/endpointslices?watch=0",
    b"GET /apis/offloading.liqo.io/v1beta1/shadowpods?watch=%74rue&w=1",
    b"POST /api/v1/namespaces/shop-rome/pods/web/exec?command=sh",
    b"GET /readyz",
    b"GET //api/v1/namespaces/%2e%2e/pods",
)
NODE_PATHS: Final = (
    b"GET /containerLogs/shop/web-0/main?follow=true&tailLines=5&x=1",
    b"POST /exec/shop/web/main?command=sh&command=-c&command=a%20b%26c&input=1&output=1&tty=1",
    b"POST /attach/shop/web/0000-uid/main?input=1",
    b"POST /portForward/shop/web?port=80&ports=8080",
    b"GET /containerLogs/shop/..%2f..%2fkube-system/main",
    b"GET /stats/summary?only_cpu_and_memory=true",
)
# From the API reference of pods: what their subresources log, exec, attach and portforward take.
OPTIONS: Final = frozenset(
    {
        "command",
        "container",
        "follow",
        "limitBytes",
        "ports",
        "previous",
        "sinceSeconds",
        "sinceTime",
        "stderr",
        "stdin",
        "stdout",
        "stream",
        "tailLines",
        "timestamps",
        "tty",
    }
)


def head(data: bytes) -> None:
    """A head, cut as the first byte says, to a server or a client: what is accepted, a second reader accepts too."""
    role: Literal["server", "client"] = "client" if data[:1] > b"\x7f" else "server"
    connection = Connection(role, LIMITS)
    if role == "client":
        connection.send(make_request(b"GET", b"/", [(b"Host", b"x")]), EndOfMessage())
    step, rest = step_of(data, 127), data[1:]
    for start in range(0, len(rest), step):
        connection.receive(rest[start : start + step])
        try:
            event = connection.next_event()
        except Malformed as malformed:
            assert malformed.message
            assert 400 <= malformed.code < 600
            return
        assert len(connection.unread) <= LIMITS.head + step
        if event is not None:
            whole = rest[: rest.index(b"\r\n\r\n") + 4]
            if isinstance(event, Request):
                _passed_on(event, whole)
            else:
                oracle.parse_response(whole)
            return


def framing(data: bytes) -> None:
    """A body in chunks, cut as the first byte says: it ends where a second reader says, or is refused by both."""
    step, rest = step_of(data, 256), data[1:]
    connection, second = Connection("server", LIMITS), oracle.Chunks(LIMITS.body)
    connection.receive(CHUNKED)
    assert isinstance(connection.next_event(), Request)
    try:
        used = second.take(rest)
    except oracle.Bad:
        used = -1
    body = b""
    for start in range(0, len(rest), step):
        connection.receive(rest[start : start + step])
        try:
            while (event := connection.next_event()) is not None:
                if isinstance(event, Data):
                    body += event.data
                elif isinstance(event, EndOfMessage):
                    assert second.done
                    assert body == second.data
                    assert connection.unread == rest[used : start + step]
                    return
        except Malformed:
            assert used < 0 or not second.done
            return
    assert not second.done


def relay(data: bytes) -> None:
    """Method and target of a request: what is asked for is what the path says, in names that need no decoding."""
    method, _, target = data.partition(b" ")
    request = Request(method, target, ((b"host", b"x"),), 0)
    try:
        call = policy.examine(request)
        ask = targets.ask_of(call.method, call.target)
    except Rejected as rejected:
        assert rejected.message
        return
    path = target.partition(b"?")[0].decode()
    if ask.path:
        assert ask.path == path
        return
    assert unquote(path) == path
    assert ".." not in path
    words = path.split("/")[1:]
    assert all(words)
    named = [word for word in (ask.group, ask.namespace, ask.resource, ask.name, ask.subresource) if word]
    assert [word for word in words if word in named], (path, ask)
    assert len([word for word in words if word not in named]) <= 3, (path, ask)
    assert ask.verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def node_request(data: bytes) -> None:
    """Method and target of a request to a virtual node: not served, or a subresource of that very pod at the lender."""
    method, _, uri = data.decode("latin-1").partition(" ")
    target = node.parse(uri)
    needed = node.rights(target, method)
    assert needed
    if target is None or isinstance(target, node.Page):
        return
    if isinstance(target, node.Stream):
        assert {one.verb for one in needed} == {"create"}
    path = node.lender_path(target, "shop-rome")
    assert path.isascii()
    assert path.isprintable()
    assert not set(path) & set(" #\\")
    asked, _, query = path.partition("?")
    name, _, subresource = asked.removeprefix("/api/v1/namespaces/shop-rome/pods/").partition("/")
    assert name == target.pod.name
    assert subresource in ("log", "exec", "attach", "portforward")
    assert {key for key, _ in parse_qsl(query, keep_blank_values=True)} <= OPTIONS


def _passed_on(request: Request, whole: bytes) -> None:
    try:
        call = policy.examine(request)
    except Rejected as rejected:
        assert rejected.message
        return
    meant = oracle.parse_request(whole)
    assert (call.method, call.target, call.length) == (meant.method, meant.target, meant.length)
    sent = policy.forward(b"", call, [(b"Host", b"api"), (b"Impersonate-User", b"borrower")])
    assert oracle._lines(sent.head)[1][b"impersonate-user"] == [b"borrower"]


TARGETS: Final[Mapping[str, Target]] = {"head": head, "framing": framing, "relay": relay, "node-request": node_request}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "head": [
        b"\x7e" + GET + b"Accept: a/b\r\nContent-Length: 3\r\n\r\nabc",
        b"\x03" + CHUNKED,
        b"\x7e" + GET + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n",
        b"\xfe" + b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 0\r\n\r\n",
        b"\xfe" + b"HTTP/1.0 403 \r\nTransfer-Encoding: chunked\r\nDate: x\r\n\r\n",
        b"\x7e" + GET + b"X-A: " + b" a" * 900 + b"\r\n\r\n",
    ],
    "framing": [
        b"\xff3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nGET /",
        b"\x000\r\n\r\n",
        b"\x025;a=b\r\nabcde\r\n",
        b"\xff" + b"1\r\na\r\n" * 400 + b"0\r\n\r\n",
    ],
    "relay": list(PATHS),
    "node-request": list(NODE_PATHS),
}
