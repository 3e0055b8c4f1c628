"""How long a relay keeps connections open: to the API server between requests, and those of a silent borrower."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.connection.transport import CACHED_FOR
from liqod.model.ids import ClusterID
from liqod.peering.relay.channel import HEAD, IDLE, STALLED, TUNNEL, RelayChannel
from liqod.peering.relay.upstream import LINGER, MAX_IDLE, Pool, UpstreamConnection
from liqod.peering.session.usage import REACTOR_TIME, RELAY_REQUESTS, SHARES, PeerUsage

GET = b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
UPGRADE = b"GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class Transport(StringTransport):
    """A connection that notes when reading from it is paused, resumed or ended."""

    connected = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def loseConnection(self) -> None:
        self.calls.append("close")

    def abortConnection(self) -> None:
        self.calls.append("abort")


def connected(clock: Clock) -> tuple[UpstreamConnection, Transport]:
    upstream, transport = UpstreamConnection(cast(Any, clock)), Transport()
    upstream.makeConnection(cast(Any, transport))
    return upstream, transport


class PoolTests(SynchronousTestCase):
    """Connections whose answer is complete."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pool = Pool(cast(Any, None), cast(Any, self.clock))

    def test_so_many_are_kept(self) -> None:
        """One more is closed, and not given to anybody."""
        made = [connected(self.clock) for _ in range(MAX_IDLE + 1)]
        for upstream, _ in made:
            self.pool.release(upstream)
        self.assertEqual([transport.calls for _, transport in made], [[]] * MAX_IDLE + [["close"]])
        given = [self.pool.idle() for _ in range(MAX_IDLE + 1)]
        self.assertEqual(given, [upstream for upstream, _ in made[:MAX_IDLE][::-1]] + [None])

    def test_none_is_kept_after_the_end(self) -> None:
        """What was in use when the pool was closed is closed when it comes back."""
        upstream, transport = connected(self.clock)
        self.pool.close()
        self.pool.release(upstream)
        self.assertEqual(transport.calls, ["close"])
        self.assertIsNone(self.pool.idle())

    def test_a_transport_is_called_for_changes(self) -> None:
        """Paused and resumed once each, however often it is said; a lost one is not called."""
        upstream, transport = connected(self.clock)
        for paused in (False, True, True, False, False):
            upstream.pause(paused)
        self.assertEqual(transport.calls, ["pause", "resume"])
        upstream.connectionLost()
        upstream.pause(True)
        self.assertEqual(transport.calls, ["pause", "resume"])

    def test_a_response_without_a_request(self) -> None:
        """A connection that receives one while it is idle is aborted, and not given to anybody."""
        upstream, transport = connected(self.clock)
        self.pool.release(upstream)
        upstream.dataReceived(OK)
        self.assertEqual(transport.calls, ["abort"])
        upstream.connectionLost()
        self.assertIsNone(self.pool.idle())

    def test_an_idle_connection_that_is_lost(self) -> None:
        """When its time is over nothing is closed a second time, and no timer stays."""
        upstream, transport = connected(self.clock)
        self.pool.release(upstream)
        upstream.connectionLost()
        self.clock.advance(CACHED_FOR)
        self.assertEqual((transport.calls, self.clock.getDelayedCalls()), ([], []))

    def test_bytes_after_the_close(self) -> None:
        """They are dropped: what was sent still has its time to be flushed."""
        upstream, transport = connected(self.clock)
        upstream.close()
        upstream.dataReceived(OK)
        self.clock.advance(LINGER - 1)
        self.assertEqual(transport.calls, ["close"])
        self.clock.advance(1)
        self.assertEqual(transport.calls, ["close", "abort"])


class ChannelCase(SynchronousTestCase):
    """A borrower's connection, before a gate that lets everything in."""

    def setUp(self) -> None:
        self.clock, self.transport, self.usage = Clock(), Transport(), PeerUsage()
        self.upstream, self.api = connected(self.clock)
        gate = SimpleNamespace(
            clock=self.clock,
            base=b"",
            admit=lambda channel, call: "rome",
            own_headers=lambda user: [(b"Host", b"api")],
            idle=lambda: self.upstream,
            answered=lambda channel, call, code: None,
            release=lambda upstream: None,
            rejected=lambda channel, rejected: None,
            channel_lost=lambda channel: None,
        )
        self.channel = RelayChannel(cast(Any, gate), ClusterID("rome"), "", "192.0.2.1", self.usage)
        self.channel.makeConnection(cast(Any, self.transport))


class ShareTests(ChannelCase):
    """A borrower that takes more than its share of what the daemon does in a second."""

    def test_the_next_request_waits(self) -> None:
        """It is read a little later, and the one before is answered."""
        self.channel.dataReceived(GET)
        for _ in range(int(sum(SHARES[RELAY_REQUESTS]))):
            self.usage.requested(0.0)
        self.upstream.dataReceived(OK)
        self.assertEqual(self.transport.value(), OK)
        self.api.clear()
        self.channel.dataReceived(GET)
        self.assertEqual((self.api.value(), self.transport.calls), (b"", ["pause"]))
        self.clock.advance(1.01)
        self.assertTrue(self.api.value().startswith(b"GET /api "))
        self.assertEqual(self.transport.calls, ["pause", "resume"])
        self.assertEqual(dict(self.usage.held), {RELAY_REQUESTS: 1})

    def test_bodies_count(self) -> None:
        """Their bytes are the borrower's, however they are cut."""
        for part in (POST, b"bo", b"dy"):
            self.channel.dataReceived(part)
        self.assertEqual(self.usage.relayed, 4)

    def test_a_stream_waits_in_both_directions(self) -> None:
        """Nothing is read of either side while it is others' turn, and both go on."""
        self.channel.dataReceived(UPGRADE)
        self.upstream.dataReceived(SWITCH)
        self.usage.worked(sum(SHARES[REACTOR_TIME]), 0.0)
        self.channel.dataReceived(b"keys")
        self.assertEqual((self.transport.calls, self.api.calls), (["pause"], ["pause"]))
        self.clock.advance(1.01)
        self.assertEqual((self.transport.calls, self.api.calls), (["pause", "resume"], ["pause", "resume"]))

    def test_the_end_of_one_that_waits(self) -> None:
        """No timer stays."""
        self.usage.worked(sum(SHARES[REACTOR_TIME]), 0.0)
        self.channel.dataReceived(GET)
        self.channel.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class SilenceTests(ChannelCase):
    """A borrower that sends nothing, or too little: what ends its connection, and what it is sent."""

    def lasts(self, seconds: float) -> None:
        """Check that the connection is open for ``seconds`` more, and closed then."""
        self.clock.advance(seconds - 1)
        self.assertEqual(self.transport.calls, [])
        self.clock.advance(1)
        self.assertNotEqual(self.transport.calls, [])

    def assert_late(self) -> None:
        """Check that the borrower was sent a 408 (Request Timeout), and nothing else."""
        self.assertEqual(self.transport.calls, ["close"])
        self.assertTrue(self.transport.value().startswith(b"HTTP/1.1 408 "))
        self.assertEqual(self.transport.value().count(b"HTTP/1.1 "), 1)

    def test_each_byte_of_a_head_gives_no_more_time(self) -> None:
        """The time for a head begins with its first byte."""
        for _ in range(4):
            self.channel.dataReceived(b"G")
            self.assertEqual(self.transport.calls, [])
            self.clock.advance(HEAD / 4)
        self.assert_late()

    def test_an_idle_connection(self) -> None:
        """It is closed without a response, which the borrower could take for that to its next request."""
        self.lasts(IDLE)
        self.assertEqual((self.transport.calls, self.transport.value()), (["close"], b""))

    def test_the_idle_time_begins_with_the_last_response(self) -> None:
        """However long the request before it took."""
        self.channel.dataReceived(GET)
        self.clock.advance(IDLE - 1)
        self.upstream.dataReceived(OK)
        self.lasts(IDLE)
        self.assertEqual(self.transport.value(), OK)

    def test_a_complete_request_has_no_limit(self) -> None:
        """The response may take hours, as that of a watch does, wherever the request's body was cut."""
        for parts in ((GET,), (POST + b"body",), (POST, b"body"), (POST, b"bo", b"dy")):
            self.setUp()
            for part in parts:
                self.channel.dataReceived(part)
            self.clock.pump([IDLE] * 60)
            self.assertEqual((self.transport.calls, self.api.calls), ([], []), parts)
            self.upstream.dataReceived(OK)
            self.assertEqual(self.transport.value(), OK, parts)

    def test_a_body_that_stops(self) -> None:
        """Each part gives the next one the same time; an incomplete request is given up at the API server, too."""
        for parts in ((), (b"b", b"od"), (b"b", b"o", b"d")):
            self.setUp()
            self.channel.dataReceived(POST)
            for part in parts:
                self.clock.advance(STALLED - 1)
                self.channel.dataReceived(part)
            self.lasts(STALLED)
            self.assert_late()
            self.assertEqual(self.api.calls, ["abort"])

    def test_a_silent_tunnel(self) -> None:
        """Bytes in either direction keep it open; its bytes are not HTTP, so no response ends it."""
        self.channel.dataReceived(UPGRADE)
        self.upstream.dataReceived(SWITCH)
        for receive in (self.channel.dataReceived, self.upstream.dataReceived):
            self.clock.advance(TUNNEL - 1)
            receive(b"bytes")
        self.lasts(TUNNEL)
        self.assertEqual(self.transport.calls, ["abort"])
        self.assertTrue(self.transport.value().endswith(b"\r\n\r\nbytes"))
