"""HTTP/1.1 without I/O: what is read, and that no less is refused than by a reader without leniency."""

from __future__ import annotations

from typing import Literal

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.http1 import grammar
from liqod.http1.connection import Connection, Event, MessageLimits
from liqod.http1.errors import Malformed
from liqod.http1.messages import (
    Data,
    EndOfMessage,
    InformationalResponse,
    Request,
    Response,
    make_request,
    make_response,
    make_switch,
)
from liqod.http1.responses import switching, whole_response
from liqod.kubelet.api.tunnel import LIMITS as TUNNEL_LIMITS
from liqod.peering.relay import policy
from liqod.peering.relay.rejection import Rejected
from tests.http1 import oracle

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)

GET = b"GET /api HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ASK = make_request(b"GET", b"/", [(b"Host", b"x")])


def events_of(connection: Connection) -> list[Event]:
    """Return what can be read now."""
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def server(data: bytes = b"", limits: MessageLimits | None = None) -> Connection:
    """Return a server's end that received this."""
    connection = Connection("server", limits or MessageLimits())
    connection.receive(data)
    return connection


def client(data: bytes = b"", request: Request = ASK) -> Connection:
    """Return a client's end that sent a request and received this."""
    connection = Connection("client", MessageLimits())
    connection.send(request, EndOfMessage())
    connection.receive(data)
    return connection


def body_of(events: list[Event]) -> bytes:
    """Return what the body held."""
    return b"".join(bytes(event.data) for event in events if isinstance(event, Data))


class ReadTests(SynchronousTestCase):
    """Events of well-formed messages."""

    def test_requests_one_after_another(self) -> None:
        """A second request that came early is read in the next cycle, and not before."""
        connection = server(GET + b"\r\n" + GET.replace(b"/api", b"/other") + b"\r\n")
        first = events_of(connection)
        self.assertEqual([type(event) for event in first], [Request, EndOfMessage])
        self.assertFalse(connection.start_next_cycle())
        connection.send(make_response(204, []), EndOfMessage())
        self.assertTrue(connection.start_next_cycle())
        (second, _) = events_of(connection)
        assert isinstance(second, Request)
        self.assertEqual(second.target, b"/other")

    def test_a_body_of_known_length(self) -> None:
        """Not a byte more is taken than was announced."""
        connection = server(GET + b"Content-Length: 5\r\n\r\nabc")
        self.assertEqual(body_of(events_of(connection)), b"abc")
        connection.receive(b"defg")
        self.assertEqual(body_of(events_of(connection)), b"de")
        self.assertEqual(connection.unread, b"fg")

    def test_answers_before_the_answer(self) -> None:
        """Informational responses are events of their own; the answer follows them."""
        events = events_of(client(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        self.assertEqual([type(event) for event in events], [InformationalResponse, Response, EndOfMessage])

    def test_a_switch(self) -> None:
        """After 101 nothing is read as HTTP, at either end."""
        asked = make_request(b"GET", b"/", [(b"Host", b"x"), (b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")])
        near = client(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\nfirst", asked)
        (event,) = events_of(near)
        assert isinstance(event, InformationalResponse)
        self.assertEqual((event.status_code, near.unread), (101, b"first"))
        far = server(GET + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nahead")
        events_of(far)
        far.send(make_switch([(b"Upgrade", b"SPDY/3.1")]))
        far.receive(b"GET / HTTP/1.1\r\n\r\n")
        self.assertEqual(events_of(far), [])
        self.assertEqual(far.unread, b"aheadGET / HTTP/1.1\r\n\r\n")

    def test_a_switch_that_was_not_asked_for(self) -> None:
        """A server that switches protocols by itself is refused."""
        connection = client(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n")
        self.assertRaises(Malformed, connection.next_event)

    def test_an_answer_to_nothing(self) -> None:
        """An answer without a request is refused."""
        connection = Connection("client", MessageLimits())
        connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertRaises(Malformed, connection.next_event)

    def test_nothing_is_read_before_it_was_asked_for(self) -> None:
        """A client's end that has sent nothing, and received nothing, has no event and no failure."""
        connection = Connection("client", MessageLimits())
        self.assertIsNone(connection.next_event())
        connection.receive(b"HTTP/1.1 ")
        error = self.assertRaises(Malformed, connection.next_event)
        self.assertEqual(error.code, 502)

    def test_a_body_that_the_connection_ends(self) -> None:
        """A response without a length is complete when the connection is closed in an orderly way."""
        connection = client(b"HTTP/1.1 200 OK\r\n\r\nab")
        self.assertEqual(body_of(events_of(connection)), b"ab")
        connection.receive_eof()
        self.assertEqual([type(event) for event in events_of(connection)], [EndOfMessage])
        self.assertFalse(connection.start_next_cycle())

    def test_a_body_that_is_cut_off(self) -> None:
        """A part of a body is never taken for the whole."""
        for framing in (b"Content-Length: 5\r\n\r\nab", b"Transfer-Encoding: chunked\r\n\r\n2\r\nab"):
            connection = client(b"HTTP/1.1 200 OK\r\n" + framing)
            events_of(connection)
            connection.receive_eof()
            try:
                left = events_of(connection)
            except Malformed:
                left = []
            self.assertEqual(left, [])
            self.assertFalse(connection.start_next_cycle())

    def test_no_body_whatever_the_headers_say(self) -> None:
        """204 and 304 end with their head (RFC 9112, section 6.3)."""
        for code in (204, 304):
            head = b"HTTP/1.1 %d x\r\nTransfer-Encoding: chunked\r\n\r\n" % code
            self.assertEqual([type(event) for event in events_of(client(head))], [Response, EndOfMessage])

    @STEADILY
    @given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.binary(max_size=20), st.data())
    def test_chunks_however_they_are_cut(self, parts: list[bytes], after: bytes, data: st.DataObject) -> None:
        """The end is found at the same byte wherever the network cuts, and what follows is not taken."""
        frames = [b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b"")]
        stream, at = b"".join(frames) + after, 0
        connection = server(CHUNKED)
        events: list[Event] = events_of(connection)
        while at < len(stream):
            step = data.draw(st.integers(1, len(stream) - at))
            connection.receive(stream[at : at + step])
            events += events_of(connection)
            at += step
        self.assertIsInstance(events[-1], EndOfMessage)
        self.assertEqual((body_of(events), connection.unread), (b"".join(parts), after))


class BoundTests(SynchronousTestCase):
    """What is too much."""

    def code(self, connection: Connection) -> int:
        """Return the code that what was received is refused with."""
        failure = self.assertRaises(Malformed, events_of, connection)
        # It stays refused, whatever comes after it.
        connection.receive(GET + b"\r\n")
        self.assertIs(self.assertRaises(Malformed, connection.next_event), failure)
        return int(failure.code)

    def test_a_head_without_end(self) -> None:
        """More than 64 KiB without an empty line is no head, complete or not."""
        self.assertEqual(events_of(server(b"GET / HTTP/1.1\r\nX: ")), [])
        for end in (b"", b"\r\n\r\n"):
            self.assertEqual(self.code(server(GET + b"X-A: " + b"a" * 70000 + end)), 431)

    def test_a_head_in_crumbs(self) -> None:
        """What was searched for the end of a head is not searched again with each crumb, wherever it is cut."""
        looked = 0
        real = grammar.head_end

        def counting(data: bytes, maximum: int, searched: int = 0) -> int:
            nonlocal looked
            looked += len(data) - searched
            return real(data, maximum, searched)

        self.patch(grammar, "head_end", counting)
        head = b"GET / HTTP/1.1\r\nhost: a\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(60)) + b"\r\n"
        for crumb in (1, 2, 3, 5, 7):
            looked = 0
            connection = server()
            events: list[Event] = []
            for begin in range(0, len(head), crumb):
                connection.receive(head[begin : begin + crumb])
                events += events_of(connection)
            self.assertEqual([type(one) for one in events][:1], [Request], crumb)
            self.assertLess(looked, 2 * len(head), crumb)

    def test_many_headers(self) -> None:
        """Sixty-four headers are read, one more is refused."""
        lines = [b"X-%d: a\r\n" % number for number in range(64)]
        self.assertIsInstance(server(GET + b"".join(lines[:63]) + b"\r\n").next_event(), Request)
        self.assertEqual(self.code(server(GET + b"".join(lines) + b"\r\n")), 431)

    def test_a_large_body(self) -> None:
        """A body is refused once it is said to be more than the limit, before it arrives; answers have no limit."""
        small = MessageLimits(body=100)
        self.assertEqual(self.code(server(GET + b"Content-Length: 101\r\n\r\n", small)), 413)
        self.assertIsInstance(server(GET + b"Content-Length: 100\r\n\r\n", small).next_event(), Request)
        self.assertEqual(len(events_of(server(CHUNKED + b"64\r\n", small))), 1)
        self.assertEqual(self.code(server(CHUNKED + b"65\r\n", small)), 413)
        self.assertEqual(self.code(server(CHUNKED + b"64\r\n" + b"a" * 100 + b"\r\n1\r\n", small)), 413)
        self.assertIsInstance(client(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n").next_event(), Response)

    def test_a_body_in_crumbs(self) -> None:
        """A request of very many chunks costs more to read than it is worth."""
        crumbs = MessageLimits(chunks=3)
        self.assertEqual(body_of(events_of(server(CHUNKED + b"1\r\na\r\n" * 3, crumbs))), b"aaa")
        self.assertEqual(self.code(server(CHUNKED + b"1\r\na\r\n" * 4, crumbs)), 400)

    def test_a_last_chunk_cut_anywhere(self) -> None:
        """The end of a body is judged whole, however it comes: what is refused in one piece is refused in two."""
        for last in (b"0\r\nX-Trailer: a\r\n\r\n", b"0\r\n\n"):
            for cut in range(1, 4):
                with self.subTest(last=last, cut=cut):
                    connection = server(CHUNKED + last[:cut])
                    self.assertNotIn(EndOfMessage(), events_of(connection))
                    connection.receive(last[cut:])
                    self.assertEqual(self.code(connection), 400)

    def test_chunks_that_could_be_read_in_two_ways(self) -> None:
        """Extensions, signs, spaces, underscores, bare line feeds, missing ends and trailers are no chunks."""
        for data in (
            b"3;a=b\r\nabc\r\n",
            b"+3\r\nabc\r\n",
            b"-3\r\nabc\r\n",
            b" 3\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b"0x3\r\nabc\r\n",
            b"1_0\r\nabc\r\n",
            b"3\nabc\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabc\rx",
            b"\r\n",
            b"000000003\r\nabc\r\n",
            b"0\r\nX-Trailer: a\r\n\r\n",
            b"0\r\n\n",
        ):
            with self.subTest(data):
                self.assertEqual(self.code(server(CHUNKED + data)), 400)
                answer = client(ANSWER_CHUNKED + data)
                self.assertIsInstance(answer.next_event(), Response)
                self.assertRaises(Malformed, events_of, answer)

    def test_a_refusal_quotes_nothing(self) -> None:
        """What is wrong with a message is said without its bytes, which may be credentials."""
        for head in (
            GET + b"Authorization Bearer secret\r\n\r\n",
            GET + b"Transfer-Encoding: secret\r\n\r\n",
            b"secret\r\n\r\n",
            GET + b"Content-Length: secret\r\n\r\n",
            GET + b"Host: secret\r\n\r\n",
        ):
            failure = self.assertRaises(Malformed, server(head).next_event)
            self.assertNotIn("secret", str(failure))


class WriteTests(SynchronousTestCase):
    """What is sent."""

    def test_what_no_head_may_hold(self) -> None:
        """Line breaks, control characters and odd names are not sent, and not quoted."""
        for name, value in ((b"upgrade", b"a\r\nsecret: c"), (b"a", b"b\x01secret"), (b"a b", b"secret")):
            for make in (
                lambda header: make_request(b"GET", b"/", [(b"Host", b"x"), header]),
                lambda header: make_response(200, [header]),
                lambda header: make_switch([header]),
                lambda header: switching([header]),
            ):
                error = self.assertRaises(ValueError, make, (name, value))
                self.assertNotIn("secret", str(error))
        self.assertRaises(ValueError, make_request, b"GET", b"/a b", [(b"Host", b"x")])

    def test_out_of_turn(self) -> None:
        """A second answer to one request is not sent."""
        connection = server(GET + b"\r\n")
        events_of(connection)
        connection.send(make_response(204, []), EndOfMessage())
        self.assertRaises(ValueError, connection.send, make_response(204, []))

    def test_what_was_read_is_not_sent(self) -> None:
        """The event of a head that came from the other side has no bytes to send."""
        (request, _) = events_of(server(GET + b"\r\n"))
        self.assertRaises(ValueError, Connection("client", MessageLimits()).send, request)

    def test_an_answer_without_a_body_announces_none(self) -> None:
        """204 and 304 keep their other headers, and are sent with neither length nor chunks."""
        for code in (204, 304):
            headers = [(b"ETag", b"1"), (b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]
            self.assertEqual(make_response(code, headers).headers, ((b"ETag", b"1"),))

    def test_a_whole_response(self) -> None:
        """It says that the connection is closed."""
        self.assertEqual(
            whole_response(404, [(b"Content-Type", b"text/plain")], b"no"),
            b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
        )

    def test_a_body_without_a_length_is_sent_in_chunks(self) -> None:
        """A reader can tell where it ends."""
        connection = server(GET + b"\r\n")
        events_of(connection)
        sent = connection.send(make_response(200, []), Data(data=b"ab"), EndOfMessage())
        self.assertEqual(sent, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")


NASTY = st.sampled_from(
    [
        b"",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\0",
        b"\x0b",
        b"\x7f",
        b"\x80",
        b"\xff",
        b":",
        b",",
        b";",
        b"\r\n",
        b"\r\n ",
        b"\r\n\t",
        b"\n\n",
        b"\n\r\n",
        b"Content-Length",
        b"content-length: 3",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\tchunked\r\n",
        b"transfer-encoding: Chunked",
        b"identity",
        b"Host: y\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Upgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"X-Remote-User: a\r\n",
        b"+1",
        b"0x10",
        b"1_0",
        b"HTTP/1.0",
        b"HTTP/1.1",
        b"HTTP/2.0",
        b"//",
        b"%2f",
        b"#",
        b"http://x/",
    ]
)
PIECE = st.one_of(NASTY, NASTY, st.binary(max_size=3))


@st.composite
def mangled(draw: st.DrawFn, bases: list[bytes]) -> bytes:
    """Draw the head of a message that is right but for a few pieces put in, over, or away."""
    head = draw(st.sampled_from(bases))[:-2]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(head)))
        # Most of what goes wrong in practice begins with a line.
        if draw(st.booleans()):
            at = head.rfind(b"\n", 0, at) + 1
        head = head[:at] + draw(PIECE) + head[at + draw(st.sampled_from([0, 0, 0, 1, 2])) :]
    whole = head + b"\r\n"
    if not whole.endswith(b"\r\n\r\n"):
        whole += b"\r\n"
    return whole[: whole.index(b"\r\n\r\n") + 4]


REQUESTS = [
    GET + b"\r\n",
    GET + b"Content-Length: 3\r\nContent-Type: a/b\r\n\r\n",
    CHUNKED,
    GET + b"Accept: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n",
]
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: a/b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 403 \r\nDate: x\r\n\r\n",
    b"HTTP/1.1 204\r\n\r\n",
]
SWITCHES = [b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-A: b\r\n\r\n"]


def has_tab(headers: oracle.Headers) -> bool:
    """Tell whether a value has a tab inside: the only thing that http1 refuses and the oracle does not."""
    return any(b"\t" in value for values in headers.values() for value in values)


class DifferentialTests(SynchronousTestCase):
    """Two readers that share no line of code: what the one without leniency refuses, the other refuses.

    A subclass with another ``second`` runs the same properties against another reader.
    """

    second: oracle.SecondReader = oracle

    @STEADILY
    @given(mangled(REQUESTS))
    @example(GET + b"X-A: b\r\n c\r\n\r\n")
    @example(GET + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n")
    @example(GET + b"Content-Length: 1, 1\r\n\r\n")
    @example(GET.replace(b"\r\nHost", b"\nHost") + b"\r\n")
    @example(GET + b"X-A: b\x01\r\n\r\n")
    def test_requests(self, head: bytes) -> None:
        """A request is refused by both, or means the same to both."""
        connection = server(head)
        try:
            asked = self.second.parse_request(head)
        except oracle.Bad:
            with self.assertRaises((Malformed, Rejected)):
                event = connection.next_event()
                assert isinstance(event, Request), head
                policy.examine(event)
            return
        if has_tab(asked.headers):
            self.assertRaises(Malformed, connection.next_event)
            return
        event = connection.next_event()
        assert isinstance(event, Request)
        call = policy.examine(event)
        # What asks for an upgrade is the last request of its connection, whatever it says.
        last = asked.close or bool(asked.upgrade)
        self.assertEqual(
            (call.method, call.target, call.length, call.upgrade, call.close),
            (asked.method, asked.target, asked.length, asked.upgrade, last),
        )
        for name, value in call.headers:
            self.assertIn(value, asked.headers[name])
        sent = Connection("client", MessageLimits()).send(policy.forward(b"", call, [(b"Host", b"api")]))
        again = self.second.parse_request(sent)
        self.assertEqual((again.method, again.target, again.length), (asked.method, asked.target, asked.length))

    @STEADILY
    @given(st.sampled_from(REQUESTS[:2]), mangled([*REQUESTS, GET.replace(b"/api", b"/b") + b"\r\n"]))
    @example(GET + b"\r\n", GET.replace(b"GET", b"P T") + b"\r\n")
    @example(GET + b"\r\n", GET.replace(b"/api", b"/a\x01") + b"\r\n")
    @example(GET + b"\r\n", GET.replace(b"Host", b"X-A: b\r\nHost") + b"\r\n")
    @example(GET + b"\r\n", GET.replace(b"1.1", b"1.0") + b"\r\n")
    def test_second_requests(self, before: bytes, head: bytes) -> None:
        """A request that follows another on a connection is read as if it were the first, or refused as that would."""
        connection = server(before + b"abc" * (b"Length" in before))
        events_of(connection)
        connection.send(make_response(204, []), EndOfMessage())
        self.assertTrue(connection.start_next_cycle())
        connection.receive(head)
        try:
            first = server(head).next_event()
        except Malformed as malformed:
            refused = self.assertRaises(Malformed, connection.next_event)
            self.assertEqual(str(refused), str(malformed))
            return
        self.assertEqual(connection.next_event(), first)

    @STEADILY
    @given(mangled(RESPONSES))
    @example(b"HTTP/2.0 200 OK\r\n\r\n")
    @example(b"HTTP/1.1 600 OK\r\n\r\n")
    def test_responses(self, head: bytes) -> None:
        """An answer is refused by both, or means the same to both."""
        connection = client(head)
        try:
            answered = self.second.parse_response(head)
        except oracle.Bad:
            self.assertRaises(Malformed, connection.next_event)
            return
        if has_tab(answered.headers) or b"\t" in head[: head.index(b"\r\n")] or answered.code == 101:
            self.assertRaises(Malformed, connection.next_event)
            return
        event = connection.next_event()
        assert isinstance(event, Response | InformationalResponse)
        self.assertEqual(event.status_code, answered.code)
        seen: oracle.Headers = {}
        for name, value in event.headers:
            # The name of a coding has no case.
            seen.setdefault(name, []).append(value)
        expected = {
            name: [value.lower() if name == b"transfer-encoding" else value for value in values]
            for name, values in answered.headers.items()
        }
        self.assertEqual(seen, expected)

    @STEADILY
    @given(mangled(SWITCHES))
    def test_switches(self, head: bytes) -> None:
        """What the tunnel's own reader refused of a lender's answer is refused."""
        asked = make_request(b"GET", b"/", [(b"Host", b"x"), (b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")])
        connection = Connection("client", TUNNEL_LIMITS)
        connection.send(asked, EndOfMessage())
        connection.receive(head)
        try:
            code, headers = oracle.parse_switch(head)
        except oracle.Bad:
            self.assertRaises(Malformed, connection.next_event)
            return
        try:
            event = connection.next_event()
        except Malformed:
            return
        assert isinstance(event, Response | InformationalResponse)
        self.assertEqual(event.status_code, code)
        self.assertEqual(
            [item for item in event.headers if item[0] != b"transfer-encoding"],
            [item for item in headers if item[0] != b"transfer-encoding"],
        )

    @STEADILY
    @given(
        st.sampled_from(("server", "client")),
        st.lists(
            st.one_of(
                st.sampled_from([b"3\r\nabc\r\n", b"0\r\n\r\n", b"00\r\n", b"a\r\n0123456789\r\n", b"\r\n", b"1\r\n"]),
                PIECE,
            ),
            max_size=6,
        ),
        st.data(),
    )
    def test_bodies(self, role: Literal["client", "server"], parts: list[bytes], data: st.DataObject) -> None:
        """A chunked body is refused by both, or ends for both at the same byte and holds the same."""
        stream = b"".join(parts)
        reference = oracle.Chunks(oracle.MAX_BODY if role == "server" else 1 << 40)
        connection = server(CHUNKED) if role == "server" else client(ANSWER_CHUNKED)
        events, at, refused, taken = events_of(connection), 0, False, 0
        try:
            taken = reference.take(stream)
        except oracle.Bad:
            refused = True
        failed = False
        while at < len(stream) and not failed:
            step = data.draw(st.integers(1, len(stream) - at))
            connection.receive(stream[at : at + step])
            try:
                events += events_of(connection)
            except Malformed:
                failed = True
            at += step
        ended = bool(events) and isinstance(events[-1], EndOfMessage)
        if refused:
            self.assertTrue(failed, stream)
        elif reference.done:
            self.assertEqual((ended, failed, connection.unread), (True, False, stream[taken:]))
            self.assertEqual(body_of(events), reference.data)
        else:
            self.assertFalse(ended)
            self.assertTrue(reference.data.startswith(body_of(events)))
