"""The API of virtual nodes, its pure parts: what a request is about, and what a lender answers."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.http1.messages import make_request
from liqod.http1.responses import switching
from liqod.kube.errors import ServerError
from liqod.kubelet.api import tunnel
from liqod.kubelet.api.targets import Logs, NodeRight, Page, Stream, lender_path, parse, rights
from liqod.kubelet.api.tunnel import BadAnswer, LenderConnection, StreamProxy
from liqod.model.ids import Key

POD = Key("shop", "web-0")


class TargetTests(SynchronousTestCase):
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
        self.assertEqual(rights(stream, "GET"), (NodeRight("create", "proxy"),))
        self.assertEqual(rights(parse("/containerLogs/shop/web-0/main"), "GET"), (NodeRight("get", "proxy"),))
        self.assertEqual(rights(page, "GET"), (NodeRight("get", "metrics"), NodeRight("get", "proxy")))
        self.assertEqual(rights(parse("/runningpods/"), "GET"), (NodeRight("get", "pods"), NodeRight("get", "proxy")))
        self.assertEqual(rights(None, "DELETE"), (NodeRight("create", "proxy"),))
        self.assertEqual(parse("/runningpods/"), Page("pods"))


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"


class Wire(StringTransport):
    """The lender's end of a connection."""

    connected = True

    def abortConnection(self) -> None:
        self.connected = False


class AnswerTests(SynchronousTestCase):
    """What a lender answers to a request for an upgrade, and what is passed on of it."""

    def asked(self, *data: bytes) -> tuple[LenderConnection, list[object]]:
        """Return a connection that asked for an upgrade and was sent this, and what it fired with."""
        connection, fired = LenderConnection(), list[object]()
        self.wire = Wire()
        connection.makeConnection(self.wire)
        connection.answer.addBoth(fired.append)
        connection.ask(make_request(b"POST", b"/x", [(b"Host", b"x"), (b"Upgrade", b"SPDY/3.1")]))
        for part in data:
            connection.dataReceived(part)
        return connection, fired

    def error(self, *data: bytes) -> Exception:
        """Return what a connection that was sent this failed with."""
        _, (failure,) = self.asked(*data)
        assert isinstance(failure, Failure)
        assert isinstance(failure.value, Exception)
        return failure.value

    def test_in_pieces(self) -> None:
        """A head is read whatever the pieces are that it comes in; what follows it is kept for the tunnel."""
        data = SWITCH + b"upgrade:  SPDY/3.1 \r\n\r\n"
        connection, fired = self.asked(*(data[at : at + 1] for at in range(len(data) - 1)))
        self.assertEqual(fired, [])
        connection.dataReceived(data[-1:] + b"rest")
        self.assertEqual(fired, [[(b"upgrade", b"SPDY/3.1")]])
        home = StringTransport()
        connection.attach(StreamProxy(home, self.wire, Clock()))
        self.assertEqual(home.value(), b"rest")

    def test_bad_heads(self) -> None:
        """What is not HTTP, endless, or would end a line where it is passed on is refused, and the connection cut."""
        for data in (
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 1010 x\r\n\r\n",
            b"HTTP/1.1 101 x\r\nupgrade: a\rb: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\nupgrade: a\nb: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\nupgrade: a\r\n b: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\nbad name: c\r\n\r\n",
            b"HTTP/1.1 101 x\r\n: c\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"x" * (tunnel.LIMITS.head + 1),
        ):
            self.assertIsInstance(self.error(data), BadAnswer, f"{data!r}")
            self.assertFalse(self.wire.connected)

    @given(st.binary(max_size=200))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_answer(self, data: bytes) -> None:
        """Whatever a lender answers is a switch or refused; what is passed on has no line break of its own."""
        _, fired = self.asked(SWITCH + b"upgrade: " + data + b"\r\n\r\n")
        (result,) = fired
        if isinstance(result, Failure):
            self.assertIsInstance(result.value, BadAnswer)
            return
        assert isinstance(result, list)
        self.assertEqual(switching(result).count(b"\n"), 3 + len(result))

    def test_only_what_concerns_the_streams(self) -> None:
        """Of an answer's headers only those about the upgrade are passed on."""
        _, (passed,) = self.asked(
            SWITCH + b"Upgrade: SPDY/3.1\r\nSet-Cookie: a=b\r\nX-Stream-Protocol-Version: v4\r\n\r\n"
        )
        assert isinstance(passed, list)
        self.assertEqual(
            switching(passed),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            b"upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4\r\n\r\n",
        )

    def test_answers_before_the_answer(self) -> None:
        """An informational response is passed over."""
        _, fired = self.asked(b"HTTP/1.1 100 Continue\r\n\r\n" + SWITCH + b"Upgrade: x\r\n\r\n")
        self.assertEqual(fired, [[(b"upgrade", b"x")]])

    def test_a_request_has_no_breaks(self) -> None:
        """A request with a line break in a header is not made; any other is sent on one line each."""
        with self.assertRaises(ValueError):
            make_request(b"POST", b"/x", [(b"Host", b"x"), (b"upgrade", b"a\r\nb: c")])
        self.asked()
        self.assertEqual(self.wire.value(), b"POST /x HTTP/1.1\r\nHost: x\r\nUpgrade: SPDY/3.1\r\n\r\n")

    def test_bodies(self) -> None:
        """The body of a refusal is read by length, by chunks, or to the end; never more than the limit."""
        length = b"HTTP/1.1 403 x\r\nContent-Length: 3\r\n\r\n"
        self.assertEqual(self.asked(length + b"ab")[1], [])
        self.assertIn("abc", str(self.error(length + b"ab", b"cd")))
        chunked = b"HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(self.asked(chunked + b"2\r\nab\r\n")[1], [])
        self.assertIn("abc", str(self.error(chunked + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")))
        plain = b"HTTP/1.1 500 x\r\n\r\n"
        for ending in (plain, length.replace(b"403", b"500")):
            connection, fired = self.asked(ending + b"ab")
            self.assertEqual(fired, [])
            connection.connectionLost()
            (failure,) = fired
            assert isinstance(failure, Failure)
            self.assertIsInstance(failure.value, ServerError)
            self.assertIn("ab", str(failure.value))
        long = b"HTTP/1.1 500 x\r\nContent-Length: 999999\r\n\r\n" + b"x" * tunnel.MAX_BODY
        self.assertIsInstance(self.error(long), ServerError)

    def test_chunks_that_could_be_read_in_two_ways(self) -> None:
        """Chunk sizes are hex digits and nothing else; a refusal whose body is not clear is none that is quoted."""
        chunked = b"HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for data in (b"zz\r\n", b"0x1\r\na\r\n", b"1_0\r\n", b"+1\r\na\r\n", b"1;x=y\r\nc\r\n"):
            self.assertIsInstance(self.error(chunked + data), BadAnswer, f"{data!r}")
