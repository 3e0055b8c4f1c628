"""The pages over TLS, for whom the cluster lets, on a sandbox cluster; and what strangers cannot do to them."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.client import ResponseNeverReceived

from liqod.config.schema import MetricsSettings
from liqod.demo.access import client_config
from liqod.kube.client import Client
from liqod.kube.resources import CLUSTERROLEBINDINGS, CLUSTERROLES, NAMESPACES, SECRETS, SERVICEACCOUNTS
from liqod.metrics import certificate, service
from liqod.metrics.certificate import SECRET, name_in
from liqod.metrics.registry import Registry
from liqod.metrics.service import LIMITS, MetricsServer, OwnCluster
from tests.metrics.scraper import HERE, REACTOR, Scraper
from tests.testbed.certs import Authority

OWN = "liqo-system"
RBAC = "rbac.authorization.k8s.io"


class Raw(Protocol):
    """Sends bytes as they are, and collects what comes until the other side closes."""

    transport: Any

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.received = b""
        self.closed: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        if self._data:
            self.transport.write(self._data)

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(self.received)


class ServingCase(TestCase):
    """A server, and callers."""

    timeout = 30

    def setUp(self) -> None:
        self.registry = Registry()
        self.registry.gauge("liqod_x", "X.", (), lambda: [((), 1)])
        self.missing: list[str] = []

    def serve(self, cluster: OwnCluster | None = None, **settings: Any) -> MetricsServer:
        server = MetricsServer(
            REACTOR,
            MetricsSettings(**{"listen": f"tcp:0:interface={HERE}", **settings}),
            self.registry,
            health=list,
            readiness=lambda: self.missing,
            cluster=cluster,
        )
        server.startService()
        self.addCleanup(server.stopService)
        return server

    async def until(self, what: Callable[[], Any], seconds: float = 15) -> None:
        deadline = REACTOR.seconds() + seconds
        while not what():
            if REACTOR.seconds() > deadline:
                raise AssertionError("it did not happen in time")
            await deferLater(REACTOR, 0.02)

    async def send(self, server: MetricsServer, data: bytes) -> Raw:
        endpoint = TCP4ClientEndpoint(REACTOR, HERE, server.bound.value)
        raw: Raw = await connectProtocol(endpoint, Raw(data))
        self.addCleanup(raw.abort)
        return raw


class ClusterTests(ServingCase):
    """With the certificate that the daemons of a cluster have in common, for whom the cluster lets."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        await self.client.create(NAMESPACES, {"metadata": {"name": OWN}})
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        await self.client.create(CLUSTERROLES, {"metadata": {"name": "scrape"}, "rules": rules})
        self.tokens = {name: await self.token_of(name) for name in ("prometheus", "somebody")}
        await self.client.create(
            CLUSTERROLEBINDINGS,
            {
                "metadata": {"name": "scrape"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "scrape"},
                "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
            },
        )

    async def token_of(self, name: str) -> str:
        """Return a token of an account that is made."""
        await self.client.create(SERVICEACCOUNTS, {"metadata": {"name": name}}, "default")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self.client.create(SERVICEACCOUNTS, request, "default", name=name, subresource="token")
        return str(answer["status"]["token"])

    def own(self, *, prepared: bool = True) -> MetricsServer:
        cluster = OwnCluster(namespace=OWN, client=lambda: self.client, is_prepared=lambda: prepared)
        return self.serve(cluster, tls="own", authentication="kubernetes")

    async def scraper_of(self, server: MetricsServer) -> Scraper:
        """Return a scraper that trusts what the documentation says: the CA in the Secret, and the name."""
        await self.until(lambda: server.certificate_end)
        secret: dict[str, Any] = await self.client.get(SECRETS, SECRET, OWN)
        return Scraper(server.bound.value, name_in(OWN), base64.b64decode(secret["data"]["ca.crt"]))

    async def test_who_may_scrape(self) -> None:
        """The account with the right gets the metrics; others get a code and a sentence, and are counted."""
        server = self.own()
        scraper = await self.scraper_of(server)
        code, body = await scraper.get("/metrics", self.tokens["prometheus"])
        self.assertEqual(code, 200)
        self.assertIn("liqod_x 1.0\n", body)
        code, body = await scraper.get("/metrics", self.tokens["somebody"])
        self.assertEqual((code, "liqod_x" in body), (403, False))
        self.assertIn("system:serviceaccount:default:somebody may not get /metrics", body)
        for token in ("", "invented"):
            self.assertEqual((await scraper.get("/metrics", token))[0], 401)
        self.assertEqual((await scraper.get("/metrics", Authorization="Basic eDp5"))[0], 401)
        self.assertEqual(server.refused.counts, {"ScrapeForbidden": 1, "ScrapeUnauthorized": 3})

    async def test_a_right_to_something_below(self) -> None:
        """Who may get a path below `/metrics`, as API servers have some, may not get this page by it."""
        rules = [{"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]}]
        await self.client.create(CLUSTERROLES, {"metadata": {"name": "below"}, "rules": rules})
        binding = {
            "metadata": {"name": "below"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "below"},
            "subjects": [{"kind": "ServiceAccount", "name": "somebody", "namespace": "default"}],
        }
        await self.client.create(CLUSTERROLEBINDINGS, binding)
        scraper = await self.scraper_of(self.own())
        for path in ("/metrics/slis", "/metrics/", "/metrics"):
            code, body = await scraper.get(path, self.tokens["somebody"])
            self.assertEqual((code, "liqod_x" in body), (403, False), path)

    async def test_a_right_that_is_withdrawn(self) -> None:
        """Ends the next scrape but what is remembered for a minute."""
        server = self.own()
        scraper = await self.scraper_of(server)
        self.assertEqual((await scraper.get("/metrics", self.tokens["prometheus"]))[0], 200)
        await self.client.delete(CLUSTERROLEBINDINGS, "scrape")
        self.assertEqual((await scraper.get("/metrics", self.tokens["prometheus"]))[0], 200)
        other = await self.scraper_of(self.own())
        self.assertEqual((await other.get("/metrics", self.tokens["prometheus"]))[0], 403)

    async def test_probes(self) -> None:
        """Everybody learns whether the daemon is sound and ready; who may get the metrics learns why not. That every
        cluster lets everybody get `/readyz` gives nobody that right.
        """
        scraper = await self.scraper_of(self.own())
        self.assertEqual(await scraper.get("/healthz"), (200, "ok\n"))
        self.assertEqual(await scraper.get("/readyz"), (200, "ok\n"))
        self.missing = ["Unreachable: the peer milan at 192.0.2.1 does not answer"]
        code, body = await scraper.get("/readyz")
        self.assertEqual((code, "milan" in body), (503, False))
        code, body = await scraper.get("/readyz", self.tokens["prometheus"])
        self.assertEqual((code, body), (503, self.missing[0] + "\n"))
        code, body = await scraper.get("/readyz", self.tokens["somebody"])
        self.assertEqual((code, "milan" in body), (403, False))

    async def test_one_certificate_for_all_daemons(self) -> None:
        """The first makes it, all show it, and one that begins later changes nothing."""
        servers = [self.own() for _ in range(3)]
        scrapers = [await self.scraper_of(server) for server in servers]
        found = await self.client.get(SECRETS, SECRET, OWN)
        scrapers.append(await self.scraper_of(self.own()))
        self.assertEqual(await self.client.get(SECRETS, SECRET, OWN), found)
        self.assertEqual({scraper.ca for scraper in scrapers}, {scrapers[0].ca})
        for scraper in scrapers:
            self.assertEqual(await scraper.get("/healthz"), (200, "ok\n"))

    async def test_another_name_or_authority(self) -> None:
        """A scraper that expects another server, or trusts another CA, sends it no token."""
        server = self.own()
        scraper = await self.scraper_of(server)
        stranger = Authority(Path(self.mktemp_directory()), "another").pem
        for name, ca in (("liqod-metrics.other.svc", scraper.ca), (scraper.name, stranger)):
            with self.assertRaises(ResponseNeverReceived):
                await Scraper(scraper.port, name, ca).get("/metrics", self.tokens["prometheus"])
        self.assertEqual(server.refused.counts, {})

    def mktemp_directory(self) -> str:
        """Return a new directory."""
        path = Path(self.mktemp())
        path.mkdir()
        return str(path)

    async def test_before_the_cluster_is_prepared(self) -> None:
        """A certificate that nobody trusts is enough for probes, and nothing is written."""
        server = self.own(prepared=False)
        self.assertEqual(await Scraper(server.bound.value).get("/healthz"), (200, "ok\n"))
        await deferLater(REACTOR, 0.2)
        self.assertIsNone(server.certificate_end)
        names = [one["metadata"]["name"] for one in (await self.client.list(SECRETS, OWN)).items]
        self.assertNotIn(SECRET, names)

    async def test_a_secret_that_cannot_be_used(self) -> None:
        """It is replaced."""
        await self.client.create(SECRETS, {"metadata": {"name": SECRET}, "data": {"tls.crt": "eA=="}}, OWN)
        scraper = await self.scraper_of(self.own())
        self.assertEqual(await scraper.get("/healthz"), (200, "ok\n"))

    async def test_silent_connections(self) -> None:
        """Who opens connections and says nothing keeps no scraper out: the oldest of them go."""
        server = self.own()
        scraper = await self.scraper_of(server)
        silent = [await self.send(server, b"") for _ in range(LIMITS.per_address)]
        await deferLater(REACTOR, 1.1)
        self.assertEqual((await scraper.get("/metrics", self.tokens["prometheus"]))[0], 200)
        await self.until(lambda: any(one.closed.called for one in silent))


class FilesTests(ServingCase):
    """With a certificate and a token in files."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.authority = Authority(self.directory, "mine")
        self.authority.issue("pages", "pages", hosts=["pages.example"])
        self.token = self.directory / "token"
        self.token.write_text("secret\n")

    def own(self) -> MetricsServer:
        return self.serve(
            tls="files",
            certificate=str(self.directory / "pages.crt"),
            key=str(self.directory / "pages.key"),
            authentication="token",
            token_file=str(self.token),
        )

    def scraper(self, server: MetricsServer) -> Scraper:
        return Scraper(server.bound.value, "pages.example", self.authority.pem)

    async def test_a_scrape(self) -> None:
        """The certificate is the one in the file, and the token opens the page."""
        server = self.own()
        await self.until(lambda: server.certificate_end)
        self.assertEqual((await self.scraper(server).get("/metrics", "secret"))[0], 200)
        self.assertEqual((await self.scraper(server).get("/metrics", "secre"))[0], 401)

    async def test_a_renewed_certificate(self) -> None:
        """One that was renewed in its files is shown without a restart; until both are there the former one is."""
        self.patch(certificate, "CHECK", 0.05)
        self.patch(certificate, "RETRY", 0.05)
        server = self.own()
        await self.until(lambda: server.certificate_end)
        former, key = server.certificate_end, self.directory / "pages.key"
        before = key.read_bytes()
        self.authority.issue("pages", "pages", hosts=["renewed.example"])
        after = key.read_bytes()
        key.write_bytes(before)
        await deferLater(REACTOR, 0.3)
        self.assertEqual(server.certificate_end, former)
        self.assertEqual((await self.scraper(server).get("/metrics", "secret"))[0], 200)
        key.write_bytes(after)
        renewed = Scraper(server.bound.value, "renewed.example", self.authority.pem)
        deadline = REACTOR.seconds() + 10
        while True:
            try:
                self.assertEqual((await renewed.get("/metrics", "secret"))[0], 200)
                return
            except ResponseNeverReceived:
                if REACTOR.seconds() > deadline:
                    raise
            await deferLater(REACTOR, 0.05)

    async def test_files_that_are_gone(self) -> None:
        """The daemon serves probes all the same, and says what is missing in its log alone."""
        (self.directory / "pages.key").unlink()
        server = self.own()
        await deferLater(REACTOR, 0.1)
        self.assertEqual(await Scraper(server.bound.value).get("/healthz"), (200, "ok\n"))
        self.assertIsNone(server.certificate_end)


class HostileTests(ServingCase):
    """What strangers send, at loopback without TLS: the same requests as over it."""

    def setUp(self) -> None:
        super().setUp()
        self.token = self.mktemp()
        Path(self.token).write_text("secret")

    def call(self, head: str, body: bytes = b"") -> bytes:
        return f"{head}\r\nHost: x\r\n\r\n".encode() + body

    async def test_bodies(self) -> None:
        """A request with a body is refused before a byte of it is kept, however it is announced."""
        server = self.serve()
        for header in ("Content-Length: 10", "Content-Length: 99999999999", "Transfer-Encoding: chunked"):
            raw = await self.send(server, self.call(f"POST /metrics HTTP/1.1\r\n{header}", b"x" * 5))
            self.assertIn(b" 413 ", (await raw.closed).splitlines()[0], header)

    async def test_a_long_head(self) -> None:
        """Headers without end are cut off, and the next caller is served."""
        server = self.serve(authentication="token", token_file=self.token)
        raw = await self.send(server, b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + b"x" * (1 << 20))
        self.assertNotIn(b"liqod_x", await raw.closed)
        raw = await self.send(server, self.call("GET /healthz HTTP/1.1\r\nConnection: close"))
        self.assertTrue((await raw.closed).endswith(b"ok\n"))

    async def test_heads_without_an_answer(self) -> None:
        """HEAD is answered without a body, other methods not at all; of other pages there are none."""
        server = self.serve(authentication="token", token_file=self.token)
        for head, code in (
            ("HEAD /metrics", 401),
            ("GET /metrics", 401),
            ("HEAD /readyz", 200),
            ("POST /metrics", 405),
            ("DELETE /metrics", 501),
            ("GET /metrics/../metrics", 401),
            ("GET /metrics/slis", 401),
            ("GET /other", 404),
        ):
            raw = await self.send(server, self.call(f"{head} HTTP/1.1\r\nConnection: close"))
            answer = await raw.closed
            self.assertIn(f" {code} ".encode(), answer.splitlines()[0], head)
            self.assertNotIn(b"liqod_x", answer, head)
            if head.startswith("HEAD"):
                self.assertTrue(answer.endswith(b"\r\n\r\n"), head)

    async def test_many_at_once(self) -> None:
        """Requests one behind the other on one connection are answered each."""
        server = self.serve(authentication="token", token_file=self.token)
        calls = self.call("GET /readyz HTTP/1.1") * 50 + self.call("GET /metrics HTTP/1.1\r\nConnection: close")
        raw = await self.send(server, calls)
        answer = await raw.closed
        self.assertEqual((answer.count(b" 200 OK"), answer.count(b" 401 ")), (50, 1))

    async def test_who_hangs_up(self) -> None:
        """A caller that is gone before it is admitted leaves no error behind."""
        waiting: list[Deferred[None]] = []

        class Slow:
            def admit(self, token: bytes, path: str, source: str) -> Awaitable[None]:
                waiting.append(Deferred())
                return waiting[-1]

        self.patch(service, "_access", lambda *_: Slow())
        server = self.serve()
        callers = [await self.send(server, self.call("GET /metrics HTTP/1.1")) for _ in range(5)]
        await self.until(lambda: len(waiting) == 5)
        for raw in callers:
            raw.abort()
        await gatherResults([raw.closed for raw in callers])
        await self.until(lambda: all(one.called for one in waiting))
