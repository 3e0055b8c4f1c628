"""HeadTests, bodies and paths of the API relay, and what borrowers may ask for."""

from __future__ import annotations

import contextlib
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants import rights
from liqod.hosting.tenants.rights import permits, user_of
from liqod.http1.connection import Connection
from liqod.http1.errors import Malformed
from liqod.http1.messages import EndOfMessage, Header, Request, Response, make_request
from liqod.identity.tls import PeerTLS
from liqod.model.objects.api_request import RequestAttributes
from liqod.peering.relay import policy
from liqod.peering.relay.dial import Judged
from liqod.peering.relay.rejection import Rejected
from liqod.peering.relay.targets import PAGES, ask_of

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long anything takes is the machine's matter."""

PATH = b"/api/v1/namespaces/shop-rome/configmaps"
GET = b"GET " + PATH + b" HTTP/1.1\r\nHost: x\r\n"

REFUSED = {
    "two lengths": (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "the same length twice": (GET + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
    "a list of lengths": (GET + b"Content-Length: 1, 1\r\n\r\n", 400),
    "a signed length": (GET + b"Content-Length: +1\r\n\r\n", 400),
    "length and chunks": (GET + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "another coding": (GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
    "a coding that is nearly chunked": (GET + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
    "a coding given twice": (GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    "space before the colon": (GET + b"Content-Length : 5\r\n\r\n", 400),
    "a folded header": (GET + b"X-A: b\r\n c\r\n\r\n", 400),
    "a bare line feed": (GET + b"X-A: b\nContent-Length: 5\r\n\r\n", 400),
    "a bare carriage return": (GET + b"X-A: b\rContent-Length: 5\r\n\r\n", 400),
    "a zero byte": (GET + b"X-A: b\0\r\n\r\n", 400),
    "no host": (b"GET " + PATH + b" HTTP/1.1\r\n\r\n", 400),
    "two hosts": (GET + b"Host: y\r\n\r\n", 400),
    "another version": (GET.replace(b"1.1", b"1.0") + b"\r\n", 505),
    "a space in the path": (GET.replace(b"shop-rome", b"shop rome") + b"\r\n", 505),
    "another method": (GET.replace(b"GET", b"CONNECT") + b"\r\n", 405),
    "a method in small letters": (GET.replace(b"GET", b"get") + b"\r\n", 405),
    "a whole URL": (GET.replace(b"/api", b"https://elsewhere/api") + b"\r\n", 400),
    "a path with a host": (GET.replace(b"/api", b"//elsewhere/api") + b"\r\n", 400),
    "a fragment": (GET.replace(b"configmaps", b"configmaps#a") + b"\r\n", 400),
    "Connection names a header": (GET + b"Connection: keep-alive, authorization\r\n\r\n", 400),
    "an upgrade to HTTP/2": (GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 400),
    "an upgrade that Connection does not name": (GET + b"Upgrade: websocket\r\n\r\n", 400),
    "two upgrades": (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: SPDY/3.1\r\n\r\n", 400),
    "an upgrade with a body": (
        GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\n",
        400,
    ),
    "an expectation": (GET + b"Expect: 100-continue\r\n\r\n", 417),
    "another user": (GET + b"Impersonate-User: admin\r\n\r\n", 403),
    "another group": (GET + b"impersonate-group: system:masters\r\n\r\n", 403),
    "another user's extra": (GET + b"Impersonate-Extra-scopes: all\r\n\r\n", 403),
    "a proxy's user": (GET + b"X-Remote-User: admin\r\n\r\n", 403),
    "a token in a websocket's protocol": (
        GET
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        + b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dG9rZW4\r\n\r\n",
        403,
    ),
    "a large body": (GET + b"Content-Length: 4194305\r\n\r\n", 413),
    "many headers": (GET + b"".join(b"X-%d: a\r\n" % number for number in range(80)) + b"\r\n", 431),
}


def call_of(head: bytes) -> policy.Call:
    """Return what the complete head of a request asks the relay for; raises Malformed or Rejected."""
    connection = Connection("server", policy.LIMITS)
    connection.receive(head)
    request = connection.next_event()
    assert isinstance(request, Request)
    return policy.examine(request)


def sent(call: policy.Call, base: bytes = b"", own: tuple[Header, ...] = ((b"Host", b"api"),)) -> bytes:
    """Return the head that the API server is sent for it."""
    return Connection("client", policy.LIMITS).send(policy.forward(base, call, own))


def answer_of(head: bytes) -> policy.Answer:
    """Return what passes of the complete head of an answer; raises Malformed or Rejected."""
    connection = Connection("client", policy.LIMITS)
    connection.send(make_request(b"GET", b"/", [(b"Host", b"api")]), EndOfMessage())
    connection.receive(head)
    response = connection.next_event()
    assert isinstance(response, Response)
    return policy.answer(response)


class HeadTests(SynchronousTestCase):
    """What is read of a request, and what becomes of it."""

    def test_what_could_be_read_in_two_ways_is_refused(self) -> None:
        """Each form of request smuggling, header injection and claimed identity ends in a refusal with its code."""
        for what, (head, code) in REFUSED.items():
            with self.subTest(what):
                self.assertTrue(head.endswith(b"\r\n\r\n"))
                with self.assertRaises((Malformed, Rejected)) as caught:
                    call_of(head)
                error = caught.exception
                assert isinstance(error, Malformed | Rejected)
                self.assertEqual((error.code, what), (code, what))

    def test_a_head_is_written_from_what_was_understood(self) -> None:
        """What the API server gets: path, the daemon's own identity, and of the caller's headers only harmless ones."""
        asked = (
            b"POST " + PATH + b"?dryRun=All HTTP/1.1\r\nHost: peer\r\nAuthorization: Bearer stolen\r\nCookie: a=b\r\n"
            b"Content-Type: application/json\r\nACCEPT: application/json\r\nContent-Length: 2\r\nX-Else: y\r\n\r\n"
        )
        own = ((b"Host", b"api"), (b"Authorization", b"Bearer own"), (b"Impersonate-User", b"borrower"))
        self.assertEqual(
            sent(call_of(asked), b"/base", own).split(b"\r\n"),
            [
                b"POST /base" + PATH + b"?dryRun=All HTTP/1.1",
                b"Host: api",
                b"Authorization: Bearer own",
                b"Impersonate-User: borrower",
                b"content-type: application/json",
                b"accept: application/json",
                b"Content-Length: 2",
                b"",
                b"",
            ],
        )

    def test_an_empty_body_is_announced_where_one_is_expected(self) -> None:
        """RFC 9110, section 8.6: a length of nothing for POST, PUT and PATCH, none for the others."""
        for method, announced in ((b"GET", 0), (b"DELETE", 0), (b"POST", 1), (b"PUT", 1), (b"PATCH", 1)):
            head = sent(call_of(GET.replace(b"GET", method) + b"\r\n"))
            self.assertEqual(head.count(b"Content-Length: 0\r\n"), announced, method)
            self.assertEqual(head.count(b"Content-Length"), announced, method)

    def test_an_answer_whose_end_is_not_clear_is_not_passed_on(self) -> None:
        """Also the API server's answers have one length or chunks."""
        for lines in (b"Content-Length: 1\r\nContent-Length: 2", b"Content-Length: 1\r\nTransfer-Encoding: chunked"):
            self.assertRaises(Malformed, answer_of, b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n")

    def test_what_passes_of_an_answer(self) -> None:
        """Headers of the list, the length, and no word about the API server's own connection or cookies."""
        answer = answer_of(
            b"HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nAudit-Id: 1\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\n"
        )
        self.assertEqual((answer.headers, answer.close), (((b"audit-id", b"1"), (b"content-length", b"2")), False))
        self.assertTrue(answer_of(b"HTTP/1.1 200 OK\r\n\r\n").unbounded)
        self.assertTrue(answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").close)

    @STEADILY
    @given(st.binary(max_size=300), st.sampled_from([b"", GET, GET + b"X-A: "]))
    def test_any_bytes(self, data: bytes, before: bytes) -> None:
        """Whatever comes is a request without line breaks in it, or one kind of error."""
        head = before + data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n"
        with contextlib.suppress(Malformed, Rejected):
            written = sent(call_of(head))
            self.assertEqual(written.count(b"\r\n\r\n"), 1)
            self.assertEqual(written.replace(b"\r\n", b"").count(b"\n"), 0)


class TargetTests(SynchronousTestCase):
    """What a path asks for."""

    def test_forms(self) -> None:
        """Verb, group, kind, subresource, namespace and name, as the API server's authorization sees them."""
        for method, target, ask in (
            ("GET", "/api/v1/namespaces/a/pods", RequestAttributes("list", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=true", RequestAttributes("watch", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?limit=1&watch=1", RequestAttributes("watch", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=false", RequestAttributes("list", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=%30", RequestAttributes("list", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=False&watch=true", RequestAttributes("list", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch", RequestAttributes("watch", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=", RequestAttributes("watch", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods?watch=f&limit=1", RequestAttributes("watch", "", "pods", "", "a")),
            ("GET", "/api/v1/namespaces/a/pods/b", RequestAttributes("get", "", "pods", "", "a", name="b")),
            (
                "GET",
                "/api/v1/namespaces/a/pods/b/log?follow=true",
                RequestAttributes("get", "", "pods", "log", "a", name="b"),
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/b/exec?command=x",
                RequestAttributes("create", "", "pods", "exec", "a", name="b"),
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/a/deployments/b",
                RequestAttributes("update", "apps", "deployments", "", "a", name="b"),
            ),
            ("PATCH", "/api/v1/namespaces/a/secrets/b", RequestAttributes("patch", "", "secrets", "", "a", name="b")),
            ("DELETE", "/api/v1/namespaces/a/secrets", RequestAttributes("deletecollection", "", "secrets", "", "a")),
            ("DELETE", "/api/v1/namespaces/a", RequestAttributes("delete", "", "namespaces", "", "", name="a")),
            ("GET", "/api/v1/nodes", RequestAttributes("list", "", "nodes")),
            ("GET", "/readyz", RequestAttributes("get", path="/readyz")),
        ):
            self.assertEqual(ask_of(method.encode(), target.encode()), ask)

    def test_other_forms_are_refused(self) -> None:
        """Dots, encoded characters, empty segments, old watch paths and everything that is no resource."""
        for target in (
            "/api/v1/namespaces/a/../b/pods",
            "/api/v1/namespaces/../namespaces/b/pods",
            "/api/v1/namespaces/a%2f..%2fb/pods",
            "/api/v1/namespaces/a/pods/%2e%2e",
            "/api/v1/namespaces/a/pods/%252e%252e/x",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/a/pods/",
            "/api/v1/namespaces/a..b/pods",
            "/api/v1/namespaces/a/pods/b..c",
            "/apis/a..b/v1/namespaces/a/pods",
            "/api/v1/watch/namespaces/a/pods",
            "/api/v1/watch",
            "/api/v1/watch/pods",
            "/api/v1/namespaces/a/watch/pods",
            "/apis/apps/v1/watch/deployments",
            "/api/v1/namespaces/a/pods/b/proxy/etc/passwd",
            "/api/v2/namespaces/a/pods",
            "/other/v1/namespaces/a/pods",
            "/v1/v1/pods",
            "/apis",
            "/api",
            "/",
            "/metrics",
            "/openapi/v2",
            "/logs/",
            "/api/v1/namespaces/A/pods",
            "/api/v1/namespaces/a;b/pods",
            "/api/v1/namespaces/a/pods?w%61tch=true",
        ):
            with self.subTest(target):
                self.assertRaises(Rejected, ask_of, b"GET", target.encode())

    def test_pages_are_only_read(self) -> None:
        """Health checks and the version take no other method, also none that the grammar knows."""
        for path in PAGES:
            for method in (b"POST", b"PUT", b"PATCH", b"DELETE"):
                self.assertEqual(self.assertRaises(Rejected, ask_of, method, path.encode()).code, 405)

    def test_nothing_refused_looks_like_absence(self) -> None:
        """A path that the relay does not pass on is never "not found": that would say something about an object."""
        for target in (b"/api/v3", b"/apis/a", b"/x", b"/api/v1/namespaces/a/b/c/d/e"):
            self.assertNotEqual(self.assertRaises(Rejected, ask_of, b"GET", target).code, 404)

    @STEADILY
    @given(st.text(alphabet="/.%ab2eA;?=&-", max_size=60))
    def test_any_path(self, text: str) -> None:
        """What is let through holds no dots between slashes, and nothing encoded."""
        with contextlib.suppress(Rejected):
            ask = ask_of(b"GET", b"/api/v1/" + text.encode())
            for part in (ask.namespace, ask.name, ask.resource, ask.subresource):
                self.assertNotIn("%", part)
                self.assertNotIn("..", part)


class PermissionTests(SynchronousTestCase):
    """Which of it a borrower may have."""

    def test_every_rule_of_the_role(self) -> None:
        """In a namespace granted to it all that its role says, in any other and without one nothing."""
        count = 0
        for rule in rights.borrower_role(services=True)["rules"]:
            for what in rule["resources"]:
                resource, _, subresource = what.partition("/")
                for verb in rule["verbs"]:
                    ask = RequestAttributes(verb, rule["apiGroups"][0], resource, subresource, "shop-rome", name="x")
                    count += permits("rome", ask, "rome")
                    for tenant in ("", "milan"):
                        self.assertFalse(permits("rome", ask, tenant))
                    everywhere = RequestAttributes(verb, rule["apiGroups"][0], resource, subresource)
                    self.assertFalse(permits("rome", everywhere, ""))
        self.assertGreater(count, 30)

    def test_what_the_role_does_not_say(self) -> None:
        """Pods are the lender's to create, service accounts, roles and quotas too; groups are not mixed up."""
        for verb, group, resource, subresource in (
            ("create", "", "pods", ""),
            ("delete", "", "pods", ""),
            ("get", "", "pods", "proxy"),
            ("create", "", "pods", "eviction"),
            ("create", "", "serviceaccounts", "token"),
            ("list", "", "serviceaccounts", ""),
            ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
            ("list", "", "resourcequotas", ""),
            ("get", "offloading.liqo.io", "shadowpods", "status"),
            ("get", "apps", "secrets", ""),
            ("deletecollection", "", "secrets", ""),
        ):
            self.assertFalse(
                permits("rome", RequestAttributes(verb, group, resource, subresource, "shop-rome", name="x"), "rome")
            )

    def test_the_tenant_namespace(self) -> None:
        """Of the namespace that its account lies in a borrower sees that account, and nobody else's namespace."""
        namespace = user_of("rome").split(":")[2]
        self.assertTrue(
            permits("rome", RequestAttributes("get", "", "serviceaccounts", "", namespace, name="borrower"), "")
        )
        self.assertFalse(
            permits("rome", RequestAttributes("get", "", "serviceaccounts", "", namespace, name="default"), "")
        )
        self.assertFalse(permits("rome", RequestAttributes("list", "", "secrets", "", namespace), "rome"))
        self.assertFalse(
            permits("milan", RequestAttributes("get", "", "serviceaccounts", "", namespace, name="borrower"), "")
        )


class CutTests(SynchronousTestCase):
    """The end of a connection that waits for the judgement of its key."""

    def test_what_has_ended_is_not_ended_again(self) -> None:
        """A TLS transport that has lost its connection has nothing left to abort."""
        for connected in (True, False):
            transport = StringTransport()
            transport.connected = connected
            judged = Judged(cast(PeerTLS, None), (), "192.0.2.1:1")
            judged.makeConnection(transport)
            judged.cut()
            self.assertEqual(transport.disconnecting, connected)
