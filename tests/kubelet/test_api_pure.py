"""The API of virtual nodes, its pure parts: what a request is about, and HTTP heads."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.api import heads
from liqod.kubelet.api.heads import BadAnswer, Head
from liqod.kubelet.api.targets import Logs, Page, Right, Stream, lender_path, parse, rights
from liqod.model.ids import Key

POD = Key("shop", "web-0")


class Targets(SynchronousTestCase):
    def test_logs(self) -> None:
        """A container's log keeps the options that choose from it, and nothing else that a caller adds."""
        target = parse("/containerLogs/shop/web-0/main?follow=true&tailLines=5&insecureSkipTLSVerifyBackend=true&x=y")
        self.assertEqual(target, Logs(POD, (("container", "main"), ("follow", "true"), ("tailLines", "5"))))
        assert isinstance(target, Logs)
        self.assertEqual(
            lender_path(target, "shop-rome"),
            "/api/v1/namespaces/shop-rome/pods/web-0/log?container=main&follow=true&tailLines=5",
        )

    def test_exec(self) -> None:
        """The kubelet's flags become those of the subresource; the words of the command keep their order."""
        target = parse("/exec/shop/web-0/main?input=1&output=1&tty=0&command=sh&command=-c&command=a%20b%26c")
        assert isinstance(target, Stream)
        self.assertEqual(
            lender_path(target, "shop-rome"),
            "/api/v1/namespaces/shop-rome/pods/web-0/exec"
            "?container=main&stdin=true&stdout=true&command=sh&command=-c&command=a+b%26c",
        )

    def test_attach(self) -> None:
        """A pod's UID may stand before the container; attaching takes no command."""
        target = parse("/attach/shop/web-0/1234/main?output=1&command=sh")
        self.assertEqual(target, Stream("attach", POD, (("container", "main"), ("stdout", "true"))))

    def test_port_forward(self) -> None:
        """Ports are passed on where a caller names them in the query."""
        self.assertEqual(parse("/portForward/shop/web-0"), Stream("portforward", POD, ()))
        self.assertEqual(parse("/portForward/shop/web-0?port=80"), Stream("portforward", POD, (("ports", "80"),)))

    def test_what_is_not_served(self) -> None:
        """Other paths, and names that no object has, lead nowhere."""
        for uri in (
            "/",
            "/exec/shop/web-0",
            "/run/shop/web-0/main",
            "/containerLogs/shop/../main",
            "/containerLogs/shop/web-0/..%2f..",
            "/containerLogs/shop%2fpods/web-0/main",
            "/containerLogs/shop/web-0%3fx/main",
            "/containerLogs/Shop/web-0/main",
            "/logs/../etc/passwd",
            "/exec/shop/web-0/main?" + "&".join(["command=x"] * 5000),
        ):
            self.assertIsNone(parse(uri), uri)

    @given(st.lists(st.text(max_size=8), max_size=6))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_command(self, words: list[str]) -> None:
        """Whatever the words of a command are, the lender is asked for exactly those, on one line."""
        words = [word.encode("utf-8", "replace").decode() for word in words]
        target = parse("/exec/shop/web-0/main?" + urlencode([("command", word) for word in words]))
        assert isinstance(target, Stream)
        path = lender_path(target, "there")
        self.assertEqual([value for key, value in target.query if key == "command"], words)
        self.assertTrue(path.isascii() and path.isprintable() and " " not in path)
        self.assertTrue(path.startswith("/api/v1/namespaces/there/pods/web-0/exec?"))

    @given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_name(self, namespace: str, pod: str, container: str) -> None:
        """Whatever stands in a path, what is asked of the lender is below the pods of one namespace."""
        names = [quote(text.encode("utf-8", "replace"), safe="") for text in (namespace, pod, container)]
        target = parse("/containerLogs/" + "/".join(names))
        if isinstance(target, Logs):
            path = lender_path(target, "there").partition("?")[0]
            self.assertEqual(path.split("/")[:6], ["", "api", "v1", "namespaces", "there", "pods"])
            self.assertEqual(len(path.split("/")), 8)

    def test_rights(self) -> None:
        """Streams take the right to create, however they are opened; pages take their own right or that of all."""
        stream, page = parse("/exec/shop/web-0/main"), parse("/metrics/resource")
        self.assertEqual(rights(stream, "GET"), (Right("create", "proxy"),))
        self.assertEqual(rights(parse("/containerLogs/shop/web-0/main"), "GET"), (Right("get", "proxy"),))
        self.assertEqual(rights(page, "GET"), (Right("get", "metrics"), Right("get", "proxy")))
        self.assertEqual(rights(parse("/runningpods/"), "GET"), (Right("get", "pods"), Right("get", "proxy")))
        self.assertEqual(rights(None, "DELETE"), (Right("create", "proxy"),))
        self.assertEqual(parse("/runningpods/"), Page("pods"))


class Heads(SynchronousTestCase):
    def test_in_pieces(self) -> None:
        """A head is read whatever the pieces are that it comes in; what follows it is kept."""
        data = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nupgrade:  SPDY/3.1 \r\n\r\nrest"
        whole = heads.parse(data)
        assert whole is not None
        self.assertEqual(whole[0].code, 101)
        self.assertEqual(whole[0].first(b"upgrade"), b"SPDY/3.1")
        self.assertEqual(whole[1], b"rest")
        for length in range(len(data) - 4):
            self.assertIsNone(heads.parse(data[:length]))

    def test_bad_heads(self) -> None:
        """What is not HTTP, endless, or would end a line where it is passed on is refused."""
        for data in (
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 1010 x\r\n\r\n",
            b"HTTP/1.1 101 x\r\nupgrade: a\rb: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\nupgrade: a\nb: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\nbad name: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\n: c\r\n\r\n",
            b"x" * (heads.MAX_HEAD + 1),
        ):
            with self.assertRaises(BadAnswer):
                heads.parse(data)

    @given(st.binary(max_size=200))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_answer(self, data: bytes) -> None:
        """Whatever a lender answers is a head, incomplete, or refused; what is passed on has no line break of its."""
        try:
            parsed = heads.parse(b"HTTP/1.1 101 x\r\nupgrade: " + data + b"\r\n\r\n")
        except BadAnswer:
            return
        assert parsed is not None
        if len(parsed[0].headers) == 1:
            self.assertEqual(heads.switching(parsed[0]).count(b"\n"), 4)

    def test_only_what_concerns_the_streams(self) -> None:
        """Of an answer's headers only those about the upgrade are passed on."""
        head = Head(
            101, b"x", ((b"upgrade", b"SPDY/3.1"), (b"set-cookie", b"a=b"), (b"x-stream-protocol-version", b"v4"))
        )
        self.assertEqual(
            heads.switching(head),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            b"upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4\r\n\r\n",
        )

    def test_a_request_has_no_breaks(self) -> None:
        """A request with a line break in a header is not made."""
        with self.assertRaises(ValueError):
            heads.request(b"POST", b"/x", [(b"upgrade", b"a\r\nb: c")])
        self.assertEqual(heads.request(b"GET", b"/x", [(b"a", b"b")]), b"GET /x HTTP/1.1\r\na: b\r\n\r\n")

    def test_bodies(self) -> None:
        """The body of a refusal is read by length, by chunks, or to the end; never more than the limit."""
        length = Head(403, b"", ((b"content-length", b"3"),))
        self.assertIsNone(heads.body(length, b"ab", ended=False))
        self.assertEqual(heads.body(length, b"abcd", ended=False), b"abc")
        self.assertEqual(heads.body(length, b"ab", ended=True), b"ab")
        chunked = Head(403, b"", ((b"transfer-encoding", b"chunked"),))
        self.assertIsNone(heads.body(chunked, b"2\r\nab\r\n", ended=False))
        self.assertEqual(heads.body(chunked, b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", ended=False), b"abc")
        self.assertEqual(heads.body(chunked, b"zz\r\n", ended=False), b"")
        plain = Head(500, b"", ())
        self.assertIsNone(heads.body(plain, b"ab", ended=False))
        self.assertEqual(heads.body(plain, b"ab", ended=True), b"ab")
        endless = heads.body(Head(500, b"", ((b"content-length", b"999999"),)), b"x" * 100000, ended=False)
        self.assertEqual(len(endless or b""), heads.MAX_BODY)
