"""Tests of liqod.flow.tasks and liqod.flow.observe."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults, succeed
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate, Latest
from liqod.flow.tasks import Loop, Tasks, side_by_side, together
from tests.kube.cases import warnings_of


class TogetherTests(SynchronousTestCase):
    """Several things that are awaited side by side."""

    def test_results(self) -> None:
        """The results come in the order of what was awaited, not in that in which it ended."""
        first: Deferred[int] = Deferred()
        both = Deferred.fromCoroutine(together([first, succeed(2)]))
        self.assertNoResult(both)
        first.callback(1)
        self.assertEqual(self.successResultOf(both), [1, 2])

    def test_failure(self) -> None:
        """The first failure is raised as it is, at once."""
        waiting: Deferred[None] = Deferred()
        both = Deferred.fromCoroutine(together([waiting, fail(ZeroDivisionError())]))
        self.failureResultOf(both, ZeroDivisionError)

    def test_cancelled(self) -> None:
        """Cancelled, it cancels all of them, and that is what is raised."""
        cancelled: list[Deferred[None]] = []
        waiting: list[Deferred[None]] = [Deferred(cancelled.append) for _ in range(2)]
        both = Deferred.fromCoroutine(together(waiting))
        both.cancel()
        self.failureResultOf(both, CancelledError)
        self.assertEqual(cancelled, waiting)

    def test_what_is_under_way_ends(self) -> None:
        """Coroutines side by side: when one fails the others are cancelled, and nothing is logged of them."""
        cancelled: list[Deferred[int]] = []

        async def wait() -> int:
            return await Deferred(cancelled.append)

        async def divide() -> int:
            raise ZeroDivisionError

        async def count() -> int:
            return 1

        self.failureResultOf(Deferred.fromCoroutine(side_by_side([wait(), divide(), count()])), ZeroDivisionError)
        self.assertEqual(len(cancelled), 1)
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(side_by_side([count(), count()]))), [1, 1])


class Work(Loop):
    """Waits for what the test says, and at its end once more; writes down what happens."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.waiting: Deferred[None] = Deferred()
        self.ending: Deferred[None] = Deferred()

    async def work(self) -> None:
        """Wait."""
        self.seen.append("work")
        try:
            await self.waiting
        finally:
            self.seen.append("over")

    async def end(self) -> None:
        """Wait once more."""
        self.seen.append("end")
        await self.ending

    def failed(self, failure: Failure) -> None:
        """Write down what was raised."""
        self.seen.append(type(failure.value).__name__)


class LoopTests(SynchronousTestCase):
    """A coroutine that runs as long as its service."""

    def setUp(self) -> None:
        self.loop = Work()

    def test_stopped(self) -> None:
        """Its work is cancelled, which is no failure; then it ends, and only then it has stopped."""
        self.loop.startService()
        stopped = self.loop.stopService()
        self.assertEqual(self.loop.seen, ["work", "over", "end"])
        self.assertNoResult(stopped)
        self.loop.ending.callback(None)
        self.successResultOf(stopped)

    def test_a_defect(self) -> None:
        """What the work raises is reported, and it ends in order all the same."""
        self.loop.startService()
        self.loop.waiting.errback(Failure(ZeroDivisionError()))
        self.assertEqual(self.loop.seen, ["work", "over", "ZeroDivisionError"])
        self.loop.ending.callback(None)
        self.successResultOf(self.loop.stopService())
        self.assertEqual(self.loop.seen[-1], "end")

    def test_never_started(self) -> None:
        """Then there is nothing to end."""
        self.successResultOf(self.loop.stopService())
        self.assertEqual(self.loop.seen, [])

    def test_stopped_twice(self) -> None:
        """It ends once."""
        self.loop.startService()
        self.loop.ending.callback(None)
        self.successResultOf(self.loop.stopService())
        self.successResultOf(self.loop.stopService())
        self.assertEqual(self.loop.seen.count("end"), 1)


class TasksTests(SynchronousTestCase):
    """Detached coroutines and their end."""

    def test_a_foreseen_failure_is_one_sentence(self) -> None:
        """A failure with a sentence is logged as a warning that names the task."""
        caught = warnings_of(self)

        async def fail() -> None:
            raise ExpectedError("the peer is away")

        Tasks().spawn(fail(), "greeting the peer")
        self.assertEqual([(e["task"], e["error"]) for e in caught], [("greeting the peer", "the peer is away")])

    def test_a_defect_is_logged_with_its_traceback(self) -> None:
        """Any other failure is logged as a failure."""

        async def fail() -> None:
            raise ZeroDivisionError

        Tasks().spawn(fail(), "dividing")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stopping_cancels_and_waits(self) -> None:
        """``stopService`` cancels what runs and fires only when its clean-up has ended."""
        cleaned: Deferred[None] = Deferred()

        async def linger() -> None:
            try:
                await Deferred()
            except CancelledError:
                await cleaned

        tasks = Tasks()
        tasks.spawn(linger(), "lingering")
        stopped = tasks.stopService()
        self.assertNoResult(stopped)
        cleaned.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(len(tasks), 0)

    def test_cancelling_a_wait_for_several_is_quiet(self) -> None:
        """A coroutine that was waiting for several things at once is cancelled like any other: nothing is logged."""

        async def wait() -> None:
            await gatherResults([Deferred(), Deferred()], consumeErrors=True)

        tasks = Tasks()
        tasks.spawn(wait(), "waiting")
        self.successResultOf(tasks.stopService())
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_nothing_starts_while_stopping(self) -> None:
        """A coroutine spawned after the stop is closed without having run."""
        ran = []

        async def run() -> None:
            ran.append(1)

        tasks = Tasks()
        self.successResultOf(tasks.stopService())
        tasks.spawn(run(), "running")
        self.assertEqual(ran, [])


class ObserveTests(SynchronousTestCase):
    """Values that change and events that happen once."""

    def test_only_changes_are_reported(self) -> None:
        """An equal value is not news; an ended subscription hears nothing."""
        latest = Latest(1)
        received: list[int] = []
        end = latest.subscribe(received.append)
        for value in (1, 2, 2, 3):
            latest.set(value)
        end()
        latest.set(4)
        self.assertEqual((received, latest.value), ([2, 3], 4))

    def test_one_bad_observer_does_not_silence_the_others(self) -> None:
        """A subscriber that raises is logged; those after it are called."""
        latest = Latest(1)
        received: list[int] = []
        latest.subscribe(self.divide)
        latest.subscribe(received.append)
        latest.set(2)
        self.assertEqual(received, [2])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def divide(self, value: int) -> None:
        raise ZeroDivisionError

    def test_a_gate_opens_for_everyone(self) -> None:
        """Those who wait and those who come later pass; giving up waiting harms nobody."""
        gate = Gate()
        first, second = gate.wait(), gate.wait()
        second.addErrback(lambda _: None)
        second.cancel()
        self.assertNoResult(first)
        gate.open()
        gate.open()
        self.successResultOf(first)
        self.successResultOf(gate.wait())
