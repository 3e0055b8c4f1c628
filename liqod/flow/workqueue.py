"""Keyed queue for level-triggered work, with client-go's semantics on one reactor.

The queue holds keys, not events: the newest state wins and nothing is replayed. A key that is added while it is being
processed is delivered again afterwards, so one key is never processed concurrently and no addition is lost. Memory is
bounded by the number of distinct keys. Source: k8s.io/client-go ``util/workqueue``.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.errors import is_contention, is_expected, retry_after
from liqod.flow.fair_queue import FairQueue
from liqod.flow.timer import Timer

K = TypeVar("K", bound=Hashable)

TURN: Final = 0.02
"""Maximum seconds of delivering keys in one turn of the reactor."""


GRACE: Final = 3.0
"""Seconds for which work in progress may continue after ``stopService``; then it is cancelled."""


def _one_tenant(key: Hashable) -> Hashable:
    return ""


class QueueClosed(Exception):
    """The queue was closed and delivers no more keys."""


class WorkQueue(Generic[K]):
    """Keys waiting to be processed.

    Keys are delivered from the reactor, never from inside ``add``, so that callers are not re-entered. ``name`` is for
    logs and metrics. ``fair_by`` returns the tenant of a key: tenants are served round-robin, so that a thousand keys
    of one delay each key of another by one turn.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        backoff: Backoff | None = None,
        *,
        fair_by: Callable[[K], Hashable] = _one_tenant,
    ) -> None:
        self.name = name
        self.clock = clock
        self._backoff = backoff or Backoff()
        self._fair_by = fair_by
        self._ready: FairQueue[K] = FairQueue()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer = Timer(clock)
        self._dispatch = Timer(clock)
        self._waiting: dict[Deferred[K], None] = {}
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that are ready to be processed."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """The number of keys with a pending delay."""
        return len(self._due)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def failures(self, key: K) -> int:
        """Return the number of ``add_rate_limited`` calls for a key since its last ``reset_backoff``."""
        return self._failures.get(key, 0)

    def add(self, key: K) -> None:
        """Add a key; a waiting key is not queued twice."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.add(self._fair_by(key), key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after ``seconds``; of several pending times the earliest counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self.clock.seconds() + seconds
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
            # Superseded entries stay in the heap until they are due; frequent rescheduling of a key must not grow it.
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._arm()

    def add_rate_limited(self, key: K, at_least: float = 0.0) -> None:
        """Add a key after the back-off of its failures so far, at least after ``at_least`` seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, max(at_least, self._backoff.delay(failures)))

    def reset_backoff(self, key: K) -> None:
        """Reset a key's back-off."""
        self._failures.pop(key, None)

    def hasten(self) -> None:
        """Make keys in back-off ready now and reset their back-off; other delayed keys are not affected."""
        failed, self._failures = self._failures, {}
        for key in failed:
            if self._due.pop(key, None) is not None:
                self.add(key)

    def get(self) -> Deferred[K]:
        """Return a Deferred of the next key; raises QueueClosed. The caller must call ``done(key)`` afterwards."""
        if self._closed:
            return fail(QueueClosed(f"the queue {self.name} is closed"))
        deferred: Deferred[K] = Deferred(lambda cancelled: self._waiting.pop(cancelled, None))
        self._waiting[deferred] = None
        self._wake()
        return deferred

    def done(self, key: K) -> None:
        """End the processing of a key; if it was added meanwhile, it is ready again."""
        self._processing.discard(key)
        if key in self._dirty and not self._closed:
            self._ready.add(self._fair_by(key), key)
            self._wake()

    def close(self) -> None:
        """Drop all keys; waiting ``get`` calls fail with QueueClosed."""
        self._closed = True
        self._timer.cancel()
        self._dispatch.cancel()
        self._ready.clear()
        self._dirty.clear()
        self._due.clear()
        self._heap.clear()
        self._failures.clear()
        waiting, self._waiting = self._waiting, {}
        for deferred in waiting:
            deferred.errback(QueueClosed(f"the queue {self.name} is closed"))

    def _wake(self) -> None:
        if self._ready and self._waiting:
            self._dispatch.start_unless_running(0, self._hand_out)

    def _hand_out(self) -> None:
        begun = self.clock.seconds()
        while self._ready and self._waiting:
            if self.clock.seconds() - begun > TURN:
                self._wake()
                return
            key = self._ready.next()
            self._dirty.discard(key)
            self._processing.add(key)
            deferred = next(iter(self._waiting))
            del self._waiting[deferred]
            deferred.callback(key)

    def _arm(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            self._timer.start_if_earlier(max(0.0, self._heap[0][0] - self.clock.seconds()), self._ripe)

    def _ripe(self) -> None:
        now = self.clock.seconds()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._arm()


class Workers(Service, Generic[K]):
    """``count`` loops over one queue.

    If ``process(key)`` returns None, the key is settled; a number is the seconds until it is processed again; an
    exception causes a retry after a back-off. A failure is logged when it is new for its key, not at every attempt: as
    one sentence if it is expected (``flow.errors``), else with its traceback; that somebody else wrote first is logged
    the second time in a row. ``log_name`` is that of the controller.
    """

    _log = Logger()

    def __init__(
        self, queue: WorkQueue[K], count: int, process: Callable[[K], Awaitable[float | None]], log_name: str
    ) -> None:
        self.queue = queue
        self.count = count
        self._process = process
        self._log_name = log_name
        self._loops: set[Deferred[None]] = set()
        self._idle: set[Deferred[K]] = set()
        self._troubles: dict[K, str] = {}
        self._stopping = False

    @property
    def troubles(self) -> dict[K, str]:
        """The keys whose last attempt failed, with the error; once that somebody else wrote first is no failure."""
        return {key: sentence for key, sentence in self._troubles.items() if sentence}

    def reset_backoff(self, key: K) -> None:
        """Reset a key's failures and back-off."""
        self.queue.reset_backoff(key)
        self._troubles.pop(key, None)

    def startService(self) -> None:
        super().startService()
        self._stopping = False
        for _ in range(self.count):
            loop = Deferred.fromCoroutine(self._loop())
            self._loops.add(loop)
            loop.addErrback(
                lambda failure: self._log.failure("{controller}: a worker ended", failure, controller=self._log_name)
            )
            loop.addBoth(self._ended, loop)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._stopping = True
        for waiting in list(self._idle):
            waiting.cancel()
        loops = list(self._loops)
        if not loops:
            return DeferredList([]).addCallback(lambda _: None)
        deadline = Timer(self.queue.clock)
        deadline.start(GRACE, self._cancel)
        return DeferredList(loops).addCallback(lambda _: deadline.cancel())

    def _cancel(self) -> None:
        for loop in list(self._loops):
            loop.cancel()

    def _ended(self, _: object, loop: Deferred[None]) -> None:
        self._loops.discard(loop)

    async def _loop(self) -> None:
        while not self._stopping:
            waiting = self.queue.get()
            self._idle.add(waiting)
            try:
                key = await waiting
            except (CancelledError, QueueClosed):
                return
            finally:
                self._idle.discard(waiting)
            try:
                await self._one(key)
            finally:
                self.queue.done(key)

    async def _one(self, key: K) -> None:
        try:
            again = await self._process(key)
        except CancelledError:
            self.queue.add(key)
            if not self._stopping:
                self._log.warn(
                    "{controller}: {key} was cancelled; it is tried again", controller=self._log_name, key=key
                )
        except Exception as error:
            self._failed(key, error)
            self.queue.add_rate_limited(key, retry_after(error))
        else:
            if self._troubles.pop(key, ""):
                self._log.info("{controller}: {key} works again", controller=self._log_name, key=key)
            self.queue.reset_backoff(key)
            if again is not None:
                self.queue.add_after(key, again)

    def _failed(self, key: K, error: Exception) -> None:
        sentence = f"{type(error).__name__}: {error}"
        known = self._troubles.get(key)
        if known == sentence:
            return
        if known is None and is_contention(error):
            # Nothing is said yet, neither now nor when it works again.
            self._troubles[key] = ""
            return
        self._troubles[key] = sentence
        if is_expected(error):
            self._log.warn("{controller}: {key} failed: {error}", controller=self._log_name, key=key, error=str(error))
        else:
            self._log.failure("{controller}: {key} failed", controller=self._log_name, key=key)
