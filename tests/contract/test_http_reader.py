"""The relay and Go's net/http, with which API servers read, take a request for the same."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.http1.against_go import PROGRAM, GoReader, check, streams
from tests.http1.test_connection import CHUNKED, GET
from tests.testbed import versions

SMUGGLED = {
    "two lengths": GET + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length and chunks": GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding that is none": GET + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a folded header": GET + b"X-A: b\r\n Content-Length: 3\r\n\r\nabc",
    "a bare line feed": GET + b"X-A: b\nContent-Length: 3\r\n\r\nabc",
    "a space before the colon": GET + b"Content-Length : 3\r\n\r\nabc",
    "an extension of a chunk": CHUNKED + b"1;a=\r\n\r\na\r\n0\r\n\r\n",
    "a trailer": CHUNKED + b"0\r\nContent-Length: 3\r\n\r\nabc",
    "a size with a sign": CHUNKED + b"+1\r\na\r\n0\r\n\r\n",
    "bare line feeds in chunks": CHUNKED + b"1\na\n0\n\n",
}


class SameMeaningTests(SynchronousTestCase):
    """What the relay takes, Go takes, as the same request with the same end."""

    def setUp(self) -> None:
        require(versions.lacking([PROGRAM]))
        self.go = GoReader()
        self.addCleanup(self.go.close)

    def test_ordinary_requests(self) -> None:
        """One after another, with and without a body; what is behind the first is of the next."""
        for data in (
            GET + b"\r\nGET / HT",
            GET + b"Content-Length: 3\r\n\r\nabcd",
            CHUNKED + b"3\r\nabc\r\n0\r\n\r\nx",
        ):
            self.assertEqual(check(self.go, data), "the same to both")

    def test_what_is_read_in_two_ways(self) -> None:
        """It is refused here, whatever Go makes of it."""
        for name, data in SMUGGLED.items():
            self.assertIn(check(self.go, data), ("refused by both", "refused, Go would read it"), name)

    def test_any_request(self) -> None:
        """Requests that are right but for a few pieces: many are refused, and no small part is taken by both."""
        outcomes: Counter[str] = Counter()

        @settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
        @given(streams())
        def compare(data: bytes) -> None:
            outcomes[check(self.go, data)] += 1

        compare()
        self.assertGreater(outcomes["the same to both"], 100)
        self.assertGreater(outcomes["refused by both"], 100)
