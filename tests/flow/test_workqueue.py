"""Tests of liqod.flow.workqueue."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock, deferLater
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.backoff import Backoff
from liqod.flow.errors import ExpectedError
from liqod.flow.workqueue import QueueClosed, Workers, WorkQueue
from liqod.kube.errors import Conflict
from tests.kube.cases import logged, warnings_of

STEADY = Backoff(initial=1.0, factor=2.0, cap=8.0, jitter=0.0)


class WorkQueueTests(SynchronousTestCase):
    """What comes out of the queue, and when."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, "test", STEADY)

    def take(self) -> Deferred[str]:
        taken = self.queue.get()
        self.clock.advance(0)
        return taken

    def test_the_same_key_waits_once(self) -> None:
        """A key added twice before it is processed comes out once."""
        self.queue.add("a")
        self.queue.add("a")
        self.assertEqual(len(self.queue), 1)
        self.assertEqual(self.successResultOf(self.take()), "a")
        self.assertNoResult(self.take())

    def test_adding_does_not_run_the_worker(self) -> None:
        """A caller that adds a key is not re-entered: the key is handed out in a later turn."""
        waiting = self.queue.get()
        self.queue.add("a")
        self.assertNoResult(waiting)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(waiting), "a")

    def test_a_key_added_while_processed_comes_again_afterwards(self) -> None:
        """An addition during processing is not lost and not handed out to a second worker."""
        self.queue.add("a")
        self.successResultOf(self.take())
        self.queue.add("a")
        second = self.take()
        self.assertNoResult(second)
        self.queue.done("a")
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(second), "a")

    def test_the_earliest_time_counts(self) -> None:
        """Of several pending times for a key the earliest counts, and it comes out once."""
        for seconds in (9, 3, 6):
            self.queue.add_after("a", seconds)
        waiting = self.take()
        self.clock.advance(2.9)
        self.assertNoResult(waiting)
        self.clock.advance(0.2)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(waiting), "a")
        self.queue.done("a")
        self.clock.pump([1.0] * 10)
        self.assertEqual(len(self.queue), 0)

    def test_failures_earn_longer_delays_until_forgotten(self) -> None:
        """Rate-limited additions back off exponentially; forgetting begins again."""
        seen = []
        for _ in range(3):
            self.queue.add_rate_limited("a")
            seen.append(self.clock.getDelayedCalls()[0].getTime() - self.clock.seconds())
            self.clock.advance(10)
            self.successResultOf(self.take())
            self.queue.done("a")
        self.queue.reset_backoff("a")
        self.queue.add_rate_limited("a")
        seen.append(self.clock.getDelayedCalls()[0].getTime() - self.clock.seconds())
        self.assertEqual(seen, [1.0, 2.0, 4.0, 1.0])

    def test_what_made_them_fail_is_over(self) -> None:
        """Hastened, keys that failed are ready at once and begin again; those that wait for another reason go on."""
        for _ in range(3):
            self.queue.add_rate_limited("failed")
            self.clock.advance(10)
            self.successResultOf(self.take())
            self.queue.done("failed")
        self.queue.add_rate_limited("failed")
        self.queue.add_after("later", 7)
        waiting, other = self.take(), self.take()
        self.assertNoResult(waiting)
        self.queue.hasten()
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(waiting), "failed")
        self.assertEqual(self.queue.failures("failed"), 0)
        self.queue.done("failed")
        self.queue.hasten()
        self.clock.advance(6.9)
        self.assertNoResult(other)
        self.clock.advance(0.2)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(other), "later")

    def test_haste_in_the_middle_of_the_work(self) -> None:
        """A key that is processed when all are hastened is not handed out twice; failing then, it waits a moment."""
        self.queue.add_rate_limited("a")
        self.clock.advance(1)
        self.successResultOf(self.take())
        second = self.take()
        self.queue.hasten()
        self.clock.advance(0)
        self.assertNoResult(second)
        self.queue.add_rate_limited("a")
        self.queue.done("a")
        self.clock.advance(1)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(second), "a")

    def test_rescheduling_does_not_grow_the_queue(self) -> None:
        """A key that is rescheduled earlier again and again takes bounded memory."""
        for step in range(5000):
            self.queue.add_after("a", 10_000 - step)
        self.assertEqual(self.queue.delayed, 1)
        self.assertLess(len(self.queue._heap), 200)

    def test_closing_ends_the_waiting(self) -> None:
        """The one that waits, or comes later, learns that the queue is closed; no timer is left."""
        waiting = self.take()
        self.queue.add_after("b", 5)
        self.queue.close()
        self.failureResultOf(waiting, QueueClosed)
        self.failureResultOf(self.take(), QueueClosed)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.queue.add_after("c", 5)
        self.queue.add("d")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.failureResultOf(self.take(), QueueClosed)

    def test_giving_up_waiting_loses_no_key(self) -> None:
        """A cancelled ``get`` takes no key with it."""
        waiting = self.queue.get()
        self.queue.add("a")
        waiting.addErrback(lambda _: None)
        waiting.cancel()
        self.assertEqual(self.successResultOf(self.take()), "a")


class Model(RuleBasedStateMachine):
    """Any order of additions, delays and completions: never two at once, nothing lost."""

    keys = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, "model", STEADY)
        self.processing: list[str] = []
        self.owed: set[str] = set()

    def got(self, key: str) -> None:
        assert key not in self.processing, "one key was handed out twice at once"
        self.processing.append(key)
        self.owed.discard(key)

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owed.add(key)

    @rule(key=keys, seconds=st.floats(0, 20))
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        self.owed.add(key)

    @rule(key=keys)
    def add_rate_limited(self, key: str) -> None:
        self.queue.add_rate_limited(key)
        self.owed.add(key)

    @rule()
    def hasten(self) -> None:
        self.queue.hasten()

    @rule()
    def get(self) -> None:
        self.queue.get().addCallback(self.got)

    @rule(seconds=st.floats(0, 5))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.processing))
        self.processing.remove(key)
        self.queue.done(key)

    def teardown(self) -> None:
        for _ in range(30):
            for key in list(self.processing):
                self.processing.remove(key)
                self.queue.done(key)
            for _ in range(4):
                self.get()
            self.clock.advance(10)
            self.clock.advance(0)
        assert not self.owed, f"lost: {self.owed}"


class ModelTests(SynchronousTestCase):
    """The queue against its invariants."""

    def test_never_two_at_once_and_nothing_lost(self) -> None:
        """In any order of events one key is processed once at a time and every addition is processed in the end."""
        run_state_machine_as_test(Model, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


class Trouble(ExpectedError):
    """A failure with a sentence."""


class WorkersTests(SynchronousTestCase):
    """What the loops make of the outcome."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, "test", STEADY)
        self.seen: list[tuple[float, str]] = []

    def work(self, outcome: Callable[[str], object], count: int = 2) -> Workers[str]:
        async def process(key: str) -> float | None:
            self.seen.append((self.clock.seconds(), key))
            result = outcome(key)
            return await result if isinstance(result, Deferred) else result  # type: ignore[return-value]

        workers = Workers(self.queue, count, process, "testing")
        workers.startService()
        return workers

    def test_a_number_means_look_again_then(self) -> None:
        """A key whose processing returns seconds is processed again after them, without back-off."""
        self.work(lambda key: 5.0)
        self.queue.add("a")
        self.clock.pump([0, 4.9, 0.2, 0])
        self.assertEqual([round(when, 1) for when, _ in self.seen], [0.0, 5.1])

    def test_a_failure_is_tried_again_and_reported_once(self) -> None:
        """The same failure again and again is logged once, as a sentence; the key backs off."""
        caught = warnings_of(self)

        def fail(key: str) -> None:
            raise Trouble("the disk is full")

        workers = self.work(fail)
        self.queue.add("a")
        self.clock.pump([0, 1, 0, 2, 0, 4, 0])
        self.assertEqual([when for when, _ in self.seen], [0, 1, 3, 7])
        self.assertEqual([event["error"] for event in caught], ["the disk is full"])
        self.assertIn("a", workers.troubles)

    def test_the_end_of_trouble_is_said_once(self) -> None:
        """A key that works after a failure is said to work again, once; one that never failed is not."""
        said = logged(self, LogLevel.info)
        failures = ["a"]

        def fail_once(key: str) -> None:
            if key in failures:
                failures.remove(key)
                raise Trouble("the disk is full")

        workers = self.work(fail_once)
        self.queue.add("a")
        self.queue.add("b")
        self.clock.pump([0, 1, 0])
        self.queue.add("a")
        self.clock.advance(0)
        self.assertEqual([key for _, key in self.seen], ["a", "b", "a", "a"])
        self.assertEqual([event["key"] for event in said], ["a"])
        self.assertEqual(workers.troubles, {})

    def test_somebody_else_wrote_first(self) -> None:
        """That is no news, nor that the next attempt works; the second time in a row it is."""
        caught, said = warnings_of(self), logged(self, LogLevel.info)
        failures = ["a", "b", "b"]

        def lose(key: str) -> None:
            if key in failures:
                failures.remove(key)
                raise Conflict(409, "Conflict", "the object has been modified")

        workers = self.work(lose)
        self.queue.add("a")
        self.queue.add("b")
        self.clock.advance(0)
        self.assertEqual((workers.troubles, caught), ({}, []))
        self.clock.pump([1, 0, 2, 0])
        self.assertEqual([key for _, key in self.seen], ["a", "b", "a", "b", "b"])
        self.assertEqual([event["key"] for event in caught], ["b"])
        self.assertEqual([event["key"] for event in said], ["b"])

    def test_a_defect_is_logged_with_its_traceback(self) -> None:
        """An exception that nobody foresaw keeps its traceback in the log, and the loop goes on."""

        def fail(key: str) -> None:
            if key == "a":
                raise ZeroDivisionError

        self.work(fail, count=1)
        self.queue.add("a")
        self.queue.add("b")
        self.clock.advance(0)
        self.assertEqual([key for _, key in self.seen], ["a", "b"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_keys_are_processed_side_by_side(self) -> None:
        """With two workers two keys are under way at once, and a third waits."""
        self.work(lambda key: deferLater(self.clock, 1, lambda: None))
        for key in "abc":
            self.queue.add(key)
        self.clock.advance(0)
        self.assertEqual([key for _, key in self.seen], ["a", "b"])
        self.clock.pump([1, 0])
        self.assertEqual([key for _, key in self.seen], ["a", "b", "c"])

    def test_stopping_waits_for_work_under_way(self) -> None:
        """Idle loops end at once; a busy one may finish."""
        under_way: Deferred[None] = Deferred()
        workers = self.work(lambda key: under_way)
        self.queue.add("a")
        self.clock.advance(0)
        stopped = workers.stopService()
        self.assertNoResult(stopped)
        under_way.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopping_cancels_what_takes_too_long(self) -> None:
        """After the grace period work under way is cancelled, and its key is not lost."""
        workers = self.work(lambda key: Deferred())
        self.queue.add("a")
        self.clock.advance(0)
        stopped = workers.stopService()
        self.clock.advance(3.1)
        self.successResultOf(stopped)
        self.assertEqual(len(self.queue), 1)

    def test_they_can_be_started_again(self) -> None:
        """After a stop and a start keys are processed again."""
        workers = self.work(lambda key: succeed(None))
        self.successResultOf(workers.stopService())
        workers.startService()
        self.queue.add("a")
        self.clock.advance(0)
        self.assertEqual([key for _, key in self.seen], ["a"])
