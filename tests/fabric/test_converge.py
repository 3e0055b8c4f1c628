"""The converge loop, when it is stopped."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from liqod.fabric.agent.converge import HOST, ConvergeLoop, FabricHost
from liqod.flow.controller import Source, always


class Host(ConvergeLoop):
    """A host whose pass waits for the test, and then holds a socket."""

    name = "testing"

    def __init__(self, clock: Clock) -> None:
        self.counted: list[tuple[str, str]] = []
        super().__init__(cast(FabricHost, SimpleNamespace(reactor=clock, metrics=self)))
        self.begun: Deferred[None] = Deferred()
        self.go_on: Deferred[None] = Deferred()
        self.holds = False

    def reconciled(self, controller: str, outcome: str, seconds: float) -> None:
        self.counted.append((controller, outcome))

    def sources(self) -> Iterable[Source[str]]:
        yield always(HOST)

    async def cleanup(self) -> None:
        self.holds = False

    async def converge(self) -> None:
        self.begun.callback(None)
        await self.go_on
        self.holds = True


class ConvergeLoopTests(TestCase):
    """A daemon that does not lead any more leads again later, in the same process."""

    timeout = 20

    async def test_stopped_in_the_middle_of_a_pass(self) -> None:
        """A pass that ends after the stop leaves nothing open: the one that leads here next needs the same port."""
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

    async def test_passes_are_counted(self) -> None:
        """A pass that fails is counted like a step of any controller: a network that never works shows in metrics."""
        clock = Clock()
        host = Host(clock)
        host.startService()
        self.addCleanup(host.stopService)
        clock.advance(0)
        await host.begun
        host.go_on.errback(OSError("no such device"))
        clock.advance(0)
        self.assertEqual(host.counted, [("testing", "failed")])
        self.flushLoggedErrors(OSError)
