"""Waits for a cache to show what is wanted, at the change that brings it and without polling."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import V


def until(informer: Informer[V], holds: Callable[[], bool]) -> Deferred[None]:
    """Return a Deferred that fires when ``holds`` does: asked once the cache is complete and at every change of it.

    ``holds`` may look at other caches as well, but their changes alone do not have it asked again.
    """

    async def waiting() -> None:
        await informer.when_synced()
        done: Deferred[None] = Deferred()

        def look(*_: object) -> None:
            if not done.called and holds():
                done.callback(None)

        unsubscribe = informer.subscribe(look)
        look()
        try:
            await done
        finally:
            unsubscribe()

    return Deferred.fromCoroutine(waiting())
