"""The relay on the wire: hostile heads, bodies, upgrades, and how connections end."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.identity.tls import HTTP
from liqod.kube.connection.config import ClientConfig
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.names import tenant_namespace
from tests.peering.relay.relay_case import ROME, SPACE, ByteCollector, RelayCase


class ApiServer(Protocol):
    """An API server that says what the test tells it to; ``seen`` is what it was sent."""

    def __init__(self, case: WireTests) -> None:
        self.case = case
        self.seen = b""
        self.why: type[BaseException] | None = None

    def connectionMade(self) -> None:
        self.case.api.append(self)

    def dataReceived(self, data: bytes) -> None:
        self.seen += data
        if self.case.answer and self.seen.endswith(self.case.until_seen):
            cast(Any, self.transport).write(self.case.answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.why = reason.type
        self.case.gone.append(self)


@implementer(IHandshakeListener)
class RawCaller(ByteCollector):
    """A borrower that says whatever bytes it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: Deferred[RawCaller] = Deferred()

    def handshakeCompleted(self) -> None:
        self.ready.callback(self)

    def send(self, data: bytes) -> None:
        cast(Any, self.transport).write(data)

    def cut(self) -> None:
        if not self.lost.called:
            cast(Any, self.transport).abortConnection()


GET = f"GET /api/v1/namespaces/{SPACE}/configmaps HTTP/1.1\r\nHost: x\r\n".encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class WireTests(RelayCase):
    """ByteCollector of borrowers who are not this project's client."""

    async def setUp(self) -> None:  # type: ignore[override]
        from twisted.internet import reactor

        self.api: list[ApiServer] = []
        self.gone: list[ApiServer] = []
        self.answer, self.until_seen = OK, b"\r\n\r\n"
        factory = Factory.forProtocol(lambda: ApiServer(self))
        factory.noisy = False
        port = cast(Any, reactor).listenTCP(0, factory, interface="127.0.0.1")
        await self.begin(ClientConfig(f"http://127.0.0.1:{port.getHost().port}", token=lambda: "own"))
        self.addCleanup(port.stopListening)

    async def call(self) -> RawCaller:
        """Return a connection of rome whose handshake is complete."""
        endpoint = TCP4ClientEndpoint(self.reactor, "127.0.0.1", self.listener.port)
        wrapped = wrapClientTLS(self.rome.client_creator(HTTP), endpoint)
        caller: Any = await wrapped.connect(Factory.forProtocol(RawCaller))
        self.addCleanup(caller.cut)
        ready: RawCaller = await caller.ready
        return ready

    @property
    def seen(self) -> bytes:
        return b"".join(api.seen for api in self.api)

    async def test_smuggled_requests_do_not_pass(self) -> None:
        """Heads that two readers could understand differently end the connection; the API server sees none of it."""
        from tests.peering.relay.test_relay_requests import REFUSED

        for what, (head, code) in REFUSED.items():
            caller = await self.call()
            caller.send(head + GET + b"\r\n")
            await caller.lost.addTimeout(5, self.reactor)
            self.assertTrue(caller.data.startswith(b"HTTP/1.1 %d " % code), (what, caller.data[:100]))
            self.assertEqual(caller.data.count(b"\r\n\r\n"), 1, what)
        self.assertEqual(self.seen, b"")

    async def test_identity_is_the_relays_word(self) -> None:
        """The API server is sent the daemon's token and the borrower's account, never what the borrower says it is."""
        caller = await self.call()
        caller.send(GET + b"Authorization: Bearer stolen\r\nCookie: a\r\n\r\n")
        await self.until(lambda: caller.data.endswith(b"{}"))
        self.assertIn(b"Authorization: Bearer own\r\n", self.seen)
        self.assertIn(
            b"Impersonate-User: system:serviceaccount:%s:borrower\r\n" % tenant_namespace(ROME).encode(), self.seen
        )
        self.assertNotIn(b"stolen", self.seen)
        self.assertNotIn(b"ookie", self.seen)

    async def test_no_header_says_who_asks(self) -> None:
        """What API servers and proxies before them take for an identity is refused in any case; nothing is sent."""
        names: tuple[bytes, ...] = (
            b"Impersonate-User",
            b"Impersonate-Uid",
            b"Impersonate-Group",
            b"Impersonate-Extra-Scopes",
        )
        names += (b"X-Remote-User", b"X-Remote-Group", b"X-Remote-Extra-Scopes", b"Front-Proxy-User")
        names += (b"X-Forwarded-For", b"X-Forwarded-User", b"X-Forwarded-Host", b"X-Forwarded-Client-Cert")
        for name in names:
            for spelt in (name, name.lower(), name.upper()):
                caller = await self.call()
                caller.send(GET + spelt + b": system:masters\r\n\r\n")
                await caller.lost.addTimeout(5, self.reactor)
                self.assertTrue(caller.data.startswith(b"HTTP/1.1 403 "), (spelt, caller.data[:100]))
                self.assertIn(b"RelayIdentityClaimed", caller.data)
        self.assertEqual(self.seen, b"")
        self.assertEqual(self.refused["RelayIdentityClaimed"], 3 * len(names))

    async def test_requests_sent_ahead_are_answered_in_their_order(self) -> None:
        """Three requests in one segment, the second denied: three answers, one after another."""
        caller = await self.call()
        caller.send(GET + b"\r\n" + GET.replace(b"shop-rome", b"other") + b"\r\n" + GET + b"\r\n")
        await self.until(lambda: caller.data.count(b"HTTP/1.1 ") == 3 and caller.data.endswith(b"{}"))
        codes = [part[:3] for part in caller.data.split(b"HTTP/1.1 ")[1:]]
        self.assertEqual(codes, [b"200", b"403", b"200"])
        self.assertEqual(self.seen.count(b"GET /api"), 2)

    async def test_a_body_in_chunks(self) -> None:
        """A chunked body reaches the API server as it was sent, and what follows it is the next request."""
        self.until_seen = b"0\r\n\r\n"
        caller = await self.call()
        post = GET.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"
        caller.send(post + b"3\r\nabc\r\n")
        await self.until(lambda: self.seen.endswith(b"abc\r\n"))
        caller.send(b"0\r\n\r\n" + post)
        await self.until(lambda: caller.data.endswith(b"{}"))
        await self.until(lambda: self.seen.count(b"POST") == 2)
        self.assertEqual(self.seen.count(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\nPOST"), 1)

    async def test_a_head_that_arrives_byte_by_byte(self) -> None:
        """Where the network cuts a request makes no difference, and a second one may follow."""
        caller = await self.call()
        for byte in GET + b"\r\n" + GET + b"\r\n":
            caller.send(bytes((byte,)))
        await self.until(lambda: caller.data.count(b"{}") == 2)

    async def test_an_early_word_of_the_api_server(self) -> None:
        """Informational answers are not passed on; the answer is."""
        self.answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await self.until(lambda: caller.data.endswith(b"{}"))
        self.assertTrue(caller.data.startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertEqual(caller.data.count(b"HTTP/1.1"), 1)

    async def test_chunks_of_an_answer(self) -> None:
        """Each chunk passes when it comes, and one that could be read in two ways ends the connection."""
        self.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await self.until(lambda: caller.data.endswith(b"\r\n\r\n2\r\n{}\r\n"))
        cast(Any, self.api[0].transport).write(b"0x2\r\n{}\r\n")
        await caller.lost
        self.assertTrue(caller.data.endswith(b"\r\n\r\n2\r\n{}\r\n"))
        self.assertEqual(self.refused["RelayBadAnswer"], 1)

    async def test_an_answer_that_ends_with_its_connection(self) -> None:
        """It is passed on in chunks, so that the borrower can tell its end; cut off, it has none."""
        self.answer = b"HTTP/1.1 200 OK\r\n\r\n{}"
        for clean in (True, False):
            caller = await self.call()
            caller.send(GET + b"\r\n")
            await self.until(lambda caller=caller: b"{}" in caller.data)
            transport = cast(Any, self.api[-1].transport)
            (transport.loseConnection if clean else transport.abortConnection)()
            await caller.lost
            self.assertIn(b"Connection: close\r\n", caller.data)
            self.assertEqual(caller.data.endswith(b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), clean)

    async def test_a_head_request(self) -> None:
        """A method that is not passed on is answered although its answers have no body, and ends the connection."""
        caller = await self.call()
        caller.send(GET.replace(b"GET", b"HEAD") + b"\r\n")
        await caller.lost
        self.assertTrue(caller.data.startswith(b"HTTP/1.1 405 "))

    async def test_a_request_with_a_body_is_not_sent_twice(self) -> None:
        """What was passed on of a body is gone: when the API server closes, the borrower learns it."""
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await self.until(lambda: caller.data.endswith(b"{}"))
        self.answer = b""
        caller.send(GET + b"Content-Length: 2\r\n\r\n{}")
        await self.until(lambda: self.seen.endswith(b"{}"))
        cast(Any, self.api[0].transport).abortConnection()
        await caller.lost
        self.assertIn(b"HTTP/1.1 502 ", caller.data)
        self.assertEqual(len(self.api), 1)

    async def test_a_slow_borrower_is_not_read_for(self) -> None:
        """Of an answer of 64 MiB that nobody reads only a few MiB leave the API server; read, all of it comes."""
        size = 64 << 20
        self.answer = b""
        caller = await self.call()
        transport = cast(Any, caller.transport)
        transport.pauseProducing()
        caller.send(GET + b"\r\n")
        await self.until(lambda: self.api and self.api[0].seen.endswith(b"\r\n\r\n"))
        source = cast(Any, self.api[0].transport)
        sent = 0

        class Producer:
            def resumeProducing(self) -> None:
                nonlocal sent
                if sent < size:
                    sent += 65536
                    source.write(b"x" * 65536)

            def stopProducing(self) -> None: ...

        source.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        source.registerProducer(Producer(), False)
        before = -1
        while before != sent:
            before = sent
            await deferLater(self.reactor, 0.3)
        self.assertLess(sent, 24 << 20)
        counted = 0

        def count(data: bytes) -> None:
            nonlocal counted
            counted += len(data)

        self.patch(caller, "dataReceived", count)
        transport.pauseProducing()
        transport.resumeProducing()
        await self.until(lambda: counted > size)
        source.unregisterProducer()

    async def test_refusals_that_nobody_reads(self) -> None:
        """Of requests that are refused no more are answered than the sockets hold; read, all answers come."""
        many, refused = 200_000, 0
        reject = self.relay.rejected

        def rejected(*args: Any) -> None:
            nonlocal refused
            refused += 1
            reject(*args)

        self.patch(self.relay, "rejected", rejected)
        caller = await self.call()
        transport = cast(Any, caller.transport)
        transport.pauseProducing()
        caller.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * many)
        before = -1
        while before != refused:
            before = refused
            await deferLater(self.reactor, 1.0)
        self.assertGreater(refused, 0)
        self.assertLess(refused, many // 2)
        transport.resumeProducing()
        await self.until(lambda: refused > before)

    async def test_an_upgraded_connection(self) -> None:
        """After 101 bytes pass both ways as they are, also those sent ahead; both sides end together."""
        self.answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst"
        caller = await self.call()
        exec_ = GET.replace(b"configmaps", b"pods/a/exec?command=sh")
        caller.send(
            exec_ + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\nahead\0\xff"
        )
        await self.until(lambda: caller.data.endswith(b"first") and self.seen.endswith(b"ahead\0\xff"))
        self.assertIn(b"Upgrade: SPDY/3.1\r\n", self.seen)
        self.assertIn(b"x-stream-protocol-version: v4\r\n", self.seen)
        caller.send(b"GET / HTTP/1.1\r\n\r\n")
        await self.until(lambda: self.seen.endswith(b"GET / HTTP/1.1\r\n\r\n"))
        cast(Any, self.api[0].transport).loseConnection()
        await caller.lost

    async def test_a_tunnel_ends_gently_and_all_else_at_once(self) -> None:
        """The last bytes of a tunnel arrive before its end; an API server that answers nobody is cut off."""
        switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        exec_ = GET.replace(b"configmaps", b"pods/a/exec?command=sh")
        exec_ += b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        watch = GET.replace(b"configmaps", b"configmaps?watch=true") + b"\r\n"
        events = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        ends = ((exec_, switch, b"last words", ConnectionDone), (watch, events, b"", ConnectionLost))
        for asked, answer, last, end in ends:
            self.answer = answer
            caller = await self.call()
            caller.send(asked)
            await self.until(lambda caller=caller: caller.data)
            api, count = self.api[-1], len(self.gone)
            caller.send(last)
            cast(Any, caller.transport).loseConnection()
            await self.until(lambda count=count: len(self.gone) == count + 1)
            self.assertTrue(api.seen.endswith(last))
            self.assertIs(api.why, end)

    async def test_a_denied_request_that_wants_to_be_the_last_is(self) -> None:
        """After the answer its connection ends, as after a denied upgrade; else it stays for the next request."""
        denied = GET.replace(b"shop-rome", b"other")
        upgrade = b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        for header, ends in ((b"Connection: close\r\n", True), (upgrade, True), (b"", False)):
            caller = await self.call()
            caller.send(denied + header + b"\r\n")
            await self.until(lambda caller=caller: b"HTTP/1.1 403 " in caller.data)
            if ends:
                await caller.lost.addTimeout(5, self.reactor)
            else:
                caller.send(GET + b"\r\n")
                await self.until(lambda caller=caller: b"HTTP/1.1 200 " in caller.data)

    async def test_an_upgrade_nobody_asked_for(self) -> None:
        """An API server that switches protocols by itself is not followed."""
        self.answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await caller.lost
        self.assertIn(b"502 ", caller.data)

    async def test_a_connection_that_the_api_server_closed_while_idle(self) -> None:
        """A GET is sent again on a new connection, and the borrower does not notice."""
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await self.until(lambda: caller.data.endswith(b"{}"))
        first = self.api[0]
        self.answer = b""
        caller.send(GET + b"\r\n")
        await self.until(lambda: first.seen.count(b"GET") == 2)
        self.answer = OK
        cast(Any, first.transport).abortConnection()
        await self.until(lambda: caller.data.count(b"{}") == 2)
        self.assertEqual(caller.data.count(b"HTTP/1.1 200 "), 2)
        self.assertEqual(len(self.api), 2)

    async def test_what_may_have_changed_something_is_not_sent_twice(self) -> None:
        """Nobody knows whether it was done when the connection broke: the borrower gets 502, and asks itself."""
        for method in (b"POST", b"PUT", b"PATCH", b"DELETE"):
            caller = await self.call()
            self.answer = OK
            caller.send(GET + b"\r\n")
            await self.until(lambda caller=caller: caller.data.endswith(b"{}"))
            upstream = self.api[-1]
            self.answer = b""
            path = b"configmaps/a" if method != b"POST" else b"configmaps"
            caller.send(GET.replace(b"GET", method).replace(b"configmaps", path) + b"Content-Length: 0\r\n\r\n")
            await self.until(lambda upstream=upstream, method=method: method in upstream.seen)
            self.answer = OK
            cast(Any, upstream.transport).abortConnection()
            await self.until(lambda caller=caller: b"HTTP/1.1 502 " in caller.data)
            self.assertEqual(self.seen.count(method + b" "), 1)

    async def test_an_answer_that_breaks_off(self) -> None:
        """Half an answer is not taken for a whole one: the borrower's connection is cut."""
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await self.until(lambda: caller.data.endswith(b"{"))
        cast(Any, self.api[0].transport).abortConnection()
        await caller.lost
        self.assertTrue(caller.data.endswith(b"{"))

    async def test_the_daemons_own_token_is_not_the_borrowers_matter(self) -> None:
        """A 401 of the API server is the daemon's trouble: the borrower gets 502, not that its key is unknown."""
        self.answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
        caller = await self.call()
        caller.send(GET + b"\r\n")
        await caller.lost
        self.assertIn(b"502 ", caller.data)
        self.assertEqual(self.refused["RelayApiUnauthorized"], 1)

    async def test_a_borrower_that_leaves(self) -> None:
        """When the borrower's connection ends, what it waited for ends at the API server, too."""
        self.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        caller = await self.call()
        caller.send(GET.replace(b"configmaps", b"configmaps?watch=true") + b"\r\n")
        await self.until(lambda: b"{}" in caller.data)
        caller.cut()
        await self.until(lambda: len(self.gone) == 1)

    async def test_many_strangers(self) -> None:
        """Strangers that wait to learn why they are turned away are few; more are closed without a word."""
        from liqod.peering.relay import service

        self.patch(service, "MAX_TURNED_AWAY", 3)
        self.trusted.clear()
        callers = [await self.call() for _ in range(8)]
        await self.until(lambda: sum(caller.lost.called for caller in callers) == 5)
        waiting = next(caller for caller in callers if not caller.lost.called)
        waiting.send(GET + b"\r\n")
        await waiting.lost
        self.assertIn(b"HTTP/1.1 401 ", waiting.data)
        self.assertEqual(self.refused["RelayUnknownKey"], 8)

    async def test_many_connections(self) -> None:
        """Beyond the limit a borrower is asked to come back later; other borrowers have their own."""
        from liqod.peering.relay import service

        self.patch(service, "MAX_CONNECTIONS", 2)
        held = [await self.call() for _ in range(2)]
        third = await self.call()
        third.send(GET + b"\r\n")
        await third.lost
        self.assertIn(b"HTTP/1.1 429 ", third.data)
        self.trusted[Fingerprint("sha256:" + "0" * 64)] = ClusterID("milan")
        self.assertEqual(len(held), self.relay.connections(ROME))
