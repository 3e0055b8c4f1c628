"""The loop that both kinds of host share, when it is told to stop."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from liqod.fabric.converge import Turns
from tests.fabric.fakekernel import FakeKernel


class Host(Turns):
    """A host whose turns wait to be let go on, and then hold a socket."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock, FakeKernel(), "testing")
        self.begun: Deferred[None] = Deferred()
        self.go_on: Deferred[None] = Deferred()
        self.holds = False

    async def _listen(self) -> None:
        pass

    def _deafen(self) -> None:
        self.holds = False

    async def _turn(self) -> None:
        self.begun.callback(None)
        await self.go_on
        self.holds = True


class StopTests(TestCase):
    """A daemon that does not lead any more leads again later, in the same process."""

    timeout = 20

    async def test_in_the_middle_of_a_turn(self) -> None:
        """A turn that ends after the word to stop leaves nothing open: the next to lead here needs the same port."""
        clock = Clock()
        host = Host(clock)
        host.startService()
        clock.advance(0)
        await host.begun
        stopped = host.stopService()
        host.go_on.callback(None)
        clock.advance(0)
        await stopped
        self.assertFalse(host.holds)
