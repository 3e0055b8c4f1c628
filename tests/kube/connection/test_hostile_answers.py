"""What a lender's API server may answer: its size and its shape are bounded before it is decoded."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web._newclient import Request
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers

from liqod.kube.connection.answers import MOST_PARTS, OF_A_PEER, AnswerLimits, Collect
from liqod.kube.connection.bounded_heads import MAX_HEAD, BoundedHeads
from liqod.kube.connection.cache_quota import Allowance
from liqod.kube.connection.config import ClientConfig
from liqod.kube.connection.transport import Connections
from liqod.kube.errors import LONGEST_MESSAGE, ServerError, TooLarge, Undecodable, from_status
from liqod.kube.resources import CONFIGMAPS
from tests.kube.cases import config_map, memory_client

MIB = 1 << 20


class PageTests(SynchronousTestCase):
    """Lists of a peer's API server."""

    def page(self, body: bytes, limit: int = 500) -> Any:
        """Return the failure of a page with this body, or the page."""
        client, server = memory_client(lambda request: (200, body), allowance=Allowance())
        asked = Deferred.fromCoroutine(client.page(CONFIGMAPS, "", msgspec.Raw, limit=limit))
        server.flush()
        return asked

    def test_items_that_are_no_objects(self) -> None:
        """Two megabytes of zeros are refused, and cost a few times their size in memory, not forty times."""
        body = b'{"metadata":{},"items":[' + b"0," * MIB + b"0]}"
        tracemalloc.start()
        asked = self.page(body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.failureResultOf(asked, Undecodable)
        self.assertLess(peak, 10 * len(body))

    def test_more_than_was_asked_for(self) -> None:
        """A page has at most as many objects as its limit."""
        items = [config_map(f"a{number}", 1) for number in range(11)]
        body = json.dumps({"metadata": {}, "items": items}).encode()
        self.failureResultOf(self.page(body, limit=10), Undecodable)
        self.assertEqual(len(self.successResultOf(self.page(body, limit=11)).items), 11)

    def test_more_parts_than_are_decoded(self) -> None:
        """A page whose objects have too many parts is read in smaller ones, as one of too many bytes is."""
        limits: list[int] = []
        body = b'{"metadata":{"name":"a","finalizers":[' + b"{}," * (MOST_PARTS // 4) + b"{}]}}"

        def answer(request: Any) -> Any:
            limits.append(int(parse_qs(urlsplit(request.uri.decode()).query).get("limit", ["1"])[0]))
            return 200, b'{"metadata":{},"items":[' + b",".join([body] * min(limits[-1], 10)) + b"]}"

        client, server = memory_client(answer, allowance=Allowance())
        asked = Deferred.fromCoroutine(client.page(CONFIGMAPS, "", None, limit=100))
        for _ in range(10):
            server.flush()
            server.clock.advance(1.0)
        self.assertEqual([one["metadata"]["name"] for one in self.successResultOf(asked).items or ()], ["a"])
        self.assertEqual(limits, [100, 12, 1])

    def test_one_object_of_too_many_parts(self) -> None:
        """An object that is read alone is not decoded either."""
        body = b'{"metadata":{"name":"a"},"status":[' + b"[]," * MOST_PARTS + b"0]}"
        client, server = memory_client(lambda request: (200, body), allowance=Allowance())
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        asked = Deferred.fromCoroutine(client.get(CONFIGMAPS, "a", "d"))
        server.flush()
        _, peak = tracemalloc.get_traced_memory()
        self.failureResultOf(asked, TooLarge)
        self.assertLess(peak, 10 * len(body))

    def test_large_objects_come_in_small_pages(self) -> None:
        """A list whose pages would be too large is read in smaller ones."""
        items = [config_map(f"a{number}", 1, k="x" * MIB) for number in range(12)]

        def answer(request: Any) -> Any:
            query = parse_qs(urlsplit(request.uri.decode()).query)
            start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
            end = start + limit
            metadata = {"resourceVersion": "7", "continue": str(end) if end < len(items) else ""}
            return 200, {"metadata": metadata, "items": items[start:end]}

        client, server = memory_client(answer, allowance=Allowance())
        listed = Deferred.fromCoroutine(client.list(CONFIGMAPS))
        for _ in range(40):
            server.flush()
            server.clock.advance(1.0)  # the connection of an answer that was not read is not used again
        names = [item["metadata"]["name"] for item in self.successResultOf(listed).items]
        self.assertEqual(names, [f"a{number}" for number in range(12)])


class RefusalTests(SynchronousTestCase):
    """Refusals, which are remembered for each object that was refused."""

    def test_long_words(self) -> None:
        """Of a message of megabytes a part is kept, and the code and the reason; of the details nothing."""
        body = {"code": 500, "reason": "InternalError", "message": "x" * OF_A_PEER, "details": {"kind": "pods"}}
        error = from_status(500, json.dumps(body).encode())
        self.assertIsInstance(error, ServerError)
        self.assertEqual((error.reason, error.details), ("InternalError", {}))
        self.assertLess(len(str(error)), 2 * LONGEST_MESSAGE)
        self.assertLess(len(from_status(500, json.dumps({"reason": "y" * MIB}).encode()).reason), 1000)
        short = from_status(404, json.dumps({"message": "no", "details": {"kind": "namespaces"}}).encode())
        self.assertEqual((short.message, short.details), ("no", {"kind": "namespaces"}))

    def test_details_of_millions(self) -> None:
        """They cost no more than they are long."""
        body = b'{"code":422,"details":{"causes":[' + b"[]," * (2 * MIB) + b"0]}}"
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        error = from_status(422, body)
        _, peak = tracemalloc.get_traced_memory()
        self.assertEqual(error.details, {})
        self.assertLess(peak, len(body))


class HeadTests(SynchronousTestCase):
    """Heads of responses, which are read before anything is known of them."""

    def asked(self) -> tuple[BoundedHeads, StringTransport, Deferred[Any]]:
        """Return a connection over which a request was sent, and what comes of that."""
        connection = BoundedHeads(lambda _: None)
        transport = StringTransport()
        connection.makeConnection(transport)
        headers = Headers({b"Host": [b"api.test"]})
        return connection, transport, connection.request(Request(b"GET", b"/", headers, None, persistent=True))

    def test_headers_without_end(self) -> None:
        """They end with the connection, whether many, of many lines, or of one interim response after another."""
        lines = (
            b"X: %s\r\n" % (b"x" * 1000),
            b" %s\r\n" % (b"x" * 1000),
            b"\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n",
        )
        for line in lines:
            connection, transport, asked = self.asked()
            connection.dataReceived(b"HTTP/1.1 103 Early Hints\r\nA: b\r\n")
            for _ in range(2 * MAX_HEAD // len(line)):
                connection.dataReceived(line)
            self.failureResultOf(asked)
            self.assertTrue(transport.disconnecting or transport.disconnected)

    def test_heads_as_api_servers_send_them(self) -> None:
        """A head of many warnings is read, and so is a body that comes with it; it is not counted."""
        connection, _, asked = self.asked()
        warnings = b"Warning: 299 - x\r\n" * 1000
        body = b"x" * 2 * MAX_HEAD
        connection.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), warnings, body))
        self.assertEqual(self.successResultOf(asked).code, 200)

    def test_a_client(self) -> None:
        """Its connections are all such, kept ones and those of streams."""
        connections = Connections(ClientConfig("https://api.test"), MemoryReactorClock())
        agents: list[Any] = [connections.agent, connections.stream_agent()[0]]
        for agent in agents:
            built = agent._pool._factory(lambda _: None, "").buildProtocol(None)
            self.assertIsInstance(built, BoundedHeads)


class AnswerTests(SynchronousTestCase):
    """Bodies as they arrive."""

    def collect(self, limits: AnswerLimits) -> Collect:
        """Return the receiver of one body."""
        collect = Collect(limits)
        collect.makeConnection(StringTransport())
        return collect

    def test_one_answer(self) -> None:
        """More than a peer may send at once is not kept; the home API server may send it."""
        for limits, good in ((AnswerLimits.of_a_peer(), False), (AnswerLimits(), True)):
            collect = self.collect(limits)
            for _ in range(OF_A_PEER // MIB + 1):
                collect.dataReceived(b"x" * MIB)
            collect.connectionLost(Failure(ResponseDone()))
            if good:
                self.assertEqual(len(self.successResultOf(collect.whole)), OF_A_PEER + MIB)
            else:
                self.failureResultOf(collect.whole, TooLarge)
            self.assertEqual(limits.reading, 0)

    def test_as_much_as_one_may_send(self) -> None:
        """An answer of exactly the limit is read, one of a byte more is not."""
        for more, good in ((b"", True), (b"x", False)):
            collect = self.collect(AnswerLimits.of_a_peer())
            collect.dataReceived(b"x" * OF_A_PEER)
            collect.dataReceived(more)
            collect.connectionLost(Failure(ResponseDone()))
            self.assertEqual(isinstance(self.result_of(collect), bytes), good)

    def test_many_answers_together(self) -> None:
        """What all answers of a peer hold while they are read is bounded; others are read when these have ended."""
        limits = AnswerLimits.of_a_peer()
        many = [self.collect(limits) for _ in range(32)]
        for _ in range(7):
            for collect in many:
                collect.dataReceived(b"x" * MIB)
        self.assertLessEqual(limits.reading, limits.total)
        for collect in many:
            collect.connectionLost(Failure(ResponseDone()))
        refused = [collect for collect in many if isinstance(self.result_of(collect), Failure)]
        self.assertTrue(0 < len(refused) < 32)
        self.assertEqual(limits.reading, 0)
        later = self.collect(limits)
        later.dataReceived(b"x")
        later.connectionLost(Failure(ResponseDone()))
        self.assertEqual(self.successResultOf(later.whole), b"x")

    def result_of(self, collect: Collect) -> object:
        """Return what a body's Deferred fired with."""
        results: list[object] = []
        collect.whole.addBoth(results.append)
        return results[0]
