"""Two ends that are joined: what passes, how fast, and how they end."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.peering.relay.splice.limits import BURST, MAX_AHEAD, RATE, SILENT, UNREAD
from liqod.peering.relay.splice.stream import FirstSpeaker, StreamBudget, StreamEnd
from liqod.peering.session.usage import PeerUsage
from tests.peering.relay.splice.cases import HELLO, Wire, connected


class StreamTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.budget = StreamBudget(self.clock, PeerUsage())
        self.closed: list[StreamEnd] = []
        self.spoke: list[FirstSpeaker] = []
        self.first = FirstSpeaker(self.clock, self.budget, self.closed.append, self.spoke.append)
        self.second = StreamEnd(self.clock, self.budget, self.closed.append)
        self.one, self.two = connected(self.first), connected(self.second)

    def join(self) -> tuple[Wire, Wire]:
        self.first.dataReceived(HELLO)
        self.first.join(self.second)
        return self.one, self.two

    def test_nothing_is_lost_or_changed(self) -> None:
        """What came before the ends were joined is written first; then each byte passes as it is, both ways."""
        one, two = self.join()
        self.first.dataReceived(b"more")
        self.second.dataReceived(b"answer")
        self.assertEqual((two.written, one.written), (HELLO + b"more", b"answer"))

    def test_nothing_is_read_before_there_is_another_end(self) -> None:
        """The first bytes pause the reading, and the joining lets it go on."""
        self.first.dataReceived(HELLO)
        self.assertEqual(self.spoke, [self.first])
        self.assertTrue(self.one.paused)
        self.first.join(self.second)
        self.assertFalse(self.one.paused)

    def test_two_reasons_not_to_read(self) -> None:
        """The reading is paused once, and goes on when the last of them is over."""
        calls: list[str] = []
        self.patch(self.one, "pauseProducing", lambda: calls.append("pause"))
        self.patch(self.one, "resumeProducing", lambda: calls.append("resume"))
        for why, held in (("share", True), ("reader", True), ("share", False), ("reader", False), ("reader", False)):
            self.first.hold(why, held)
        self.assertEqual(calls, ["pause", "resume"])

    def test_what_is_not_tls_passes_nowhere(self) -> None:
        """A request in the clear, with a token in it, is cut off before anybody else has it."""
        self.first.dataReceived(b"GET / HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n")
        self.assertFalse(self.one.connected)
        self.assertEqual((self.spoke, self.two.written), ([], b""))

    def test_too_much_ahead(self) -> None:
        """A client that sends on while it is paused is cut off."""
        self.first.dataReceived(HELLO)
        self.first.dataReceived(bytes(MAX_AHEAD))
        self.assertFalse(self.one.connected)

    def test_the_other_end_says_nothing_first(self) -> None:
        """An end that nobody joined takes no bytes."""
        self.second.dataReceived(b"x")
        self.assertFalse(self.two.connected)

    def test_a_slow_reader(self) -> None:
        """While one side does not read, nothing is read of the other; after a minute both are closed."""
        one, two = self.join()
        self.second.pauseProducing()
        self.assertTrue(one.paused)
        self.clock.advance(UNREAD / 2)
        self.second.resumeProducing()
        self.assertFalse(one.paused)
        self.second.pauseProducing()
        self.clock.advance(UNREAD + 1)
        self.assertFalse(one.connected or two.connected)

    def test_a_reader_that_was_slow_before(self) -> None:
        """An end that is full already when it is joined pauses the other one at once."""
        self.second.pauseProducing()
        self.join()
        self.assertTrue(self.one.paused)

    def test_bytes_a_second(self) -> None:
        """Who had its share is not read from, for as long as it was above it."""
        one, _ = self.join()
        self.first.dataReceived(bytes(BURST))
        self.first.dataReceived(bytes(RATE))
        self.assertTrue(one.paused)
        self.clock.advance(1.5)
        self.assertFalse(one.paused)

    def test_silence(self) -> None:
        """A stream without a byte for half an hour ends; one byte in either direction is enough."""
        one, two = self.join()
        self.clock.advance(SILENT - 1)
        self.second.dataReceived(b"x")
        self.clock.advance(SILENT - 1)
        self.assertTrue(one.connected and two.connected)
        self.clock.advance(2)
        self.assertFalse(one.connected or two.connected)

    def test_ends_end_together(self) -> None:
        """Whichever connection is lost, the other one is closed as well, and each says so once."""
        one, two = self.join()
        two.abortConnection()
        self.assertFalse(one.connected)
        self.assertEqual(sorted(map(id, self.closed)), sorted(map(id, (self.first, self.second))))
        self.assertEqual(self.clock.getDelayedCalls(), [])
