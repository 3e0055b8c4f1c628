"""Tests of liqod.kube.client over a server in memory."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import DNSLookupError
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig, ConfigError
from liqod.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Undecodable,
    Unreachable,
    from_status,
)
from liqod.kube.resources import CONFIGMAPS, NODES, PODS, SERVICEACCOUNTS
from tests.kube.cases import Answer, ConfigMap, MemoryServer, config_map, memory_client, status


class ClientTests(SynchronousTestCase):
    """Verbs, their requests, and what becomes of the answers."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str, dict[str, Any]]] = []
        self.open: list[Request] = []
        self.connect()

    def connect(self, config: ClientConfig | None = None, **options: Any) -> None:
        self.client: Client
        self.server: MemoryServer
        self.client, self.server = memory_client(self.answer, self.clock, config, **options)

    def answer(self, request: Request) -> Answer:
        assert request.content is not None
        content = request.content.read()
        headers = {
            name.decode(): values[0].decode() for name, values in request.requestHeaders.getAllRawHeaders() if values
        }
        self.seen.append(
            (
                f"{request.method.decode()} {request.uri.decode()}",
                headers.get("Content-Type", ""),
                {"body": json.loads(content) if content else None, "headers": headers},
            )
        )
        self.open.append(request)
        return self.answers.pop(0) if self.answers else (200, {})

    def call(self, coroutine: Any) -> Deferred[Any]:
        pending: Deferred[Any] = Deferred.fromCoroutine(coroutine)
        self.server.flush()
        return pending

    def result(self, coroutine: Any) -> Any:
        return self.successResultOf(self.call(coroutine))

    def lines(self) -> list[str]:
        return [line for line, _, _ in self.seen]

    def test_a_server_needs_an_address(self) -> None:
        """What is not the URL of a server is refused with what was expected, before anything is sent."""
        for server in ("https://", "http:///path", "ftp://api.test", "api.test"):
            with self.assertRaisesRegex(ConfigError, "https://host:port expected"):
                Client(ClientConfig(server), self.clock)

    def test_a_view_is_decoded_straight_from_the_answer(self) -> None:
        """With a view the answer becomes that struct; without one plain JSON; with None nothing."""
        self.answers = [(200, config_map("a", 7, x="1"))] * 3
        viewed = self.result(self.client.get(CONFIGMAPS, "a", "default", view=ConfigMap))
        self.assertEqual((viewed.metadata.resource_version, viewed.data), ("7", {"x": "1"}))
        self.assertEqual(self.result(self.client.get(CONFIGMAPS, "a", "default"))["data"], {"x": "1"})
        self.assertIsNone(self.result(self.client.get(CONFIGMAPS, "a", "default", view=None)))

    def test_the_requests_of_the_verbs(self) -> None:
        """Each verb sends the method, path and content type that the API defines for it."""
        body = {"metadata": {"name": "a", "namespace": "ns"}}
        for coroutine in (
            self.client.create(CONFIGMAPS, body, view=None),
            self.client.create(SERVICEACCOUNTS, {"spec": {}}, "ns", name="bob", subresource="token"),
            self.client.replace(CONFIGMAPS, body, "a", subresource="status"),
            self.client.apply(CONFIGMAPS, body, manager="me"),
            self.client.patch(PODS, "p", {"status": {}}, "ns", subresource="status"),
            self.client.patch(NODES, "n", [{"op": "remove", "path": "/spec"}], kind="json"),
            self.client.delete(CONFIGMAPS, "a", "ns", uid="u1", grace=0, propagation="Background"),
        ):
            self.result(coroutine)
        self.assertEqual(
            [(line, kind) for line, kind, _ in self.seen],
            [
                ("POST /api/v1/namespaces/ns/configmaps", "application/json"),
                ("POST /api/v1/namespaces/ns/serviceaccounts/bob/token", "application/json"),
                ("PUT /api/v1/namespaces/ns/configmaps/a/status", "application/json"),
                (
                    "PATCH /api/v1/namespaces/ns/configmaps/a?fieldManager=me&force=true",
                    "application/apply-patch+yaml",
                ),
                ("PATCH /api/v1/namespaces/ns/pods/p/status", "application/merge-patch+json"),
                ("PATCH /api/v1/nodes/n", "application/json-patch+json"),
                ("DELETE /api/v1/namespaces/ns/configmaps/a", "application/json"),
            ],
        )
        self.assertEqual(self.seen[0][2]["body"], {"apiVersion": "v1", "kind": "ConfigMap", **body})
        self.assertEqual(
            self.seen[-1][2]["body"],
            {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0, "propagationPolicy": "Background"},
        )
        self.assertEqual(self.client.requests["create", "serviceaccounts/token"], 1)

    def test_a_list_is_read_page_by_page(self) -> None:
        """Pages are asked for with the continue token until there is none."""
        self.answers = [
            (200, {"metadata": {"continue": "t1"}, "items": [config_map("a", 1)]}),
            (200, {"metadata": {"resourceVersion": "9"}, "items": [config_map("b", 2)]}),
        ]
        listing = self.result(self.client.list(CONFIGMAPS, view=ConfigMap, labels="x=y", limit=1))
        self.assertEqual([one.metadata.name for one in listing.items], ["a", "b"])
        self.assertEqual(listing.resource_version, "9")
        self.assertEqual(
            self.lines(),
            [
                "GET /api/v1/configmaps?labelSelector=x%3Dy&limit=1",
                "GET /api/v1/configmaps?labelSelector=x%3Dy&limit=1&continue=t1",
            ],
        )

    def test_a_list_whose_token_expires_is_read_again(self) -> None:
        """410 in the middle of a list restarts it in one piece; what was read before does not count."""
        self.answers = [
            (200, {"metadata": {"continue": "t1"}, "items": [config_map("gone", 1)]}),
            (410, status(410, "Expired")),
            (200, {"metadata": {"resourceVersion": "9"}, "items": [config_map("b", 2)]}),
        ]
        listing = self.result(self.client.list(CONFIGMAPS, view=ConfigMap))
        self.assertEqual([one.metadata.name for one in listing.items], ["b"])
        self.assertEqual(self.lines()[-1], "GET /api/v1/configmaps")
        self.answers = [(410, status(410, "Expired"))]
        self.failureResultOf(self.call(self.client.list(CONFIGMAPS)), Gone)

    def test_refusals_are_typed(self) -> None:
        """HTTP codes and reasons become exceptions by meaning, with the server's words."""
        for code, reason, kind in ((404, "NotFound", NotFound), (403, "Forbidden", Forbidden), (409, "", Conflict)):
            self.answers = [(code, status(code, reason, "because"))]
            error = self.failureResultOf(self.call(self.client.get(NODES, "n")), kind).value
            self.assertEqual((error.code, error.message), (code, "because"))
        self.assertEqual(len(self.seen), 3)

    def test_deleting_what_is_not_there_is_fine_unless_asked(self) -> None:
        """NotFound on a deletion is success, or an error with ``missing_ok=False``."""
        self.answers = [(404, status(404, "NotFound"))] * 2
        self.result(self.client.delete(NODES, "n"))
        self.failureResultOf(self.call(self.client.delete(NODES, "n", missing_ok=False)), NotFound)

    def test_a_busy_server_is_asked_again_when_it_said_when(self) -> None:
        """429 with a short Retry-After is tried again after it, for a POST too; without one it surfaces."""
        self.answers = [(429, status(429, "TooManyRequests"), {"Retry-After": "2"}), (201, {})]
        pending = self.call(self.client.create(NODES, {"metadata": {"name": "n"}}))
        self.assertNoResult(pending)
        self.clock.advance(2)
        self.server.flush()
        self.successResultOf(pending)
        self.answers = [(429, status(429, "TooManyRequests"))]
        self.failureResultOf(self.call(self.client.get(NODES, "n")), Throttled)
        self.answers = [(429, status(429, "TooManyRequests"), {"Retry-After": "30"})]
        error = self.failureResultOf(self.call(self.client.get(NODES, "n")), Throttled).value
        self.assertEqual(error.retry_after, 30)

    def test_no_server_has_us_wait_for_days(self) -> None:
        """A Retry-After of eleven days, in the head or in the details, is one of ten minutes."""
        self.answers = [(429, status(429, "TooManyRequests"), {"Retry-After": "999999"})]
        error = self.failureResultOf(self.call(self.client.get(NODES, "n")), Throttled).value
        self.assertEqual(error.retry_after, 600)
        body = b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":86399}}'
        self.assertEqual(getattr(from_status(429, body), "retry_after", None), 600)

    def test_server_errors_are_retried_only_where_that_is_harmless(self) -> None:
        """A 500 repeats a GET three times in all; a POST surfaces at once."""
        self.answers = [(500, status(500, "InternalError"))] * 4
        pending = self.call(self.client.get(NODES, "n"))
        for _ in range(4):
            self.clock.advance(1)
            self.server.flush()
        self.failureResultOf(pending, ServerError)
        self.assertEqual(len(self.seen), 3)
        self.failureResultOf(self.call(self.client.create(NODES, {"metadata": {"name": "n"}})), ServerError)

    def test_a_broken_connection_repeats_a_get_but_not_a_post(self) -> None:
        """When the connection breaks before the answer, a GET is sent again; a POST may have been executed."""
        self.answers = [None, (200, {"ok": True}), None]
        pending = self.call(self.client.get(NODES, "n"))
        self.server.cut()
        self.clock.advance(1)
        self.server.flush()
        self.assertEqual(self.successResultOf(pending), {"ok": True})
        pending = self.call(self.client.create(NODES, {"metadata": {"name": "n"}}))
        self.server.cut()
        self.clock.advance(5)
        self.server.flush()
        self.failureResultOf(pending, Unreachable)
        self.assertEqual(len(self.seen), 3)

    def test_a_question_is_asked_again_when_its_connection_breaks(self) -> None:
        """Also one that is no object's: whether the server is ready is not known from a connection that was kept."""
        self.answers = [None, (200, {})]
        pending = self.call(self.client.raw("GET", "/readyz"))
        self.server.cut()
        self.clock.advance(1)
        self.server.flush()
        self.assertEqual(self.successResultOf(pending), b"{}")
        self.answers = [None]
        pending = self.call(self.client.raw("POST", "/anything"))
        self.server.cut()
        self.clock.advance(5)
        self.failureResultOf(pending, Unreachable)

    def test_a_refused_connection_repeats_anything(self) -> None:
        """A request that never left is repeated, also a POST; after three tries it is unreachable, in one sentence."""
        self.server.refusing = True
        pending = self.call(self.client.create(NODES, {"metadata": {"name": "n"}}))
        self.server.refusing = False
        self.clock.advance(1)
        self.server.flush()
        self.successResultOf(pending)
        self.server.cut()
        self.server.refusing = True
        pending = self.call(self.client.get(NODES, "n"))
        for _ in range(3):
            self.clock.advance(2)
        error = self.failureResultOf(pending, Unreachable).value
        self.assertEqual(
            str(error),
            "get nodes: no answer from http://api.test:6443: it refuses connections; "
            "is it running, and is the address right?",
        )

    def test_no_answer_in_time_is_unreachable(self) -> None:
        """A request ends after its time-out and is not repeated; no timer is left."""
        self.answers = [None]
        pending = self.call(self.client.get(NODES, "n"))
        self.clock.advance(30)
        self.server.flush()
        self.assertIn("did not answer in time", str(self.failureResultOf(pending, Unreachable).value))
        self.assertEqual(len(self.seen), 1)

    def test_cancelling_sends_nothing_more(self) -> None:
        """A cancelled request is not repeated, although its connection broke, and frees its place."""
        self.answers = [None]
        pending = self.call(self.client.get(NODES, "n"))
        pending.addErrback(lambda _: None)
        pending.cancel()
        self.clock.advance(10)
        self.server.flush()
        self.assertEqual(len(self.seen), 1)
        self.assertEqual(self.client._slots.in_use, 0)

    def test_cancelling_a_connection(self) -> None:
        """One that is not there yet is not tried again, although it then fails as if the name were unknown."""
        asked: list[Any] = []

        class Unresolved:
            """An endpoint that fails when it is cancelled, as Twisted's does while a name is resolved."""

            def connect(self, factory: Any) -> Deferred[Any]:
                asked.append(factory)
                return Deferred(lambda waiting: waiting.errback(DNSLookupError("slow.test")))

        client = Client(ClientConfig("https://slow.test:6443", dial=Unresolved()), self.clock)
        pending: Deferred[Any] = Deferred.fromCoroutine(client.get(NODES, "n"))
        pending.cancel()
        self.failureResultOf(pending, CancelledError)
        self.clock.advance(10)
        self.assertEqual(len(asked), 1)

    def test_slow_answers_tell_a_busy_server(self) -> None:
        """Answers that take a second, where the first one came at once, make the server count as busy."""
        self.result(self.client.get(NODES, "n"))
        self.assertFalse(self.client._slots.busy)
        for _ in range(8):
            self.answers = [None]
            pending = self.call(self.client.get(NODES, "n"))
            self.clock.advance(1)
            self.open[-1].write(b"{}")
            self.open[-1].finish()
            self.server.flush()
            self.assertEqual(self.successResultOf(pending), {})
        self.assertTrue(self.client._slots.busy)

    def test_an_unknown_token_is_renewed_once(self) -> None:
        """401 has the token read again and the request sent once more; a second 401 surfaces."""
        tokens = ["old", "new"]
        self.connect(
            ClientConfig("http://api.test:6443", token=lambda: tokens[0], renew_token=lambda: tokens.remove("old"))
        )
        self.answers = [(401, status(401, "Unauthorized")), (200, {})]
        self.result(self.client.get(NODES, "n"))
        sent = [about["headers"]["Authorization"] for _, _, about in self.seen]
        self.assertEqual(sent, ["Bearer old", "Bearer new"])
        self.connect(ClientConfig("http://api.test:6443", token=lambda: "x", renew_token=lambda: None))
        self.answers = [(401, status(401, "Unauthorized"))] * 3
        self.failureResultOf(self.call(self.client.get(NODES, "n")), Unauthorized)
        self.assertEqual(len(self.answers), 1)

    def test_who_asks_is_said_in_headers(self) -> None:
        """User agent and the impersonated user are in every request; the token is not in ``repr``."""
        self.connect(
            ClientConfig("http://api.test:6443", token=lambda: "s3cret"), impersonate="liqo:cluster:c2", user_agent="me"
        )
        self.result(self.client.get(NODES, "n"))
        headers = self.seen[0][2]["headers"]
        self.assertEqual((headers["Impersonate-User"], headers["User-Agent"]), ("liqo:cluster:c2", "me"))
        self.assertNotIn("s3cret", repr(self.client) + repr(self.client.config))

    def test_an_answer_that_does_not_fit_is_reported(self) -> None:
        """A body that does not fit the view is Undecodable, not a crash."""
        self.answers = [(200, {"metadata": 5}), (200, b"<html>")]
        self.failureResultOf(self.call(self.client.get(NODES, "n", view=ConfigMap)), Undecodable)
        self.failureResultOf(self.call(self.client.get(NODES, "n")), Undecodable)

    def test_an_empty_name_never_reaches_a_collection(self) -> None:
        """Names that are empty or walk up are refused before anything is sent."""
        for name in ("", "..", "."):
            self.failureResultOf(self.call(self.client.delete(NODES, name)), ValueError)
        self.failureResultOf(self.call(self.client.delete(CONFIGMAPS, "a")), ValueError)
        self.assertEqual(self.seen, [])

    def test_connections_are_used_again(self) -> None:
        """Requests one after the other share a connection."""
        for _ in range(5):
            self.result(self.client.get(NODES, "n"))
        self.assertEqual(self.server.connections, 1)

    def test_a_doubtful_path_spares_what_is_in_use(self) -> None:
        """A connection that waits is not used again on a doubtful path; one with a request on it goes on."""
        self.answers = [(200, {}), None]
        self.result(self.client.get(NODES, "n"))
        pending = self.call(self.client.get(NODES, "n"))
        self.clock.advance(1)
        self.client.path_is_doubtful()
        self.server.flush()
        self.assertNoResult(pending)
        self.open[-1].write(b"{}")
        self.open[-1].finish()
        self.server.flush()
        self.successResultOf(pending)
        self.clock.advance(1)
        self.client.path_is_doubtful()
        self.server.flush()
        self.result(self.client.get(NODES, "n"))
        self.assertEqual(self.server.connections, 2)

    def test_on_a_new_path_nothing_waits_for_the_old(self) -> None:
        """Requests under way on connections of before are sent again where that is harmless; later connections stay."""
        self.answers = [None, (200, {"ok": True})]
        pending = self.call(self.client.get(NODES, "n"))
        self.clock.advance(10)
        self.client.path_is_new(self.clock.seconds() - 1)
        self.server.flush()
        self.clock.advance(1)
        self.server.flush()
        self.assertEqual(self.successResultOf(pending), {"ok": True})
        self.assertEqual(self.server.connections, 2)
        self.client.path_is_new(self.clock.seconds() - 5)
        self.server.flush()
        self.result(self.client.get(NODES, "n"))
        self.assertEqual(self.server.connections, 2)

    def test_requests_are_bounded_in_number(self) -> None:
        """At most 32 requests are under way when they take long; the others follow as these end."""
        self.answers = [None] * 60
        pending = [self.call(self.client.get(NODES, "n")) for _ in range(40)]
        self.assertEqual(len(self.seen), 4)
        for _ in range(40):
            self.clock.advance(0.1)
            self.server.flush()
        self.assertEqual(len(self.seen), 32)
        for request in self.open[:8]:
            request.write(b"{}")
            request.finish()
        self.server.flush()
        self.assertEqual(len(self.seen), 40)
        self.assertEqual(sum(one.called for one in pending), 8)

    def test_a_redirection_is_no_stream(self) -> None:
        """What the API server answers instead of a watch is an error, and its body is nothing that was watched."""
        self.answers = [(300, status(300, "MultipleChoices"))]
        pieces: list[bytes] = []

        class Receiver(Protocol):
            def dataReceived(self, data: bytes) -> None:
                pieces.append(data)

        self.failureResultOf(self.call(self.client.watch(CONFIGMAPS, "", {}, Receiver())), ApiError)
        self.assertEqual(pieces, [])

    def test_a_stream_is_delivered_as_it_comes(self) -> None:
        """A watch's body arrives piece by piece; a refused watch raises before."""
        self.answers = [None, (403, status(403, "Forbidden"))]
        pieces: list[bytes] = []

        class Receiver(Protocol):
            def dataReceived(self, data: bytes) -> None:
                pieces.append(data)

        self.call(self.client.watch(CONFIGMAPS, "", {"resourceVersion": "5"}, Receiver()))
        for piece in (b"one\n", b"two\n"):
            self.open[0].write(piece)
            self.server.flush()
        self.assertEqual(pieces, [b"one\n", b"two\n"])
        self.assertEqual(self.lines(), ["GET /api/v1/configmaps?watch=true&resourceVersion=5"])
        self.failureResultOf(self.call(self.client.watch(CONFIGMAPS, "", {}, Receiver())), Forbidden)
