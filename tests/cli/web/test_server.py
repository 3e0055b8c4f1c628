"""The server of the page, by HTTP: who gets an answer, and what a browser may do with it."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import attrs
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred, succeed
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.status.first_screen import FirstScreen
from liqod.cli.web import cluster_reader, server
from liqod.cli.web.cluster_reader import PACE, TRIALS, ClusterReader
from liqod.cli.web.command import serve
from liqod.cli.web.view import overview
from liqod.config.schema import ClusterSettings, Settings
from liqod.demo.access import client_config
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, KubeError, ServerError, Unreachable
from liqod.kube.resources import CRDS, FOREIGNCLUSTERS, PODS, Resource
from liqod.model.diagnosis.access import NodeApiFacts
from liqod.model.diagnosis.cluster import ClusterRecords
from tests.cli.cluster_case import REACTOR
from tests.cli.test_every_command import ESCAPE, EveryCase
from tests.cli.web.page import flaws, parse

Answer = tuple[int, dict[str, str], str]


class HostTests(SynchronousTestCase):
    """Which names of this host are answered."""

    def test_loopback(self) -> None:
        """Loopback addresses and localhost are, with any port: it may have been forwarded by ssh."""
        for host in ("127.0.0.1", "127.0.0.1:8088", "localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.2:9"):
            self.assertTrue(server.is_local(host), host)

    def test_others(self) -> None:
        """Other names are not, whatever they resemble: any site can point one at 127.0.0.1."""
        for host in (
            "",
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "192.0.2.1",
            "[",
            "0.0.0.0",
        ):
            self.assertFalse(server.is_local(host), host)
        self.assertFalse(server.is_local("evil.example@127.0.0.1.example"))


class ServerTests(EveryCase):
    """The page of a cluster with a peer whose message has escapes and markup in it."""

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await self.serve(self.client)

    async def serve(self, client: Client) -> None:
        """Serve the page of what a client reads."""
        settings = Settings(cluster=ClusterSettings(name="rome"))
        session = Session(Options(), reactor=REACTOR, client=client, settings=settings)
        listening, self.url = serve(session)
        self.addCleanup(lambda: maybeDeferred(listening.stopListening))
        self.token = urlsplit(self.url).path.strip("/")

    async def ask(self, path: str = "", method: str = "GET", *, token: str = "", **headers: str) -> Answer:
        """Send one request; ``path`` is beneath the token's."""
        place = urlsplit(self.url)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}

        def work() -> Answer:
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
            connection.request(method, f"/{token or self.token}/{path}", headers=fields)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

        found: Answer = await deferToThread(work)
        return found

    async def test_pages(self) -> None:
        """The first page and that of a peer are whole, well-formed, and show what ``status`` says."""
        for path, said in (("", "1 cluster: 1 broken"), ("peer/c2", "milan: Suspect, broken")):
            status, _, body = await self.ask(path)
            self.assertEqual(status, 200, body)
            page = parse(body)
            self.assertEqual(flaws(page), [], path)
            self.assertEqual(page.one("announcement").text, said)
            self.assertNotIn(ESCAPE, body)
            self.assertIn("SessionBroken", page.one("next").text)

    async def test_same_as_commands(self) -> None:
        """Problems and advice of the page are those that ``status`` prints."""
        out, _, _ = await self.outcome("status", "-o", "json")
        problems = json.loads(out)["problems"]
        page = parse((await self.ask())[2]).one("next").text
        self.assertTrue(problems)
        for problem in problems:
            self.assertIn(problem["code"], page)
            self.assertIn(problem["advice"], page)

    async def test_unchanged(self) -> None:
        """Equal state is not sent again, and a change is."""
        _, headers, _ = await self.ask()
        status, _, body = await self.ask(If_None_Match=headers["etag"])
        self.assertEqual((status, body), (304, ""))
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"clusterName": "turin"}}, subresource="status")
        self.assertIn("turin", (await until_changed(self, headers["etag"]))[2])

    async def test_reading_only(self) -> None:
        """Nothing but GET and HEAD is answered, and HEAD has no body."""
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, headers, _ = await self.ask(method=method)
            self.assertEqual((status, headers["allow"]), (405, "GET, HEAD"), method)
        status, headers, body = await self.ask(method="HEAD")
        self.assertEqual((status, body), (200, ""))
        self.assertGreater(int(headers["content-length"]), 1000)

    async def test_refused(self) -> None:
        """Without the token, or by a name that is not this host's, nobody learns anything."""
        for token in ("x", self.token[:-1], f"{self.token}x", self.token.swapcase()):
            status, _, body = await self.ask(token=token)
            self.assertEqual((status, "milan" in body), (404, False), token)
        status, _, body = await self.ask(Host="evil.example")
        self.assertEqual((status, "milan" in body), (403, False))

    async def test_policy(self) -> None:
        """Every answer forbids scripts in pages, frames, forms and other hosts, and tells nobody its address."""
        for path in ("", "peer/c2", "style.css", "live.js", "icon.svg", "nothing", "peer/nobody"):
            _, headers, _ = await self.ask(path)
            policy = headers["content-security-policy"]
            self.assertIn("default-src 'none'", policy, path)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertNotIn("http", policy)
            self.assertEqual(headers["referrer-policy"], "no-referrer")
            self.assertEqual(headers["x-content-type-options"], "nosniff")

    async def test_no_such_page(self) -> None:
        """A peer that is not there is a page with the way back; other addresses are refused."""
        status, _, body = await self.ask("peer/nobody")
        self.assertEqual((status, flaws(parse(body))), (404, []))
        for path in ("nothing", "../server.py", "peer", "files/live.js", "static/../../command.py"):
            self.assertEqual((await self.ask(path))[0], 404, path)

    async def test_out_of_date(self) -> None:
        """Where nothing can be read any more, the page says why and what to do, beside what was seen before."""
        _, headers, before = await self.ask()
        self.assertTrue("hidden" in parse(before).one("trouble").attributes)
        await self.client.delete(CRDS, "foreignclusters.discovery.liqo.io")
        page = parse((await until_changed(self, headers["etag"]))[2])
        self.assertIn("LQ1006", page.one("trouble").text)
        self.assertIn("liqodctl install", page.one("trouble").text)
        self.assertNotIn("hidden", page.one("trouble").attributes)
        self.assertIn("milan", page.one("peers").text)

    async def test_never_seen(self) -> None:
        """Where the API server never answered, the page is one sentence with what to do."""
        nowhere = attrs.evolve(client_config(self.cluster), server="https://127.0.0.1:1")
        client = Client(nowhere, REACTOR)
        self.addCleanup(close, client)
        await self.serve(client)
        for path in ("", "peer/c2"):
            status, _, body = await self.ask(path)
            page = parse(body)
            self.assertEqual((status, flaws(page)), (503, []))
            self.assertIn("LQ1003", page.one("error").text)
            self.assertIn("check the network", page.one("error").text)

    async def test_again_after_silence(self) -> None:
        """An API server that did not answer is asked again as soon as one that did."""
        clock = Clock()
        asked: list[float] = []

        class Silent:
            """An API server that takes half a minute to say nothing."""

            config = client_config(self.cluster)

            async def list(self, resource: Resource, *_: Any, **__: Any) -> Any:
                if resource == FOREIGNCLUSTERS:
                    asked.append(clock.seconds())
                    clock.advance(30)
                raise Unreachable("no answer")

            async def create(self, *_: Any, **__: Any) -> Any:
                raise Unreachable("no answer")

            page = create

        session: Any = SimpleNamespace(reactor=clock, client=Silent(), settings=Settings(), options=Options())
        latest = ClusterReader(session)
        for _ in range(2):
            self.failureResultOf(Deferred.fromCoroutine(latest.read()), CliError)
            clock.advance(PACE)
        self.assertEqual(asked, [0.0, 30 + PACE])

    async def test_read_once(self) -> None:
        """The cluster is read once for all who ask at the same time."""
        client = Counting(client_config(self.cluster), REACTOR)
        self.addCleanup(close, client)
        latest = ClusterReader(Session(Options(), reactor=REACTOR, client=client, settings=Settings()))
        found = await gatherResults([Deferred.fromCoroutine(latest.read()) for _ in range(8)])
        self.assertEqual({trouble for _, trouble in found}, {""})
        self.assertEqual(client.listed[FOREIGNCLUSTERS], 1)

    async def test_as_status_says(self) -> None:
        """What was not read, or tried in vain, is on the page as in ``status``; pods nobody may see do not break it."""
        for client, said in (
            (Refusing(client_config(self.cluster), REACTOR, Forbidden(403, "Forbidden", "no")), ""),
            (Refusing(client_config(self.cluster), REACTOR, ServerError(503, "", "etcd is full")), "etcd is full"),
        ):
            self.addCleanup(close, client)
            await self.serve(client)
            status, _, body = await self.ask()
            page = parse(body)
            self.assertEqual((status, flaws(page)), (200, []))
            self.assertIn("milan", page.one("peers").text)
            self.assertEqual("NotExamined" in page.one("next").text, bool(said))
            self.assertIn(said, page.one("next").text)

    def test_trials(self) -> None:
        """What the API server gets through to is tried twice a minute, and shown until it is tried again."""
        clock = Clock()
        tried: list[float] = []
        trouble = NodeApiFacts("liqo-milan", "192.0.2.1", 5875, "refused")

        async def screen(_: Any, *, tries: bool = True, **__: Any) -> FirstScreen:
            if tries:
                tried.append(clock.seconds())
            return FirstScreen(ClusterRecords(node_apis=[trouble] if tries else ()))

        self.patch(cluster_reader, "first_screen", screen)
        empty = SimpleNamespace(items=[])
        client = SimpleNamespace(list=lambda *_, **__: succeed(empty), config=client_config(self.cluster))
        settings = Settings(cluster=ClusterSettings(name="rome"))
        session: Any = SimpleNamespace(reactor=clock, client=client, settings=settings, options=Options())
        latest = ClusterReader(session)
        for _ in range(16):
            found = self.successResultOf(Deferred.fromCoroutine(latest.read()))[0]
            self.assertEqual(found.facts.node_apis, [trouble])
            self.assertTrue(any("NodeAPIUnreachable" in step.text for step in overview(found).steps))
            clock.advance(PACE)
        self.assertEqual(tried, [0.0, TRIALS])

    async def test_connections(self) -> None:
        """More connections than a few browsers need are closed at once, and the next ones get an answer again."""
        place = urlsplit(self.url)

        def work() -> list[int]:
            crowd = [http.client.HTTPConnection(place.hostname or "", place.port, timeout=30) for _ in range(40)]
            refused = 0
            for one in crowd:
                one.connect()
            for one in crowd:
                try:
                    one.request("GET", f"/{self.token}/icon.svg")
                    one.getresponse().read()
                except (ConnectionError, http.client.HTTPException):
                    refused += 1
            for one in crowd:
                one.close()
            return [refused]

        self.assertEqual(await deferToThread(work), [40 - server.CONNECTIONS])
        self.assertEqual((await self.ask("icon.svg"))[0], 200)


class Refusing(Client):
    """A client whose API server says the same whenever pods are to be listed."""

    def __init__(self, config: Any, reactor: Any, error: KubeError) -> None:
        super().__init__(config, reactor)
        self._error = error

    async def list(self, resource: Resource, *args: Any, **named: Any) -> Any:
        if resource == PODS:
            raise self._error
        return await super().list(resource, *args, **named)


class Counting(Client):
    """A client that counts what it lists."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.listed: Counter[Resource] = Counter()

    async def list(self, resource: Resource, *args: Any, **named: Any) -> Any:
        self.listed[resource] += 1
        return await super().list(resource, *args, **named)


def close(client: Client) -> Deferred[None]:
    """Close a client at the end of a test."""
    return Deferred.fromCoroutine(client.close())


async def until_changed(case: ServerTests, tag: str) -> Answer:
    """Ask as the script does, until the answer is another one."""
    for _ in range(600):
        answer = await case.ask(If_None_Match=tag)
        if answer[0] != 304:
            return answer
        await deferLater(REACTOR, 0.1)
    raise AssertionError("the page did not change")
