"""Runs a command's coroutine on the asyncio reactor and cancels it on Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from twisted.internet import asyncioreactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorAlreadyInstalledError
from twisted.python.failure import Failure

from liqod.cli.console.errors import INTERRUPTED

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorCore

    from liqod.flow.clocks import Reactor

    class _Runnable(Reactor, IReactorCore):
        """The reactor as its runner sees it, which alone starts and stops it."""


T = TypeVar("T")

CLEANUP: Final = 10.0
"""Seconds that the clean-up after Ctrl-C may take."""


def run(work: Callable[[Reactor], Coroutine[Any, Any, T]]) -> T:
    """Return what ``work(reactor)`` returns, or raise what it raises; works once per process.

    The first Ctrl-C cancels the coroutine, waits at most ``CLEANUP`` seconds for it, and raises ``click.Abort``. The
    second one ends the process.
    """
    # A process has one reactor; one that is installed already is used. Only mDNS (zeroconf) needs asyncio's.
    with contextlib.suppress(ReactorAlreadyInstalledError):
        asyncioreactor.install()
    from liqod.flow.clocks import installed_reactor, use_steady_time

    reactor = cast("_Runnable", installed_reactor())
    use_steady_time(reactor)
    outcome: list[T | Failure] = []
    running: list[Deferred[Any]] = []
    stopping: list[bool] = []

    def start() -> None:
        # Twisted's own handler is installed by now; a second signal would only ask a stopping reactor to stop.
        signal.signal(signal.SIGINT, interrupted)
        deferred = Deferred.fromCoroutine(work(reactor))
        running.append(deferred)
        deferred.addBoth(outcome.append)
        deferred.addBoth(lambda _: reactor.stop() if not stopping else None)

    def interrupted(*_: object) -> None:
        if stopping:
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        reactor.callFromThread(reactor.stop)

    def before_shutdown() -> Deferred[Any] | None:
        stopping.append(True)
        if outcome or not running:
            return None
        finished: Deferred[Any] = Deferred()
        running[0].addBoth(lambda _: None if finished.called else finished.callback(None))
        reactor.callLater(CLEANUP, lambda: None if finished.called else finished.callback(None))
        running[0].cancel()
        return finished

    reactor.callWhenRunning(start)
    reactor.addSystemEventTrigger("before", "shutdown", before_shutdown)
    reactor.run()
    if not outcome:
        raise click.Abort
    result = outcome[0]
    if isinstance(result, Failure):
        if result.check(CancelledError):
            raise click.Abort
        result.raiseException()
    return result
