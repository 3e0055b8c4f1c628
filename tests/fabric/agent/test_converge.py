"""The converge loop: when it is stopped, and when a host without tunnels is observed."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.fabric.agent.converge import (
    CLEAR_HOLD,
    HOST,
    PERIOD,
    Clearness,
    ConvergeLoop,
    FabricHost,
    is_observation_due,
)
from liqod.flow.controller import NO_METRICS, Source, always
from liqod.flow.errors import ExpectedError


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


class Passes(ConvergeLoop):
    """A host that notes of each pass when it was, and whether it was prompted; a disturbed one prompts another."""

    name = "testing"

    def __init__(self, clock: Clock) -> None:
        super().__init__(cast(FabricHost, SimpleNamespace(reactor=clock, metrics=NO_METRICS)))
        self.passes: list[tuple[float, bool]] = []
        self.is_broken = self.is_disturbed = False

    def sources(self) -> Iterable[Source[str]]:
        yield always(HOST)

    async def converge(self) -> None:
        self.passes.append((self.clock.seconds(), self.is_prompted))
        if self.is_disturbed:
            self.is_disturbed = False
            self.refresh()
        if self.is_broken:
            raise ExpectedError("the kernel is busy")


class PromptedTests(SynchronousTestCase):
    """A pass knows whether something happened, or only time went by."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.host = Passes(self.clock)
        self.host.startService()
        self.addCleanup(lambda: self.successResultOf(self.host.stopService()))
        self.clock.advance(0)

    def go_on(self, seconds: float) -> list[tuple[float, bool]]:
        """Return the passes of some time."""
        self.host.passes.clear()
        self.clock.pump([0.0, *[0.5] * int(seconds * 2), 0.0])
        return list(self.host.passes)

    def test_the_first_pass(self) -> None:
        """A start prompts."""
        self.assertEqual(self.host.passes, [(0.0, True)])

    def test_time_alone(self) -> None:
        """What is due after PERIOD was prompted by nothing, and passes go on."""
        self.assertEqual(self.go_on(2 * PERIOD), [(PERIOD, False), (2 * PERIOD, False)])

    def test_a_source(self) -> None:
        """What a source enqueues is a pass at once; the next is one of time again."""
        self.go_on(2.0)
        self.host.refresh()
        self.assertEqual(self.go_on(PERIOD)[:2], [(2.0, True), (PERIOD, False)])

    def test_during_a_pass(self) -> None:
        """What changes during a pass prompts the one after it."""
        self.host.is_disturbed = True
        self.host.refresh()
        self.assertEqual(self.go_on(1.0), [(0.0, True), (0.0, True)])

    def test_after_a_failure(self) -> None:
        """Where a pass failed the next one does not count on what was found before it."""
        self.host.is_broken = True
        passes = self.go_on(PERIOD + 2.0)
        self.assertGreater(len(passes), 1)
        self.assertEqual([prompted for _, prompted in passes], [False, *[True] * (len(passes) - 1)])


class ObservationTests(SynchronousTestCase):
    """When a host on which nothing is wanted is observed."""

    def test_is_observation_due(self) -> None:
        """What was never found clear is observed; else after CLEAR_HOLD, and where something happened after PERIOD."""
        table: list[tuple[float | None, bool, bool]] = [
            (None, False, True),
            (None, True, True),
            (0.0, False, False),
            (0.0, True, False),
            (PERIOD - 0.1, False, False),
            (PERIOD - 0.1, True, False),
            (PERIOD, False, False),
            (PERIOD, True, True),
            (CLEAR_HOLD - 0.1, False, False),
            (CLEAR_HOLD - 0.1, True, True),
            (CLEAR_HOLD, False, True),
            (CLEAR_HOLD, True, True),
        ]
        for clear_for, prompted, due in table:
            self.assertEqual(is_observation_due(clear_for, prompted=prompted), due, (clear_for, prompted))

    def test_clearness(self) -> None:
        """It counts from the beginning of an observation that was noted, until it is forgotten."""
        clock = Clock()
        clock.advance(100.0)
        clearness = Clearness(clock)
        self.assertTrue(clearness.is_observation_due(prompted=False))
        clearness.note(98.0)
        self.assertFalse(clearness.is_observation_due(prompted=True))
        clock.advance(PERIOD - 2.0)
        self.assertTrue(clearness.is_observation_due(prompted=True))
        self.assertFalse(clearness.is_observation_due(prompted=False))
        clearness.forget()
        self.assertTrue(clearness.is_observation_due(prompted=False))
