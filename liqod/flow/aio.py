"""Runs asyncio coroutines as Deferreds: the only bridge to asyncio, for libraries that require it.

Twisted and asyncio coroutines do not mix: awaiting a Future in the former or a Deferred in the latter fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


def reactor_is_asyncio(reactor: object) -> bool:
    """Return whether a reactor runs on an asyncio loop (zeroconf needs one; ``twistd liqod`` installs it)."""
    return isinstance(reactor, AsyncioSelectorReactor)


def from_coroutine(coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Run an asyncio coroutine on the reactor's loop; cancelling the Deferred cancels it.

    Before the reactor runs (in ``startService``) the start is delayed until the loop runs, so that
    ``asyncio.get_running_loop()`` works in the coroutine. Check ``reactor_is_asyncio`` first: on another reactor the
    coroutine never runs.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = asyncio.get_event_loop()
    return Deferred.fromFuture(loop.create_task(coroutine)).addErrback(_translated)


def _translated(failure: Failure) -> Any:
    # asyncio.CancelledError is a BaseException: ``except Exception`` in the callers does not catch it.
    if isinstance(failure.value, asyncio.CancelledError):
        raise CancelledError from failure.value
    return failure
