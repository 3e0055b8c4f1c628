"""Questions as pods send them, and what is said to those that are none."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.names import dns
from twisted.trial.unittest import SynchronousTestCase

from liqod.names.question import (
    FORMERR,
    LARGEST,
    MAX_QUESTION,
    NOERROR,
    NOTIMP,
    REFUSED,
    Question,
    RejectedQuestion,
    is_answer_to,
    read,
)
from tests.names.cases import decoded, query


def head(flags: int = 0x0100, questions: int = 1, answers: int = 0, authority: int = 0, more: int = 0) -> bytes:
    return struct.pack("!6H", 7, flags, questions, answers, authority, more)


def code(found: Question | RejectedQuestion) -> int | None:
    """Return the code of a rejection; None where nothing is said."""
    if isinstance(found, Question):
        raise AssertionError(found)
    return found.reply[3] & 0xF if found.reply else None


class ReadTests(SynchronousTestCase):
    def test_question(self) -> None:
        """Name, type and EDNS are read; the name in lower case, the section as it came."""
        found = read(query("Cache.Shop.SVC.home.example", dns.SRV, size=4096))
        assert isinstance(found, Question)
        self.assertEqual((found.id, found.name, found.kind), (7, "cache.shop.svc.home.example", dns.SRV))
        self.assertIn(b"\x05Cache", found.section)
        self.assertEqual(found.by_udp, LARGEST)
        plain = read(query("a"))
        assert isinstance(plain, Question)
        self.assertEqual(plain.by_udp, 512)

    def test_refused(self) -> None:
        """Whole zones, all records at once, updates, other classes: none of that is answered."""
        tail = b"\x01a\0"
        for kind in (0, 255, 252, 251, 250, 249, 253, 254, 41):
            self.assertEqual(code(read(head() + tail + struct.pack("!2H", kind, 1))), REFUSED)
        for klass in (0, 3, 4, 254, 255):
            self.assertEqual(code(read(head() + tail + struct.pack("!2H", 1, klass))), REFUSED)
        for opcode in (1, 2, 4, 5, 6):
            self.assertEqual(code(read(head(opcode << 11) + tail + struct.pack("!2H", 1, 1))), NOTIMP)

    def test_malformed(self) -> None:
        """What is no question is answered so, in a dozen bytes; an answer is not answered, nor is half a header."""
        end = struct.pack("!2H", 1, 1)
        for bad in (
            head(questions=0),
            head(questions=2) + b"\x01a\0" + end + b"\x01b\0" + end,
            head(answers=1) + b"\x01a\0" + end,
            head(authority=1) + b"\x01a\0" + end,
            head() + b"\xc0\x0c" + end,  # a name that points at itself
            head() + b"\x01a\xc0\x0c" + end,
            head() + b"\x40" + b"a" * 64 + b"\0" + end,
            head() + b"\x3f" + b"a" * 10,
            head() + (b"\x3f" + b"a" * 63) * 4 + b"\0" + end,
            head() + b"\x01a\0\0",
            head() + b"\x01a\0" + end + b"more",
            head(more=1) + b"\x01a\0" + end,
            head(more=1) + b"\x01a\0" + end + b"\0" + struct.pack("!HHIH", 250, 1, 0, 0),  # TSIG
            head(more=1) + b"\x01a\0" + end + b"\0" + struct.pack("!HHIH", 41, 512, 1 << 16, 0),  # EDNS 1
            head(more=1) + b"\x01a\0" + end + b"\0" + struct.pack("!HHIH", 41, 512, 0, 9),
            query("a") + bytes(MAX_QUESTION),
        ):
            self.assertEqual(code(read(bad)), FORMERR, bad)
        self.assertIsNone(code(read(head(0x8100) + b"\x01a\0" + end)))
        self.assertIsNone(code(read(b"\0" * 11)))

    def test_labels_that_read_as_others(self) -> None:
        """A label with a dot in it is refused: joined with dots, it would be another name."""
        end = struct.pack("!2H", 1, 1)
        for label in (b"web.kube-system", b".", b"a\0b", b"a b", b'"', b"\\", b"\xff"):
            data = head() + bytes([len(label)]) + label + b"\x04shop\x03svc\x04home\x07example\0" + end
            self.assertEqual(code(read(data)), REFUSED, label)

    @given(st.binary(max_size=600))
    def test_never_raises(self, data: bytes) -> None:
        """Whatever comes, it is a question or it is not; what is said is at most as long as what came, or a header."""
        for found in (read(data), read(head() + data), read(head(more=1) + data)):
            if isinstance(found, RejectedQuestion):
                self.assertLessEqual(len(found.reply), max(12, len(data) + 12))
            else:
                decoded(found.answer(NOERROR))


class AnswerTests(SynchronousTestCase):
    def test_what_answers(self) -> None:
        """An answer has the ID and the question that were sent, and is an answer."""
        sent = query("a.example")
        good = sent[:2] + b"\x81\x80" + sent[4:]
        section = sent[12:]
        self.assertTrue(is_answer_to(good, 7, section))
        self.assertFalse(is_answer_to(good, 8, section))
        self.assertFalse(is_answer_to(sent, 7, section))
        self.assertFalse(is_answer_to(good, 7, query("b.example")[12:]))
        self.assertFalse(is_answer_to(good[:20], 7, section))
        self.assertFalse(is_answer_to(good[:4] + b"\0\0" + good[6:], 7, section))

    def test_edns_in_return(self) -> None:
        """EDNS is answered by EDNS, and never without being asked (RFC 6891)."""
        for size in (0, 1232):
            found = read(query("a.example", size=size))
            assert isinstance(found, Question)
            self.assertEqual(len(decoded(found.answer(NOERROR, truncated=True)).additional), bool(size))
            self.assertEqual(len(decoded(found.asked(9, "b.c")).additional), bool(size))
