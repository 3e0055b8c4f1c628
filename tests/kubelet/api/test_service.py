"""The API of virtual nodes on loopback: who gets in, and what passes between a caller and a lender."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from twisted.internet import ssl
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from liqod.config.schema import KubeletSettings, Settings
from liqod.flow.clocks import installed_reactor
from liqod.kube.client import Client
from liqod.kube.connection.answers import MOST_PARTS
from liqod.kube.connection.config import from_grant
from liqod.kubelet.api import answers
from liqod.kubelet.api.nodes import NodeAccess, PodRoute
from liqod.kubelet.api.service import NodeAPI
from liqod.kubelet.common.views import HomePod
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta
from tests.kubelet.api.lender_server import Connection, LenderFactory
from tests.testbed.certs import Authority

POD = Key("shop", "web")
HERE = "127.0.0.1"
EXEC = b"POST /exec/shop/web/main?command=id HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class Home(Resource):
    """The home cluster's API server, as far as callers are concerned."""

    isLeaf = True

    def __init__(self, client_ca: bytes) -> None:
        super().__init__()
        self.client_ca = client_ca
        self.allowed = {"apiserver": {"get nodes/proxy", "create nodes/proxy"}, "metrics": {"get nodes/metrics"}}
        self.reviews = 0

    def render(self, request: Request) -> Any:
        request.setHeader(b"content-type", b"application/json")
        name = request.path.rsplit(b"/", 1)[-1]
        if name == b"configmaps":
            meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": "1"}
            item = {"metadata": meta, "data": {"client-ca-file": self.client_ca.decode()}}
            if b"watch" in request.args:
                end = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
                for kind, seen in (("ADDED", item), ("BOOKMARK", {"metadata": end})):
                    request.write(json.dumps({"type": kind, "object": seen}).encode() + b"\n")
                return NOT_DONE_YET
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": [item]}).encode()
        body = json.loads(request.content.read() if request.content is not None else b"{}")
        if name == b"tokenreviews":
            good = body["spec"]["token"] == "good"
            return json.dumps(
                {"status": {"authenticated": good, "user": {"username": "metrics" if good else ""}}}
            ).encode()
        if name == b"subjectaccessreviews":
            self.reviews += 1
            asked = body["spec"]["resourceAttributes"]
            right = f"{asked['verb']} {asked['resource']}/{asked['subresource']}"
            return json.dumps({"status": {"allowed": right in self.allowed.get(body["spec"]["user"], ())}}).encode()
        request.setResponseCode(404)
        return json.dumps({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no such kind"}).encode()


class SomeNodes:
    """A virtual node with the pod ``web``, and another one of the same lender with the pod ``db``, if it is there."""

    def __init__(self, lender: Client | None) -> None:
        self.lender = lender
        self.nodes = {"liqo-milan": POD}
        self.there: bool | None = True
        self.status = msgspec.Raw(b"{}")

    def route(self, pod: Key) -> PodRoute | None:
        node = next((node for node, its in self.nodes.items() if its == pod), None)
        uid = "uid" if pod == POD else pod.name
        return PodRoute(node, self.lender, "shop-rome", uid, there=self.there) if node is not None else None

    def pods(self, node: str = "") -> Iterable[HomePod]:
        keys = [pod for name, pod in self.nodes.items() if node in ("", name)]
        spec = msgspec.Raw(b'{"containers":[{"name":"main"}],"initContainers":[{"name":"first"}]}')
        metas = [ObjectMeta(name=key.name, namespace=key.namespace) for key in keys]
        return [HomePod(metadata=meta, spec=spec, status=self.status) for meta in metas]

    def accesses(self) -> Iterable[NodeAccess]:
        return [NodeAccess(node, self.lender, {"shop": "shop-rome"}) for node in self.nodes]


class NodeApiTests(TestCase):
    timeout = 20

    async def setUp(self) -> None:  # type: ignore[override]
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        authority = Authority(self.directory, "home")
        self.apiserver = authority.issue("apiserver", "apiserver", group="masters")
        self.home = Home(authority.pem)
        site = Site(self.home)
        site.noisy = False
        self.lender = LenderFactory()
        home_port = await self._listen(site)
        lender_port = await self._listen(self.lender)
        self.home_client = Client(from_grant(f"http://{HERE}:{home_port}", None, lambda: "ours"), reactor)
        self.lender_client = Client(from_grant(f"http://{HERE}:{lender_port}/prefix", None, lambda: "granted"), reactor)
        self.nodes = SomeNodes(self.lender_client)
        bound: Deferred[None] = Deferred()
        kubelet = KubeletSettings(listen=f"tcp:0:interface={HERE}", signer="example.com/signer")
        settings = Settings(kubelet=kubelet)
        self.api = NodeAPI(installed_reactor(), self.home_client, self.nodes, settings=settings, address=HERE)
        port = self.api.ports.acquire(Key("tenant", "milan"), "liqo-milan", recorded=0, taken=())
        self.api.ports.bound.subscribe(lambda number: bound.callback(None) if number else None)
        self.api.startService()
        self.addCleanup(self.home_client.close)
        self.addCleanup(self.lender_client.close)
        self.addCleanup(lambda: self.api.stopService() if self.api.running else None)
        await bound
        self.assertEqual(port.value, self.api.port)
        await self._eventually(lambda: bool(self.api._serving._authorities))

    async def _listen(self, factory: Any) -> int:
        port = await TCP4ServerEndpoint(self.reactor, 0, interface=HERE).listen(factory)
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def _eventually(self, look: Any) -> None:
        while not look():
            await deferLater(self.reactor, 0.02)

    async def _connect(self, identity: tuple[bytes, bytes] | None = None, port: int = 0) -> Connection:
        options: Any = ssl.CertificateOptions()
        if identity is not None:
            options = ssl.PrivateCertificate.loadPEM(identity[1] + identity[0]).options()
        endpoint = SSL4ClientEndpoint(self.reactor, HERE, port or self.api.port, options)
        connection: Connection = await endpoint.connect(Factory.forProtocol(Connection))
        self.addCleanup(self._close, connection)
        return connection

    def _close(self, connection: Connection) -> Deferred[bytes]:
        closed = connection.until(None)
        if connection.lost is None:
            connection.transport.abortConnection()
        return closed

    async def _ask(self, head: bytes, until: bytes, identity: tuple[bytes, bytes] | None = None) -> Connection:
        connection = await self._connect(identity)
        connection.transport.write(head)
        await connection.until(until)
        return connection

    async def _get(self, path: str, *headers: str, port: int = 0) -> bytes:
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
        connection = await self._connect(self.apiserver if not headers else None, port)
        connection.transport.write("\r\n".join(lines).encode())
        return await connection.until(None)

    async def test_strangers(self) -> None:
        """Without a certificate of the cluster's client CA or a token that it knows nobody learns anything."""
        for header in ("X-Remote-User: admin", "Authorization: Bearer bad", "Authorization: Basic Z29vZA=="):
            for path in ("/healthz", "/pods", "/containerLogs/shop/web/main", "/no/such/thing"):
                answer = await self._get(path, header)
                self.assertTrue(answer.startswith(b"HTTP/1.1 401 "), answer)
        self.assertEqual(self.home.reviews, 0)
        stranger = Authority(Path(self.mktemp_directory()), "home").issue("a", "apiserver", group="masters")
        connection = await self._connect(stranger)
        connection.transport.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(await connection.until(None), b"")
        self.assertEqual(self.lender.connections, [])

    def mktemp_directory(self) -> str:
        directory: str = self.mktemp()
        Path(directory).mkdir()
        return directory

    async def test_rights(self) -> None:
        """A known caller may do what the cluster says it may, and learns what it lacks."""
        token = "Authorization: Bearer good"
        self.assertIn(b" 200 ", await self._get("/metrics/resource", token))
        answer = await self._get("/containerLogs/shop/web/main", token)
        self.assertIn(b" 403 ", answer)
        self.assertIn(b"metrics may not get nodes/proxy liqo-milan", answer)
        answer = await self._get("/exec/shop/web/main", token, "Connection: Upgrade", "Upgrade: SPDY/3.1")
        self.assertIn(b" 403 ", answer)
        self.assertEqual([c for c in self.lender.connections if b"metrics.k8s.io" not in c.data], [])

    async def test_usage(self) -> None:
        """What the lender's metrics say about our pods is what the node's pages say, in their own units."""
        odd = {"name": 'a"b\n', "usage": {"cpu": "much", "memory": "-1"}}
        used = {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}
        self.lender.metrics = [
            {"metadata": {"name": "web"}, "containers": [used, odd]},
            {"metadata": {"name": "stranger"}, "containers": [used]},
        ]
        self.home.allowed["apiserver"] = {"get nodes/metrics", "get nodes/stats"}
        page = (await self._get("/metrics/resource")).decode()
        labels = '{container="main",namespace="shop",pod="web"}'
        self.assertIn(f"container_memory_working_set_bytes{labels} 67108864\n", page)
        self.assertEqual(page.count("container="), 2, "the lender's own names are no time series here")
        self.assertIn('pod_memory_working_set_bytes{namespace="shop",pod="web"} 67108864\n', page)
        self.assertIn("node_memory_working_set_bytes 67108864\n", page)
        self.assertNotIn("stranger", page)
        summary = json.loads((await self._get("/stats/summary")).partition(b"\r\n\r\n")[2])
        self.assertEqual(summary["node"]["nodeName"], "liqo-milan")
        (pod,) = summary["pods"]
        self.assertEqual(pod["podRef"], {"name": "web", "namespace": "shop", "uid": "uid"})
        self.assertEqual(pod["cpu"]["usageNanoCores"], 250_000_000)

    async def test_when_it_began(self) -> None:
        """The summary says when a pod and its containers began, by its status at home; the node with this daemon."""
        used = {"name": "main", "usage": {"cpu": "250m"}}
        self.lender.metrics = [{"metadata": {"name": "web"}, "containers": [used, {"name": "first", "usage": {}}]}]
        self.nodes.status = msgspec.Raw(
            b'{"startTime":"2026-01-01T00:00:01Z","containerStatuses":'
            b'[{"name":"main","state":{"running":{"startedAt":"2026-01-01T00:00:05Z"}}}]}'
        )
        self.home.allowed["apiserver"] = {"get nodes/stats"}
        summary = json.loads((await self._get("/stats/summary")).partition(b"\r\n\r\n")[2])
        self.assertRegex(summary["node"]["startTime"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        (pod,) = summary["pods"]
        self.assertEqual(pod["startTime"], "2026-01-01T00:00:01Z")
        begun = {one["name"]: one["startTime"] for one in pod["containers"]}
        self.assertEqual(begun, {"main": "2026-01-01T00:00:05Z", "first": "2026-01-01T00:00:01Z"})

    async def test_usage_that_is_said_again_and_again(self) -> None:
        """A pod counts once, and so does each of its containers, however often the lender names them."""
        used = {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}
        first = {"name": "first", "usage": {"memory": "1Mi"}}
        self.lender.metrics = [{"metadata": {"name": "web"}, "containers": [used, used, first, used]}] * 3
        self.home.allowed["apiserver"] = {"get nodes/metrics"}
        page = (await self._get("/metrics/resource")).decode()
        self.assertIn('pod_memory_working_set_bytes{namespace="shop",pod="web"} 68157440\n', page)

    async def test_usage_of_the_pods_of_another_lender(self) -> None:
        """A lender says nothing of what runs at another one, though both have pods of the namespace."""
        used = {"name": "main", "usage": {"cpu": "1k", "memory": "64Gi"}}
        self.lender.metrics = [{"metadata": {"name": "web"}, "containers": [used]}]
        silent: Any = None
        self.nodes.accesses = lambda: [  # type: ignore[method-assign]
            NodeAccess("liqo-turin", self.nodes.lender, {"shop": "shop-rome"}),
            NodeAccess("liqo-milan", silent, {"shop": "shop-rome"}),
        ]
        self.nodes.nodes["liqo-turin"] = Key("shop", "db")
        self.home.allowed["apiserver"] = {"get nodes/metrics"}
        self.assertNotIn(b'pod="web"', await self._get("/metrics/resource"))

    async def test_usage_of_millions(self) -> None:
        """A list that is small in JSON and huge once decoded is not decoded."""
        used = {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}
        self.lender.metrics = [{"metadata": {"name": "web"}, "containers": [used]}, *([{}] * (MOST_PARTS // 2))]
        self.home.allowed["apiserver"] = {"get nodes/metrics"}
        self.assertNotIn(b'pod="web"', await self._get("/metrics/resource"))

    async def test_the_usage_of_a_namesake(self) -> None:
        """What another pod of the name uses at the lender is not said to be used by this one."""
        used = {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}
        self.lender.metrics = [{"metadata": {"name": "web"}, "containers": [used]}]
        self.home.allowed["apiserver"] = {"get nodes/metrics"}
        self.nodes.there = False
        self.assertNotIn(b'pod="web"', await self._get("/metrics/resource"))

    async def test_a_port_for_each_node(self) -> None:
        """Where there are two nodes the port says which one is asked: its pods, its usage, its name."""
        self.home.allowed["apiserver"] |= {"get nodes/metrics", "get nodes/stats"}
        used = {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}
        more = {"name": "main", "usage": {"cpu": "500m", "memory": "1Mi"}}
        self.lender.metrics = [
            {"metadata": {"name": "web"}, "containers": [used]},
            {"metadata": {"name": "db"}, "containers": [more]},
        ]
        self.nodes.nodes["liqo-turin"] = Key("shop", "db")
        second = self.api.ports.acquire(Key("tenant", "turin"), "liqo-turin", recorded=0, taken=())
        await self._eventually(lambda: second.value)
        self.assertNotEqual(second.value, self.api.port)
        for port, node, pod, memory in (
            (self.api.port, "liqo-milan", "web", 67108864),
            (second.value, "liqo-turin", "db", 1048576),
        ):
            listed = json.loads((await self._get("/pods", port=port)).partition(b"\r\n\r\n")[2])
            self.assertEqual([each["metadata"]["name"] for each in listed["items"]], [pod])
            summary = json.loads((await self._get("/stats/summary", port=port)).partition(b"\r\n\r\n")[2])
            self.assertEqual(
                (summary["node"]["nodeName"], summary["node"]["memory"]["workingSetBytes"]), (node, memory)
            )
            self.assertEqual([each["podRef"]["name"] for each in summary["pods"]], [pod])
            page = (await self._get("/metrics/resource", port=port)).decode()
            self.assertIn(f"node_memory_working_set_bytes {memory}\n", page)
            self.assertEqual([name in page for name in ('pod="web"', 'pod="db"')], [pod == "web", pod == "db"])
        connection = await self._connect(self.apiserver, second.value)
        connection.transport.write(b"GET /containerLogs/shop/web/main HTTP/1.1\r\nHost: x\r\n\r\n")
        await connection.until(b"one\n")
        await self.api.ports.release(Key("tenant", "turin"))
        self.assertEqual(second.value, 0)

    async def test_answers_are_kept_for_a_while(self) -> None:
        """Who asks twice is looked up once."""
        for _ in range(2):
            self.assertIn(b'"name":"web"', await self._get("/pods"))
        self.assertEqual(self.home.reviews, 2)

    async def test_what_is_not_there(self) -> None:
        """Pods that are on no virtual node, or cannot be reached, are distinguished."""
        self.assertIn(b" 404 ", await self._get("/containerLogs/shop/other/main"))
        self.assertIn(b" 404 ", await self._get("/configz"))
        self.assertIn(b" 400 ", await self._get("/exec/shop/web/main"))
        self.nodes.lender = None
        self.assertIn(b" 503 ", await self._get("/containerLogs/shop/web/main"))

    async def test_bodies(self) -> None:
        """Requests with a body are refused, and what comes of it is kept nowhere."""
        head = b"POST /exec/shop/web/main HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789"
        connection = await self._ask(head, b"no body", self.apiserver)
        self.assertIn(b" 413 ", connection.data)

    async def test_heads(self) -> None:
        """A head of more than 64 KiB is refused while it comes; the long URL of a command is served."""
        words = "&".join(["command=" + "x" * 1000] * 50)
        answer = await self._get(f"/exec/shop/web/main?{words}")
        self.assertIn(b"upgraded", answer)
        lines = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(70))
        connection = await self._connect(self.apiserver)
        connection.transport.write(b"GET /healthz HTTP/1.1\r\n" + lines)
        self.assertTrue((await connection.until(None)).startswith(b"HTTP/1.1 400 "))

    async def test_streams(self) -> None:
        """Only so many logs and streams are open at a time; one that ends leaves its place."""
        self.assertEqual(answers.MAX_STREAMS, 256)
        self.patch(answers, "MAX_STREAMS", 2)
        log = b"GET /containerLogs/shop/web/main?follow=true HTTP/1.1\r\nHost: x\r\n\r\n"
        first = await self._ask(EXEC, b"first:", self.apiserver)
        await self._ask(log, b"one\n", self.apiserver)
        for head in (EXEC, log):
            refused = await self._ask(head, b"which is the limit", self.apiserver)
            self.assertIn(b" 503 ", refused.data)
        self.assertEqual(len(self.lender.connections), 2)
        first.transport.abortConnection()
        await self.lender.connections[0].until(None)
        await self._ask(EXEC, b"first:", self.apiserver)

    async def test_room_beside_logs_that_are_followed(self) -> None:
        """What follows the logs of all pods leaves room for a shell and for a log that is read once."""
        self.assertLess(answers.MAX_FOLLOWED, answers.MAX_STREAMS)
        self.patch(answers, "MAX_FOLLOWED", 1)
        options = b"follow=true&timestamps=true&sinceTime=2026-11-27T00:00:00Z"
        log = b"GET /containerLogs/shop/web/main?" + options + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        first = await self._ask(log, b"one\n", self.apiserver)
        self.assertIn(b" 503 ", (await self._ask(log, b"which is the limit", self.apiserver)).data)
        await self._ask(EXEC, b"first:", self.apiserver)
        await self._ask(log.replace(b"follow=true", b"tailLines=1"), b"one\n", self.apiserver)
        first.transport.abortConnection()
        await self.lender.connections[0].until(None)
        await self._ask(log, b"one\n", self.apiserver)
        # Who was interrupted goes on where it was: the lender gets the time of the last line.
        asked = b"log?container=main&follow=true&timestamps=true&sinceTime=2026-11-27T00%3A00%3A00Z "
        self.assertIn(asked, self.lender.connections[-1].data)

    async def test_a_log_that_is_followed(self) -> None:
        """Each piece of a log passes when it comes; when the reader leaves, the lender's connection is closed."""
        head = b"GET /containerLogs/shop/web/main?follow=true HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await self._ask(head, b"one\n", self.apiserver)
        (server,) = self.lender.connections
        self.assertTrue(
            server.data.startswith(b"GET /prefix/api/v1/namespaces/shop-rome/pods/web/log?container=main&follow=true ")
        )
        server.transport.write(b"4\r\ntwo\n\r\n")
        await connection.until(b"two\n")
        connection.transport.abortConnection()
        await server.until(None)

    async def test_a_log_that_breaks(self) -> None:
        """A log that the lender cuts off is cut off for the reader, who could not tell a part from the whole else."""
        head = b"GET /containerLogs/shop/web/main HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await self._ask(head, b"one\n", self.apiserver)
        self.lender.connections[0].transport.abortConnection()
        self.assertNotIn(b"0\r\n\r\n", await connection.until(None))

    async def test_a_log_that_ends(self) -> None:
        """A log that ends leaves the connection for the next request."""
        head = b"GET /containerLogs/shop/web/main HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await self._ask(head, b"one\n", self.apiserver)
        self.lender.connections[0].transport.write(b"0\r\n\r\n")
        await connection.until(b"0\r\n\r\n")
        connection.transport.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await connection.until(b"ok")

    async def test_the_end_of_a_log(self) -> None:
        """The end of a log comes apart from its last line: API servers lose for WebSockets what comes with the end."""
        head = b"GET /containerLogs/shop/web/main?tailLines=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await self._ask(head, b"0\r\n\r\n", self.apiserver)
        self.assertIn(b"one\n", connection.data)
        self.assertEqual(connection.pieces[-1], b"0\r\n\r\n")

    async def test_a_caller_who_does_not_wait(self) -> None:
        """A caller may leave between the last line of a log and its end."""
        head = b"GET /containerLogs/shop/web/main?tailLines=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await self._ask(head, b"one\n", self.apiserver)
        connection.transport.abortConnection()
        await connection.until(None)
        self.assertIn(b'"name":"web"', await self._get("/pods"))

    async def test_a_tunnel(self) -> None:
        """After the switch bytes pass both ways as they are; the caller's own credentials stay here."""
        head = EXEC.replace(b"\r\n\r\n", b"\r\nX-Stream-Protocol-Version: v4\r\nCookie: secret\r\n\r\nearly")
        connection = await self._ask(head, b"first:EARLY", self.apiserver)
        self.assertTrue(connection.data.startswith(b"HTTP/1.1 101 "))
        self.assertIn(b"upgrade: SPDY/3.1\r\n", connection.data)
        connection.transport.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await connection.until(b"GET /HEALTHZ HTTP/1.1\r\n\r\n")
        (server,) = self.lender.connections
        self.assertTrue(
            server.data.startswith(b"POST /prefix/api/v1/namespaces/shop-rome/pods/web/exec?container=main&")
        )
        seen = server.data.partition(b"\r\n\r\n")[0]
        self.assertIn(b"Authorization: Bearer granted", seen)
        self.assertIn(b"X-Stream-Protocol-Version: v4", seen)
        self.assertNotIn(b"secret", seen)
        server.transport.write(b"goodbye")
        server.transport.loseConnection()
        self.assertTrue((await connection.until(None)).endswith(b"goodbye"))

    async def test_a_caller_who_leaves(self) -> None:
        """When the caller's connection is lost, the lender's is closed."""
        connection = await self._ask(EXEC, b"first:", self.apiserver)
        connection.transport.abortConnection()
        await self.lender.connections[0].until(None)

    async def test_stopping(self) -> None:
        """A service that stops closes what is open, at both ends."""
        connection = await self._ask(EXEC, b"first:", self.apiserver)
        await self.api.stopService()
        await connection.until(None)
        await self.lender.connections[0].until(None)

    async def test_the_lenders_words(self) -> None:
        """What the lender refuses is refused with its code and its words, on one line."""
        connection = await self._ask(EXEC.replace(b"/exec/", b"/attach/"), b"not in my house", self.apiserver)
        self.assertIn(b" 403 ", connection.data)
        await connection.until(None)

    async def test_a_lost_credential(self) -> None:
        """A lender that does not know us any more is not taken for a cluster that does not know the caller."""
        answer = await self._get("/containerLogs/shop/web/main?previous=true")
        self.assertIn(b" 502 ", answer)
        self.assertIn(b"does not accept the credential", answer)

    async def test_a_lender_who_is_away(self) -> None:
        """A lender that cannot be reached is said to be so."""
        await self.lender_client.close()
        self.nodes.lender = Client(from_grant(f"http://{HERE}:1", None, lambda: "x"), self.reactor)
        connection = await self._ask(EXEC, b"refuses connections", self.apiserver)
        self.assertIn(b" 502 ", connection.data)

    async def test_a_namesake(self) -> None:
        """Nobody reads or enters another pod of the name: a predecessor that still ends, or a stranger's. While it is
        not known whose it is a log may be read.
        """
        log = b"GET /containerLogs/shop/web/main?tailLines=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        forward = b"POST /portForward/shop/web HTTP/1.1\r\nHost: x\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n"
        table: list[tuple[bool | None, bytes, bytes, bytes]] = [
            (False, log, b" 404 ", b"waiting to start"),
            (False, EXEC, b" 404 ", b"waiting to start"),
            (False, EXEC.replace(b"/exec/", b"/attach/"), b" 404 ", b"waiting to start"),
            (False, forward, b" 404 ", b"waiting to start"),
            (None, EXEC, b" 503 ", b"try again"),
            (None, forward, b" 503 ", b"try again"),
            (None, log, b" 200 ", b"one\n"),
        ]
        for there, head, code, words in table:
            self.nodes.there = there
            connection = await self._ask(head, b"\r\n\r\n", self.apiserver)
            await connection.until(words)
            self.assertIn(code, connection.data, (there, head))
        self.assertEqual(len(self.lender.connections), 1)

    async def test_a_slow_reader(self) -> None:
        """What nobody takes is not read from the lender: memory holds a few buffers, whatever is sent."""
        head = b"POST /portForward/shop/web HTTP/1.1\r\nHost: x\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n"
        connection = await self._ask(head, b"101", self.apiserver)
        connection.transport.pauseProducing()
        await self._eventually(lambda: self.lender.paused)
        await deferLater(self.reactor, 0.3)
        self.assertTrue(self.lender.paused)
        self.assertLess(self.lender.sent, 32 << 20)
        seen = self.lender.sent
        connection.transport.resumeProducing()
        await self._eventually(lambda: self.lender.sent > seen)
