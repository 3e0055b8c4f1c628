"""How many idle streams are dialled, and when again."""

from __future__ import annotations

import inspect
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.connections.admission import HANDSHAKES_BURST_PER_ADDRESS
from liqod.peering.relay.splice.kept import AGAIN, LIVED, KeptStreams
from liqod.peering.relay.splice.stream import StreamBudget, StreamEnd
from liqod.peering.session.usage import PeerUsage
from tests.peering.relay.splice.cases import connected


class KeptTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.dialled: list[Deferred[Any]] = []
        self.kept = KeptStreams(self.clock, self.dial)

    def dial(self) -> Deferred[Any]:
        one: Deferred[Any] = Deferred()
        self.dialled.append(one)
        return one

    def end(self) -> StreamEnd:
        """Return a stream that is open."""
        end = StreamEnd(self.clock, StreamBudget(self.clock, PeerUsage()))
        connected(end)
        return end

    def test_as_many_as_are_wanted(self) -> None:
        """Each that is used has another one dialled in its place at once."""
        self.kept.want(2)
        self.assertEqual(len(self.dialled), 2)
        end = self.end()
        self.dialled[0].callback(end)
        self.kept.left(end, used=True)
        self.assertEqual(len(self.dialled), 3)
        self.kept.left(end, used=False)
        self.assertEqual(len(self.dialled), 3)

    def test_failures_are_waited_for(self) -> None:
        """A peer that does not answer is dialled ever less often, not in a circle."""
        self.kept.want(4)
        for one in list(self.dialled):
            one.errback(Failure(ConnectError()))
        self.assertEqual(len(self.dialled), 4)
        self.clock.advance(AGAIN.initial * 2)
        self.assertEqual(len(self.dialled), 8)

    def test_a_peer_that_closes_each_at_once(self) -> None:
        """What is closed unused after a moment is no reason to dial at once; after minutes it is."""
        self.kept.want(1)
        end = self.end()
        self.dialled[0].callback(end)
        self.kept.left(end, used=False)
        self.assertEqual(len(self.dialled), 1)
        self.clock.advance(AGAIN.initial * 2)
        end = self.end()
        self.dialled[1].callback(end)
        self.clock.advance(LIVED + 1)
        self.kept.left(end, used=False)
        self.assertEqual(len(self.dialled), 3)

    def test_no_more_than_a_port_takes(self) -> None:
        """A peer that takes each stream at once has so many dialled, and no more before a while has passed."""
        self.kept.want(1)
        taken = 0
        while taken < min(len(self.dialled), 1000):
            end = self.end()
            self.dialled[taken].callback(end)
            self.kept.left(end, used=True)
            taken += 1
        self.assertEqual(taken, HANDSHAKES_BURST_PER_ADDRESS)
        self.clock.advance(1.0)
        self.assertEqual(len(self.dialled), taken + 1)

    def test_dials_that_end_at_once(self) -> None:
        """They are made one after the other, not one within the other."""
        depths: set[int] = set()

        def dial() -> Deferred[Any]:
            depths.add(len(inspect.stack(0)))
            end = self.end()
            end.meet(self.end())
            return succeed(end)

        kept = KeptStreams(self.clock, dial)
        kept.want(1)
        self.assertEqual(len(depths), 1)

    def test_stopping(self) -> None:
        """Nothing is dialled any more, and what is under way is given up."""
        self.kept.want(2)
        self.kept.stop()
        self.clock.advance(3600)
        self.assertEqual(len(self.dialled), 2)
