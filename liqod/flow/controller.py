"""The base of every controller: sources enqueue keys, workers reconcile them one step at a time.

The terms are those of controller-runtime. A controller defines its sources and the reconcile step of one key::

    class ShadowPods(Controller[Key]):
        name = "shadowpods"
        workers = 4

        def sources(self) -> Iterable[Source[Key]]:
            yield watch(self._shadows)                       # the object's own key
            yield watch(self._pods, self._owner_of)          # the key of its ShadowPod
            yield observe(self._offer, lambda _: self._refused)

        async def reconcile(self, key: Key) -> After | None:
            ...
            return After(30.0)

        def fair_by(self, key: Key) -> Hashable:
            return key.namespace

Workers start when every source has synced, so that ``reconcile`` never decides from an incomplete cache. A key that is
enqueued while it is being reconciled is reconciled again afterwards; one key is never reconciled concurrently. An
exception causes a retry after a back-off, at least the error's ``retry_after``. It is logged once per key and cause:
as one sentence if it is expected (``flow.errors``; every ``KubeError`` is), else with its traceback. Returning resets
the key's back-off.

``stopService`` unsubscribes, drops waiting keys, waits for steps in progress (at most ``GRACE`` seconds, then they are
cancelled), awaits ``cleanup``, and then stops child services, so that a step never uses a stopped child. The service
may be started again once the Deferred has fired; earlier, starting raises RuntimeError.

Source of the semantics: sigs.k8s.io/controller-runtime ``pkg/controller``, k8s.io/client-go ``util/workqueue``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.errors import is_expected
from liqod.flow.workqueue import Workers, WorkQueue

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
K_co = TypeVar("K_co", bound=Hashable, covariant=True)
T_co = TypeVar("T_co", covariant=True)


Outcome = Literal["settled", "again", "failed"]
"""Outcome of a step: nothing left to do, reconcile again after a delay, or an exception."""


@attrs.frozen
class After:
    """Reconcile the key again after this many seconds, unless something enqueues it earlier."""

    seconds: float


def soonest(*waits: After | None) -> After | None:
    """Return the shortest of several waits for one key; None where none of them is one. Pure."""
    return min((one for one in waits if one is not None), key=lambda one: one.seconds, default=None)


class ReconcileMetrics(Protocol):
    """Counts and times the steps of all controllers; ``liqod.metrics`` implements it."""

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        """Note one step: the controller's ``name``, how it ended, and how long it took."""
        ...


class NoMetrics:
    """Counts nothing."""

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        """Ignore one step."""


NO_METRICS = NoMetrics()


class Source(Protocol[K_co]):
    """Enqueues keys while a controller runs."""

    def start(self, enqueue: Callable[[K_co], None]) -> Callable[[], None]:
        """Call ``enqueue`` for existing and changed keys from now on; return the function that stops it."""
        ...

    def when_synced(self) -> Deferred[None]:
        """Return a cancellable Deferred that fires when all keys existing at the start have been enqueued."""
        ...


class Watchable(Protocol[T_co]):
    """A cache of objects that notifies of changes: ``kube.cache.informer.Informer``."""

    def subscribe(self, subscriber: Callable[[Any, T_co | None, T_co | None], None]) -> Callable[[], None]:
        """Call ``subscriber(key, old, new)`` for every cached object and for every change."""
        ...

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when subscribers were notified of the first list."""
        ...


class Observable(Protocol[T_co]):
    """A value that notifies of changes: ``flow.observe.Latest``."""

    def subscribe(self, subscriber: Callable[[T_co], None]) -> Callable[[], None]:
        """Call ``subscriber`` with each new value."""
        ...


@attrs.frozen
class _Watch(Generic[K, T]):
    informer: Watchable[T]
    keys_of: Callable[[Any, T | None, T | None], Iterable[K]]

    def start(self, enqueue: Callable[[K], None]) -> Callable[[], None]:
        def changed(key: Any, old: T | None, new: T | None) -> None:
            for one in self.keys_of(key, old, new):
                enqueue(one)

        return self.informer.subscribe(changed)

    def when_synced(self) -> Deferred[None]:
        return self.informer.when_synced()


@attrs.frozen
class _Observe(Generic[K, T]):
    value: Observable[T]
    keys_of: Callable[[T], Iterable[K]]

    def start(self, enqueue: Callable[[K], None]) -> Callable[[], None]:
        def changed(value: T) -> None:
            # A controller may change the collection that ``keys_of`` reads while keys are enqueued.
            for key in list(self.keys_of(value)):
                enqueue(key)

        return self.value.subscribe(changed)

    def when_synced(self) -> Deferred[None]:
        return succeed(None)


@attrs.frozen
class _Always(Generic[K]):
    keys: tuple[K, ...]

    def start(self, enqueue: Callable[[K], None]) -> Callable[[], None]:
        for key in self.keys:
            enqueue(key)
        return _nothing

    def when_synced(self) -> Deferred[None]:
        return succeed(None)


def _nothing() -> None:
    """Do nothing, for a source that has nothing to stop."""


def _own_key(key: Any, old: object, new: object) -> Iterable[Any]:
    return (key,)


def watch(informer: Watchable[T], keys_of: Callable[[Any, T | None, T | None], Iterable[K]] = _own_key) -> Source[K]:
    """Return a source of an informer's objects: their own keys, or those that ``keys_of(key, old, new)`` names."""
    return _Watch(informer, keys_of)


def observe(value: Observable[T], keys_of: Callable[[T], Iterable[K]]) -> Source[K]:
    """Return a source that enqueues ``keys_of(new value)`` whenever an observable changes."""
    return _Observe(value, keys_of)


def always(*keys: K) -> Source[K]:
    """Return a source of fixed keys, enqueued at the start: for a controller that reconciles one thing."""
    return _Always(keys)


class Controller(MultiService, Generic[K]):
    """Reconciles keys; see the module's docstring.

    ``name`` is the class's name in logs and metrics (few different values: no names of objects in it) and its name as a
    Twisted service, which must be unique under one parent. ``subject`` is what log lines add ("of the node milan").
    """

    name: str
    workers: int = 1

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        *,
        subject: str = "",
        backoff: Backoff | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.subject = subject
        self._backoff = backoff or Backoff()
        self._metrics = metrics
        self._queue = self._new_queue()
        self._loops: Workers[K] | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._starting: Deferred[None] | None = None
        self._stopping = False

    # To be overridden

    def sources(self) -> Iterable[Source[K]]:
        """Return the sources of keys; called at each start."""
        return ()

    @abstractmethod
    async def reconcile(self, key: K) -> After | None:
        """Take the next step for one key; return when to reconcile again, None for "when something changes"."""

    def fair_by(self, key: K) -> Hashable:
        """Return the tenant of a key: tenants are served round-robin, independent of their number of keys."""
        return ""

    async def prepare(self) -> None:
        """Await further prerequisites besides the sources; workers start afterwards. A failure is retried."""

    async def cleanup(self) -> None:
        """Release resources that steps acquired; called after the last step, before child services stop."""

    # Public

    def enqueue(self, key: K, after: float = 0.0) -> None:
        """Reconcile a key now or ``after`` seconds; of several pending times the earliest counts."""
        self._queue.add_after(key, after)

    def reset_backoff(self, key: K) -> None:
        """Reset a key's failures and back-off, when its object was deleted or the cause is gone."""
        if self._loops is not None:
            self._loops.reset_backoff(key)
        self._queue.reset_backoff(key)

    def retry_failed(self) -> None:
        """Reconcile keys in back-off now, when the cause of their failures is gone."""
        self._queue.hasten()

    @property
    def failing(self) -> Mapping[K, str]:
        """The keys whose last step failed, each with the error."""
        return self._loops.troubles if self._loops is not None else {}

    @property
    def started(self) -> bool:
        """Whether the sources have synced and the workers run."""
        return self._loops is not None

    @property
    def waiting(self) -> int:
        """The number of keys that are ready to be reconciled."""
        return len(self._queue)

    # Life

    def startService(self) -> None:
        if self._stopping:
            raise RuntimeError(f"the controller {self.name} is still stopping: start it when stopService has fired")
        if self.running:
            return
        super().startService()
        if self._queue.closed:
            self._queue = self._new_queue()
        starting = self._starting = Deferred.fromCoroutine(self._start())
        starting.addErrback(self._start_failed)

    def stopService(self) -> Deferred[None]:
        if not self.running:
            return succeed(None)
        # Code that reads ``running`` must see False at once, not when the stop is complete.
        self.running = 0
        self._stopping = True
        return Deferred.fromCoroutine(self._stop())

    def _new_queue(self) -> WorkQueue[K]:
        return WorkQueue(self.clock, self.name, self._backoff, fair_by=self.fair_by)

    async def _start(self) -> None:
        sources = list(self.sources())
        for source in sources:
            self._unsubscribe.append(source.start(self.enqueue))
        for source in sources:
            await source.when_synced()
        await self._prepare()
        loops = self._loops = Workers(self._queue, self.workers, self._step, self._log_name)
        loops.startService()

    async def _prepare(self) -> None:
        attempt, logged = 0, ""
        while True:
            try:
                return await self.prepare()
            except CancelledError:
                raise
            except Exception as error:
                if (sentence := f"{type(error).__name__}: {error}") != logged:
                    logged = sentence
                    self._log_failure(error, "preparing")
            await deferLater(self.clock, self._backoff.delay(attempt))
            attempt += 1

    def _start_failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("{controller} does not run", failure, controller=self._log_name)

    async def _stop(self) -> None:
        try:
            unsubscribe, self._unsubscribe = self._unsubscribe, []
            for end in unsubscribe:
                end()
            if self._starting is not None:
                self._starting.cancel()
                await self._starting
            # Waiting keys are dropped before the workers stop, so that each worker only completes its current step.
            self._queue.close()
            loops, self._loops = self._loops, None
            if loops is not None:
                await loops.stopService()
            try:
                await self.cleanup()
            except Exception as error:
                self._log_failure(error, "cleaning up")
            await maybeDeferred(super().stopService)
        finally:
            self._stopping = False

    async def _step(self, key: K) -> float | None:
        begun = self.clock.seconds()
        outcome: Outcome = "failed"
        try:
            after = await self.reconcile(key)
            outcome = "again" if after is not None else "settled"
        finally:
            self._metrics.reconciled(self.name, outcome, self.clock.seconds() - begun)
        return after.seconds if after is not None else None

    @property
    def _log_name(self) -> str:
        return f"{self.name} {self.subject}" if self.subject else self.name

    def _log_failure(self, error: Exception, what: str) -> None:
        if is_expected(error):
            self._log.warn(
                "{controller}: {task} failed: {error}", controller=self._log_name, task=what, error=str(error)
            )
        else:
            self._log.failure("{controller}: {task} failed", controller=self._log_name, task=what)
