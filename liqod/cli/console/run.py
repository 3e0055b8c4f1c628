"""Runs a command's coroutine on the asyncio reactor and cancels it on Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from twisted.internet import asyncioreactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorAlreadyInstalledError
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from liqod.cli.console.errors import INTERRUPTED

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorCore

    from liqod.flow.clocks import Reactor

    class _Runnable(Reactor, IReactorCore):
        """The reactor as its runner sees it, which alone starts and stops it."""

        threadpool: ThreadPool | None


T = TypeVar("T")

CLEANUP: Final = 10.0
"""Seconds that the clean-up after Ctrl-C may take."""


class _DaemonThread(Thread):
    """A thread that the end of the process does not wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, daemon=True, **kwargs)


class _Threads(ThreadPool):
    """Threads that may block: the system's resolver takes half a minute where no DNS server answers (resolver(5))."""

    threadFactory = _DaemonThread


def run(work: Callable[[Reactor], Coroutine[Any, Any, T]]) -> T:
    """Return what ``work(reactor)`` returns, or raise what it raises; works once per process.

    The first Ctrl-C cancels the coroutine, waits at most ``CLEANUP`` seconds for it, and raises ``click.Abort``, also
    where the coroutine takes its cancellation for another failure. The second one ends the process.
    """
    # A process has one reactor; one that is installed already is used. Only mDNS (zeroconf) needs asyncio's.
    with contextlib.suppress(ReactorAlreadyInstalledError):
        asyncioreactor.install()
    from liqod.flow.clocks import installed_reactor, use_steady_time

    reactor = cast("_Runnable", installed_reactor())
    use_steady_time(reactor)
    # The reactor's own pool would be joined when it stops.
    reactor.threadpool = _Threads(0)
    reactor.threadpool.start()
    outcome: list[T | Failure] = []
    running: list[Deferred[Any]] = []
    stopping: list[bool] = []
    interrupts: list[bool] = []
    cancelled: list[bool] = []

    def start() -> None:
        # Twisted's own handler is installed by now; a second signal would only ask a stopping reactor to stop.
        signal.signal(signal.SIGINT, interrupted)
        deferred = Deferred.fromCoroutine(work(reactor))
        running.append(deferred)
        deferred.addBoth(outcome.append)
        deferred.addBoth(lambda _: reactor.stop() if not stopping else None)

    def interrupted(*_: object) -> None:
        # What was printed is flushed already; where nobody reads it another flush would block.
        if stopping or interrupts:
            os._exit(INTERRUPTED)
        interrupts.append(True)
        reactor.callFromThread(reactor.stop)

    def before_shutdown() -> Deferred[Any] | None:
        stopping.append(True)
        if outcome or not running:
            return None
        finished: Deferred[Any] = Deferred()
        running[0].addBoth(lambda _: None if finished.called else finished.callback(None))
        reactor.callLater(CLEANUP, lambda: None if finished.called else finished.callback(None))
        cancelled.append(True)
        running[0].cancel()
        return finished

    reactor.callWhenRunning(start)
    reactor.addSystemEventTrigger("before", "shutdown", before_shutdown)
    reactor.run()
    if not outcome:
        raise click.Abort
    result = outcome[0]
    if isinstance(result, Failure):
        if cancelled:
            raise click.Abort
        result.raiseException()
    return result
