"""Answers of servers that are somebody else's: who has a reverse zone says what he likes in it."""

from __future__ import annotations

from twisted.names import dns
from twisted.trial.unittest import SynchronousTestCase

from liqod.names import answers, question
from liqod.names.translation import Reverse
from tests.flow.test_dns_reading import costly
from tests.names.cases import VIEW, answer_to, contents, decoded, query

NAME = "9.113.0.203.in-addr.arpa"


class ForeignNamesTests(SynchronousTestCase):
    """A name is passed on, or left out; it never fails the answer."""

    def answer(self, *targets: bytes) -> list[str]:
        """Return the names that are passed on."""
        asked = query(NAME, dns.PTR)
        read = question.read(asked)
        assert isinstance(read, question.Question)
        records = [dns.RRHeader(NAME, dns.PTR, dns.IN, 60, dns.Record_PTR(target, 60)) for target in targets]
        data = answer_to(asked, records)
        for reply in (
            answers.reversed_names(data, read, VIEW, Reverse(closed=False)),
            answers.translated(data, read, VIEW),
        ):
            names = [name for _, name in contents(decoded(reply))]
        return names

    def test_names_that_are_not_ascii(self) -> None:
        """They are left out, and the others are there."""
        self.assertEqual(self.answer(b"\xff.example", b"host.example", b"a\x80"), ["host.example"])
        self.assertEqual(self.answer(b"\xff.example"), [])

    def test_names_that_are_too_long(self) -> None:
        """By pointers a name can be put together that is longer than any."""
        self.assertEqual(self.answer(b".".join([b"a" * 60] * 5), b"host.example"), ["host.example"])

    def test_names_without_end(self) -> None:
        """An answer in which pointers lead to a name of thousands of labels again and again fails, and is not read."""
        read = question.read(query("cache.shop.svc.home.example", dns.A))
        assert isinstance(read, question.Question)
        reply = answers.translated(costly(900, 8_000), read, VIEW)
        self.assertEqual(decoded(reply).rCode, dns.ESERVER)

    def test_names_of_others(self) -> None:
        """What is in this cluster and not the tenant's is left out too."""
        self.assertEqual(
            self.answer(b"a.kube-system.svc.cluster.local", b"a.shop-rome.svc.cluster.local"),
            ["a.shop.svc.home.example"],
        )
