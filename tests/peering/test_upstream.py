"""What a relay keeps open: connections to the API server between requests, and a borrower's while its head comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.peering.relay.channel import HEAD, RelayChannel
from liqod.peering.relay.upstream import MAX_IDLE, Pool, UpstreamConnection


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


class SlowHeadTests(SynchronousTestCase):
    """A borrower that sends the head of a request byte by byte."""

    def test_each_byte_gives_no_more_time(self) -> None:
        """The time for a head begins with its first byte, and ends the connection."""
        clock, transport = Clock(), Transport()
        gate = SimpleNamespace(clock=clock, rejected=lambda channel, rejected: None)
        channel = RelayChannel(cast(Any, gate), ClusterID("rome"), "", "192.0.2.1")
        channel.makeConnection(cast(Any, transport))
        for _ in range(4):
            channel.dataReceived(b"G")
            self.assertEqual(transport.calls, [])
            clock.advance(HEAD / 4)
        self.assertEqual(transport.calls, ["close"])
        self.assertTrue(transport.value().startswith(b"HTTP/1.1 408 "))
