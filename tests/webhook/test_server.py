"""The webhook's port: what is received at a time of reviews that may be anybody's."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.offloading import OffloadingPolicy
from liqod.webhook.bodies import FROM_ADDRESS, MAX_SOURCES, REVIEWS, TOGETHER, Reviews
from liqod.webhook.review import MAX_BODY
from liqod.webhook.server import BUSY, Mutate, site

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u", "operation": "CREATE"},
}


class BodiesTests(SynchronousTestCase):
    """Reviews of which all but the last byte has come cost nothing yet, and all of them at once, in one turn, much."""

    def setUp(self) -> None:
        mutate = Mutate(lambda _: OffloadingPolicy(), lambda: True, 0.0, lambda _: True)
        self.clock, self.refused = Clock(), list[str]()
        self.reviews = Reviews(self.clock, lambda reason, source, message: self.refused.append(f"{reason} {source}"))
        self.site = site(mutate, self.clock, self.reviews)

    def call(self, host: str, body: bytes, length: int) -> tuple[Any, StringTransport]:
        """Return a connection over which a review was begun, and its transport."""
        address = IPv4Address("TCP", host, 40000)
        transport = StringTransport(peerAddress=address)
        channel: Any = self.site.buildProtocol(address)
        channel.makeConnection(transport)
        channel.dataReceived(b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
        for start in range(0, len(body), 1 << 16):
            channel.dataReceived(body[start : start + (1 << 16)])
        return channel, transport

    def large(self, host: str, count: int) -> list[tuple[Any, StringTransport]]:
        """Return reviews of the largest size, each without its last byte."""
        return [self.call(host, b" " * (MAX_BODY - 1), MAX_BODY) for _ in range(count)]

    def waiting(self, calls: list[tuple[Any, StringTransport]]) -> int:
        return sum(not transport.value() for _, transport in calls)

    def answers(self, host: str) -> bool:
        body = json.dumps(REVIEW).encode()
        _, transport = self.call(host, body, len(body))
        answer: bytes = transport.value()
        return answer.startswith(b"HTTP/1.1 200")

    def test_from_one_address(self) -> None:
        """There is room for so many of one address, and others are answered all the same."""
        calls = self.large("192.0.2.1", 12)
        self.assertEqual(self.waiting(calls), FROM_ADDRESS // MAX_BODY)
        self.assertEqual([transport.value() for _, transport in calls[-4:]], [BUSY] * 4)
        self.assertTrue(self.answers("192.0.2.2"))

    def test_from_many_addresses(self) -> None:
        """There is room for so many in all, and again when they have ended, one way or the other."""
        calls = [call for number in range(4) for call in self.large(f"192.0.2.{number}", 8)]
        self.assertEqual(self.waiting(calls), TOGETHER // MAX_BODY)
        held = [channel for channel, transport in calls if not transport.value()]
        for channel in held[:8]:
            channel.connectionLost(Failure(ConnectionDone()))
        for channel in held[8:]:
            channel.dataReceived(b" ")
        again = [call for number in range(4) for call in self.large(f"192.0.2.{number}", 8)]
        self.assertEqual(self.waiting(again), TOGETHER // MAX_BODY)

    def test_more_in_a_second_than_an_api_server_asks(self) -> None:
        """An address has its share of a second, and a burst; another one is answered all the same."""
        rate, burst = REVIEWS
        self.assertEqual([self.reviews.admit("192.0.2.1") for _ in range(burst + 2)], [True] * burst + [False] * 2)
        self.assertFalse(self.answers("192.0.2.1"))
        self.assertEqual(self.refused, ["TooManyReviews 192.0.2.1"] * 3)
        self.assertTrue(self.answers("192.0.2.2"))
        self.clock.advance(1.0)
        self.assertEqual([self.reviews.admit("192.0.2.1") for _ in range(int(rate) + 1)].count(True), rate)
        self.assertEqual(self.reviews.answered, burst + 1 + rate)

    def test_many_addresses(self) -> None:
        """What is remembered of addresses is bounded."""
        for number in range(2 * MAX_SOURCES):
            self.reviews.admit(f"10.0.{number // 256}.{number % 256}")
        self.assertEqual(len(self.reviews._paces), MAX_SOURCES)

    def test_ordinary_reviews(self) -> None:
        """A burst of a thousand reviews of ten kilobytes is received."""
        calls = [self.call("192.0.2.1", b" " * 10_000, 10_001) for _ in range(1000)]
        self.assertEqual(self.waiting(calls), 1000)
