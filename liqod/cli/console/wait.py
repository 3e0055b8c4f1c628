"""Waits for a condition of one object by watching it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, maybeDeferred

from liqod.cli.console.session import Session
from liqod.kube.cache import wait
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import Resource
from liqod.model.ids import Key
from liqod.model.objects.meta import Object

T = TypeVar("T", bound=Object)


def until(
    session: Session, resource: Resource, view: type[T], key: Key, wanted: Callable[[T | None], bool]
) -> Deferred[T | None]:
    """Return a Deferred that fires with the object when ``wanted`` is true of it, None being one that does not exist.

    What is waited for comes of what the command wrote: a dry run ends here.
    """
    session.to_be_waited_for()
    informer: Informer[T] = Informer(
        session.client, resource, view, session.reactor, namespace=key.namespace, fields=f"metadata.name={key.name}"
    )

    async def watch() -> T | None:
        informer.startService()
        try:
            await wait.until(informer, lambda: wanted(informer.get(key)))
            return informer.get(key)
        finally:
            await maybeDeferred(informer.stopService)

    return Deferred.fromCoroutine(watch())
