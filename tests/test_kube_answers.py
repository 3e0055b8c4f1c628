"""HTTP answers out of bytes: every framing, in pieces of any size, and what must not be taken for an answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.answers import Answer, BadAnswer, Reader


def read(data: bytes, sizes: list[int] | None = None) -> Answer | None:
    """Feed bytes in pieces of these sizes (over and over; all at once without)."""
    reader, at, turn = Reader(1 << 16), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        answer = reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
        if answer is not None:
            assert at >= len(data), "complete too early"
            return answer
    return reader.closed()


def whole(body: bytes, head: bytes = b"") -> bytes:
    """Return an answer with a length."""
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def chunked(parts: list[bytes], trailer: bytes = b"") -> bytes:
    """Return an answer in chunks."""
    chunks = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"


PIECES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


class ReaderTests(SynchronousTestCase):
    """The reader of answers."""

    @given(st.binary(max_size=300), PIECES)
    @settings(deadline=None, max_examples=150)
    def test_a_body_of_a_length(self, body: bytes, sizes: list[int]) -> None:
        """A body of a given length comes out as it was sent, however the bytes are cut."""
        answer = read(whole(body, b"Date: x\r\nRETRY-AFTER: 7\r\n"), sizes)
        assert answer is not None
        self.assertEqual((answer.code, answer.body, answer.keeps, answer.retry_after), (200, body, True, 7.0))

    @given(st.lists(st.binary(max_size=60), max_size=8), PIECES, st.sampled_from([b"", b"A: b\r\nC: d\r\n"]))
    @settings(deadline=None, max_examples=250)
    def test_a_body_in_chunks(self, parts: list[bytes], sizes: list[int], trailer: bytes) -> None:
        """Chunks come out joined, however they and their lines are cut, with and without a trailer."""
        answer = read(chunked(parts, trailer), sizes)
        assert answer is not None
        self.assertEqual((answer.code, answer.body, answer.keeps), (201, b"".join(parts), True))

    @given(st.binary(max_size=200), PIECES)
    @settings(deadline=None, max_examples=60)
    def test_a_body_that_ends_with_the_connection(self, body: bytes, sizes: list[int]) -> None:
        """Without a length the end of the connection ends the body, and the connection is not used again."""
        answer = read(b"HTTP/1.1 200 OK\r\n\r\n" + body, sizes)
        assert answer is not None
        self.assertEqual((answer.body, answer.keeps), (body, False))

    def test_answers_without_a_body(self) -> None:
        """204 and 304 have no body whatever they say, and an empty one is complete with its head."""
        for data in (
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            whole(b""),
        ):
            answer = Reader().feed(data)
            assert answer is not None
            self.assertEqual(answer.body, b"")

    def test_interim_answers_are_passed_over(self) -> None:
        """100 and 103 come before the answer and are not it."""
        data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + whole(b"yes")
        for sizes in ([1], [25], None):
            answer = read(data, sizes)
            assert answer is not None
            self.assertEqual((answer.code, answer.body), (200, b"yes"))
            self.assertNotIn(b"link", answer.fields)

    def test_whether_the_connection_is_kept(self) -> None:
        """``Connection: close`` ends it, and so does HTTP/1.0 unless it says ``keep-alive``."""
        for head, kept in (
            (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
            (b"HTTP/1.0 200 OK\r\n", False),
            (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
        ):
            answer = Reader().feed(head + b"Content-Length: 2\r\n\r\nok")
            assert answer is not None
            self.assertIs(answer.keeps, kept, head)

    def test_what_was_cut_off_is_no_answer(self) -> None:
        """A connection that ends inside of a head, a length or a chunk leaves no answer."""
        for data in (b"", b"HTTP/1.1 200 OK\r\n", whole(b"abc")[:-1], chunked([b"abc"])[:-2], chunked([b"abc"])[:-9]):
            self.assertIsNone(read(data), data)

    def test_what_is_no_answer(self) -> None:
        """Whatever leaves it open where an answer ends, or brings more than one, is refused."""
        ok = b"HTTP/1.1 200 OK\r\n"
        for data in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            ok + b"no colon\r\n\r\n",
            ok + b"A: b\r\n folded\r\n\r\n",
            ok + b"Content-Length : 1\r\n\r\nx",
            ok + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            ok + b"Content-Length: -1\r\n\r\n",
            ok + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ok + b"Transfer-Encoding: gzip\r\n\r\n",
            ok + b"Content-Length: 1\r\n\r\nxy",
            whole(b"x") + whole(b"y"),
            b"HTTP/1.1 204 No Content\r\n\r\nmore",
            ok + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
            ok + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
            ok + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            chunked([b"x"]) + b"more",
        ):
            with self.assertRaises(BadAnswer, msg=data):
                read(data)

    def test_sizes_are_bounded(self) -> None:
        """A head, a chunk line and a body that exceed their bounds are refused before they are kept."""
        ok = b"HTTP/1.1 200 OK\r\n"
        for data in (
            ok + b"A: " + b"x" * (70 << 10),
            ok + b"Content-Length: 99999999\r\n\r\n",
            ok + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n",
            ok + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * (5 << 10),
            ok + b"\r\n" + b"x" * (1 << 17),
            ok + b"Transfer-Encoding: chunked\r\n\r\n" + b"8000\r\n%b\r\n" % (b"x" * 0x8000) * 3,
        ):
            with self.assertRaises(BadAnswer, msg=data[:60]):
                read(data, [4096])
