"""Tests of liqod.flow.controller."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import permutations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.backoff import Backoff
from liqod.flow.controller import After, Controller, Outcome, Source, always, observe, soonest, watch
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate, Latest
from tests.kube.cases import warnings_of


class Objects:
    """An informer in miniature: objects by key, a gate for the first list, subscribers."""

    def __init__(self, *keys: str) -> None:
        self.objects = dict.fromkeys(keys, "")
        self.gate = Gate()
        self.subscribers: list[Callable[[str, str | None, str | None], None]] = []

    def subscribe(self, subscriber: Callable[[str, str | None, str | None], None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        for key, value in self.objects.items():
            subscriber(key, None, value)
        return lambda: self.subscribers.remove(subscriber)

    def when_synced(self) -> Deferred[None]:
        return self.gate.wait()

    def put(self, key: str, value: str) -> None:
        old = self.objects.get(key)
        self.objects[key] = value
        for subscriber in list(self.subscribers):
            subscriber(key, old, value)


class Steps:
    """Metrics that are kept."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Outcome, float]] = []

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        self.seen.append((controller, outcome, seconds))


class Recording(Controller[str]):
    """Notes what it reconciles; a test may put an answer or an open Deferred in the way of a key."""

    name = "recording"

    def __init__(self, clock: Clock, sources: Iterable[Source[str]] = (), metrics: Steps | None = None) -> None:
        super().__init__(clock, backoff=Backoff(1.0, jitter=0.0), metrics=metrics or Steps(), subject="of the test")
        self.given = tuple(sources)
        self.done: list[str] = []
        self.answers: dict[str, Callable[[], After | None]] = {}
        self.blocked: dict[str, Deferred[None]] = {}
        self.prepared: Callable[[], None] = lambda: None
        self.cleaned = 0

    def sources(self) -> Iterable[Source[str]]:
        return self.given

    def fair_by(self, key: str) -> Hashable:
        return key[0]

    async def prepare(self) -> None:
        self.prepared()

    async def cleanup(self) -> None:
        self.cleaned += 1

    async def reconcile(self, key: str) -> After | None:
        self.done.append(key)
        if key in self.blocked:
            await self.blocked[key]
        return self.answers.get(key, lambda: None)()


class Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.0, 0.0, *[0.1] * round(seconds * 10), 0.0])

    def started(self, controller: Recording) -> Recording:
        controller.startService()
        self.addCleanup(lambda: controller.stopService() if controller.running else None)
        self.run_for(0.0)
        return controller


class SourceTests(Case):
    """Where keys come from."""

    def test_no_step_before_all_sources_have_synced(self) -> None:
        """Nothing is reconciled from half a cache: all informers must have had their first list."""
        one, other = Objects("a"), Objects("b")
        controller = self.started(Recording(self.clock, [watch(one), watch(other)]))
        one.gate.open()
        self.run_for(5.0)
        self.assertEqual((controller.done, controller.started), ([], False))
        other.gate.open()
        self.run_for(0.0)
        self.assertEqual((controller.done, controller.started), (["a", "b"], True))

    def test_a_change_enqueues_the_keys_it_is_mapped_to(self) -> None:
        """A change of one kind has the keys reconciled that the mapping names."""
        pods = Objects()
        pods.gate.open()
        controller = self.started(Recording(self.clock, [watch(pods, lambda key, old, new: [f"owner-of-{key}"])]))
        pods.put("p", "1")
        self.run_for(0.0)
        self.assertEqual(controller.done, ["owner-of-p"])

    def test_observed_values_and_fixed_keys(self) -> None:
        """A changed value and the start itself enqueue keys."""
        state = Latest(0)
        given = [observe(state, lambda value: [f"state {value}"]), always("once")]
        controller = self.started(Recording(self.clock, given))
        state.set(1)
        self.run_for(0.0)
        self.assertEqual(controller.done, ["once", "state 1"])

    def test_tenants_take_turns(self) -> None:
        """A single key of one tenant comes second, however many another tenant has."""
        objects = Objects("a1", "a2", "a3", "b1")
        objects.gate.open()
        controller = self.started(Recording(self.clock, [watch(objects)]))
        self.run_for(0.0)
        self.assertEqual(controller.done, ["a1", "b1", "a2", "a3"])


class SoonestTests(SynchronousTestCase):
    def test_the_shortest_counts(self) -> None:
        """In whatever order they come; what waits for nothing does not count."""
        waits = [After(60.0), None, After(0.2), After(5.0)]
        for order in permutations(waits):
            self.assertEqual(soonest(*order), After(0.2))
        self.assertIsNone(soonest(None, None))
        self.assertIsNone(soonest())


class StepTests(Case):
    """What the outcome of a step means."""

    def test_after(self) -> None:
        """``After`` has the key reconciled again at its time, and what enqueues it earlier counts."""
        controller = self.started(Recording(self.clock, [always("a")]))
        controller.answers["a"] = lambda: After(30.0)
        controller.enqueue("a")
        self.run_for(1.0)
        self.assertEqual(controller.done, ["a", "a"])
        self.run_for(28.0)
        self.assertEqual(len(controller.done), 2)
        self.run_for(2.0)
        self.assertEqual(len(controller.done), 3)

    def test_failures_back_off_and_are_logged_once(self) -> None:
        """A key that fails is tried again later and later, with one line in the log, and recovers."""
        warnings = warnings_of(self)
        controller = self.started(Recording(self.clock, [always("a")]))

        def fail() -> None:
            raise ExpectedError("the server is down")

        controller.answers["a"] = fail
        controller.enqueue("a")
        self.run_for(7.2)  # 0, 1, 3, 7
        self.assertEqual(len(controller.done), 1 + 4)
        self.assertEqual(dict(controller.failing), {"a": "ExpectedError: the server is down"})
        self.assertEqual(len(warnings), 1)
        del controller.answers["a"]
        controller.retry_failed()
        self.run_for(0.0)
        self.assertEqual((len(controller.done), dict(controller.failing)), (6, {}))

    def test_a_defect_is_no_crash(self) -> None:
        """An unexpected exception is logged with its traceback, and the controller goes on."""
        controller = self.started(Recording(self.clock, [always("b")]))
        controller.answers["a"] = lambda: [][0]
        controller.enqueue("a")
        controller.enqueue("c")
        self.run_for(0.0)
        self.assertEqual(controller.done, ["b", "a", "c"])
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)

    def test_the_servers_pause_is_kept(self) -> None:
        """An error that names a time is not retried before it."""

        class Busy(ExpectedError):
            retry_after = 50.0

        def fail() -> None:
            raise Busy("too many requests")

        controller = self.started(Recording(self.clock))
        controller.answers["a"] = fail
        controller.enqueue("a")
        self.run_for(45.0)
        self.assertEqual(len(controller.done), 1)
        self.run_for(10.0)
        self.assertEqual(len(controller.done), 2)

    def test_steps_are_counted_and_timed(self) -> None:
        """Each step is noted under the controller's name with its outcome and duration."""
        steps = Steps()
        controller = self.started(Recording(self.clock, metrics=steps))
        controller.blocked["a"] = Deferred()
        controller.answers["b"] = lambda: After(60.0)
        controller.answers["c"] = lambda: [][0]
        controller.enqueue("a")
        self.run_for(2.0)
        controller.blocked["a"].callback(None)
        for key in "bc":
            controller.enqueue(key)
            self.run_for(0.0)
        self.flushLoggedErrors(IndexError)
        self.assertEqual([name for name, _, _ in steps.seen], ["recording"] * 3)
        self.assertEqual([outcome for _, outcome, _ in steps.seen], ["settled", "again", "failed"])
        self.assertAlmostEqual(steps.seen[0][2], 2.0)


class LifeTests(Case):
    """Starting and stopping, again and again."""

    def test_stop_lets_the_step_end_and_drops_the_rest(self) -> None:
        """Stopping waits for the step in progress, and no other begins; then ``cleanup`` runs, and no timer is left."""
        controller = self.started(Recording(self.clock))
        controller.blocked["a"] = Deferred()
        for key in ("a", "b"):
            controller.enqueue(key)
        controller.enqueue("c", 10.0)
        self.run_for(0.0)
        stopped = controller.stopService()
        self.assertNoResult(stopped)
        self.assertEqual(controller.cleaned, 0)
        controller.blocked["a"].callback(None)
        self.successResultOf(stopped)
        self.assertEqual((controller.done, controller.cleaned), (["a"], 1))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_step_that_does_not_end_is_cancelled(self) -> None:
        """A step that hangs holds the stop up for the grace period only."""
        controller = self.started(Recording(self.clock))
        controller.blocked["a"] = Deferred()
        controller.enqueue("a")
        self.run_for(0.0)
        stopped = controller.stopService()
        self.run_for(3.1)
        self.successResultOf(stopped)

    def test_stop_before_the_sources_have_synced(self) -> None:
        """A controller whose sources never sync can be stopped, and is subscribed to nothing afterwards."""
        objects = Objects("a")
        controller = self.started(Recording(self.clock, [watch(objects)]))
        self.successResultOf(controller.stopService())
        self.assertEqual(objects.subscribers, [])
        objects.gate.open()
        self.run_for(1.0)
        self.assertEqual(controller.done, [])

    def test_start_after_stop(self) -> None:
        """Started again it reconciles all objects again, and keys that were added meanwhile are not doubled."""
        objects = Objects("a", "b")
        objects.gate.open()
        controller = self.started(Recording(self.clock, [watch(objects)]))
        self.run_for(0.0)
        self.successResultOf(controller.stopService())
        objects.put("c", "1")
        controller.enqueue("a")
        self.run_for(1.0)
        self.assertEqual(controller.done, ["a", "b"])
        self.started(controller)
        self.assertEqual(controller.done, ["a", "b", "a", "b", "c"])
        self.assertEqual(len(objects.subscribers), 1)

    def test_start_while_stopping_is_refused(self) -> None:
        """Starting before the stop has ended is an error that says what to do."""
        controller = self.started(Recording(self.clock))
        controller.blocked["a"] = Deferred()
        controller.enqueue("a")
        self.run_for(0.0)
        stopped = controller.stopService()
        refusal = self.assertRaises(RuntimeError, controller.startService)
        self.assertIn("start it when stopService has fired", str(refusal))
        controller.blocked["a"].callback(None)
        self.successResultOf(stopped)
        self.started(controller)

    def test_preparing_is_tried_again(self) -> None:
        """What reconciling needs is awaited before the first step, with a back-off where it fails."""
        controller = Recording(self.clock, [always("a")])
        failures = [ExpectedError("not yet"), ExpectedError("not yet")]

        def prepare() -> None:
            if failures:
                raise failures.pop()

        controller.prepared = prepare
        warnings = warnings_of(self)
        self.started(controller)
        self.run_for(2.5)
        self.assertEqual((controller.done, len(warnings)), ([], 1))
        self.run_for(1.0)
        self.assertEqual(controller.done, ["a"])
