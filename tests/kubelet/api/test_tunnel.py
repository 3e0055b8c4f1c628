"""Two connections of which one reads what the other writes: a shell, or a forwarded port, at a lender."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.api import tunnel
from liqod.kubelet.api.tunnel import StreamProxy


class Side(StringTransport):
    """One end of a tunnel."""

    connected = True
    aborting = False

    def abortConnection(self) -> None:
        self.aborting = True


class TunnelTests(SynchronousTestCase):
    def test_idle(self) -> None:
        """A tunnel through which nothing passes is closed at both ends; one that is used is not."""
        clock = Clock()
        home, lender = Side(), Side()
        joined = StreamProxy(home, lender, clock)
        clock.advance(tunnel.IDLE - 1)
        joined.from_home(b"x")
        clock.advance(tunnel.IDLE - 1)
        self.assertFalse(home.aborting or lender.aborting)
        clock.advance(2)
        self.assertTrue(home.aborting and lender.aborting)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_the_rest_is_delivered(self) -> None:
        """A side that is left gets time for what is under way, and then no more."""
        clock = Clock()
        home, lender = Side(), Side()
        joined = StreamProxy(home, lender, clock)
        joined.from_lender(b"last words")
        joined.lender_lost()
        self.assertEqual(home.value(), b"last words")
        self.assertTrue(home.disconnecting and not home.aborting)
        clock.advance(tunnel.LINGER)
        self.assertTrue(home.aborting)
        joined.home_lost()
        self.assertEqual(clock.getDelayedCalls(), [])
