"""Waits for a predicate on a cache, evaluated at each change instead of polled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import V


def until(informer: Informer[V], holds: Callable[[], bool], *others: Informer[Any]) -> Deferred[None]:
    """Return a Deferred that fires when ``holds`` returns True; it is evaluated after sync and at every change.

    ``holds`` may read caches beside these as well, but their changes alone do not trigger an evaluation.
    """

    async def waiting() -> None:
        for each in (informer, *others):
            await each.when_synced()
        done: Deferred[None] = Deferred()

        def evaluate(*_: object) -> None:
            if not done.called and holds():
                done.callback(None)

        unsubscribes = [each.subscribe(evaluate) for each in (informer, *others)]
        evaluate()
        try:
            await done
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    return Deferred.fromCoroutine(waiting())
