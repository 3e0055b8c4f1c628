"""The one bridge to asyncio, for libraries that speak nothing else.

Deferred coroutines and asyncio coroutines do not mix: awaiting a Future in the one or a Deferred in the other fails.
What needs asyncio is written as an asyncio coroutine and handed over here.
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
    """Return whether a reactor runs on an asyncio loop (``--reactor=asyncio``)."""
    return isinstance(reactor, AsyncioSelectorReactor)


def from_coroutine(coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Run an asyncio coroutine on the reactor's loop; cancelling the Deferred cancels it.

    May be called before the reactor runs (from ``startService``): the coroutine then begins with the loop, so that what
    it constructs finds ``asyncio.get_running_loop()``. Check ``reactor_is_asyncio`` first: on another reactor it would
    never run.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = asyncio.get_event_loop()
    return Deferred.fromFuture(loop.create_task(coroutine)).addErrback(_translated)


def _translated(failure: Failure) -> Any:
    # asyncio's CancelledError is no Exception: it would pass through everything that contains failures.
    if isinstance(failure.value, asyncio.CancelledError):
        raise CancelledError from failure.value
    return failure
