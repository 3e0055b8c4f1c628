"""Waits for a predicate on a cache, evaluated at each change instead of polled."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import V


def until(informer: Informer[V], holds: Callable[[], bool]) -> Deferred[None]:
    """Return a Deferred that fires when ``holds`` returns True; it is evaluated after sync and at every change.

    ``holds`` may read other caches as well, but their changes alone do not trigger an evaluation.
    """

    async def waiting() -> None:
        await informer.when_synced()
        done: Deferred[None] = Deferred()

        def evaluate(*_: object) -> None:
            if not done.called and holds():
                done.callback(None)

        unsubscribe = informer.subscribe(evaluate)
        evaluate()
        try:
            await done
        finally:
            unsubscribe()

    return Deferred.fromCoroutine(waiting())
