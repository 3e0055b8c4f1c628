"""Coroutines side by side: detached ones with an owner, which logs their failures, and several that are awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    gatherResults,
    maybeDeferred,
    succeed,
)
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.errors import EXPECTED

T = TypeVar("T")


async def together(waiting: Iterable[Deferred[T]]) -> list[T]:
    """Return the results of all, in their order; raises what the first that fails raises, and when it is cancelled.

    Twisted's gatherResults wraps a failure, also a cancellation, which then looks like a defect.
    """
    try:
        return await gatherResults(waiting, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
        raise


async def side_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time and return their results, in their order.

    Raises what the first that fails raises, and when it is cancelled; what is still under way then is cancelled.
    """
    waiting = [Deferred.fromCoroutine(one) for one in work]
    try:
        return await together(waiting)
    finally:
        for one in waiting:
            one.cancel()


def cancellable(waiting: Deferred[T]) -> Deferred[T]:
    """Return a Deferred for the same result that fails with CancelledError when it is cancelled.

    A Twisted endpoint that is cancelled fails as if the name were unknown, or with ConnectingCancelledError.
    """
    is_cancelled = False

    def cancel(_: Deferred[T]) -> None:
        nonlocal is_cancelled
        is_cancelled = True
        waiting.cancel()

    def pass_on(result: T | Failure) -> None:
        if not is_cancelled:
            outcome.callback(result)

    outcome: Deferred[T] = Deferred(cancel)
    waiting.addBoth(pass_on)
    return outcome


async def stopped(service: Service) -> None:
    """Stop a service and take it from its parent."""
    await maybeDeferred(service.disownServiceParent)


class Loop(Service, ABC):
    """Runs one coroutine as long as it is started, and another at its end; subclasses say which.

    ``stopService`` cancels ``work``, and fires when ``end`` has ended as well.
    """

    _work: Deferred[None] | None = None

    @abstractmethod
    async def work(self) -> None:
        """Do what the service is for, until cancelled."""

    async def end(self) -> None:
        """Leave things in order; called once ``work`` has ended."""

    @abstractmethod
    def failed(self, failure: Failure) -> None:
        """Take notice of what ``work`` raised, which is a defect."""

    def startService(self) -> None:
        super().startService()
        self._work = Deferred.fromCoroutine(self.work())
        self._work.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        work, self._work = self._work, None
        if work is None:
            return succeed(None)
        work.cancel()
        return work.addCallback(lambda _: Deferred.fromCoroutine(self.end()))

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.failed(failure)


class Tasks(Service):
    """Runs coroutines that no caller awaits; ``stopService`` cancels them and fires when all have ended."""

    _log = Logger()

    def __init__(self) -> None:
        self._running: set[Deferred[Any]] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], what: str) -> None:
        """Run a coroutine; ``what`` names it in the log ("renewing the lease of c2").

        While the service is stopping, the coroutine is closed without being run.
        """
        if self._stopping:
            coroutine.close()
            return
        deferred: Deferred[Any] = Deferred.fromCoroutine(coroutine)
        self._running.add(deferred)
        deferred.addErrback(self._failed, what)
        deferred.addBoth(self._ended, deferred)

    def _failed(self, failure: Failure, what: str) -> None:
        while isinstance(failure.value, FirstError):  # raised by gatherResults
            failure = failure.value.subFailure
        if failure.check(CancelledError) and self._stopping:
            return
        if failure.check(*EXPECTED):
            self._log.warn("{task} failed: {error}", task=what, error=failure.getErrorMessage())
        else:
            self._log.failure("{task} failed", failure, task=what)

    def _ended(self, _: object, deferred: Deferred[Any]) -> None:
        self._running.discard(deferred)

    def startService(self) -> None:
        super().startService()
        self._stopping = False

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._stopping = True
        # cancel() may end a coroutine at once, which removes it from the set.
        running = list(self._running)
        for deferred in running:
            deferred.cancel()
        return DeferredList(running).addCallback(lambda _: None)
