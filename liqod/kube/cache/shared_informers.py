"""The informers of one API server: one per kind, view and selectors, shared by all users."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import Viewed
from liqod.kube.client import Client
from liqod.kube.resources import Resource

V = TypeVar("V", bound=Viewed)


class Informers(MultiService):
    """Creates informers when they are first requested, and runs them as its children."""

    def __init__(self, client: Client, clock: IReactorTime) -> None:
        super().__init__()
        self.client = client
        self.clock = clock
        self._known: dict[tuple[Any, ...], Informer[Any]] = {}

    def of(
        self,
        resource: Resource,
        view: type[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        sizes: bool = False,
    ) -> Informer[V]:
        """Return the informer for a kind and view; it starts at once, or with this service.

        The first request decides on ``sizes``: raise ValueError where there is an informer without them.
        """
        wanted = (resource, view, namespace, labels, fields)
        informer = self._known.get(wanted)
        if informer is None:
            informer = Informer(
                self.client,
                resource,
                view,
                self.clock,
                namespace=namespace,
                labels=labels,
                fields=fields,
                sizes=sizes,
            )
            self._known[wanted] = informer
            informer.setServiceParent(self)
        elif sizes and not informer.has_sizes:
            raise ValueError(f"{informer!r} was made without sizes")
        return cast("Informer[V]", informer)

    def known(
        self, resource: Resource, view: type[V], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Informer[V] | None:
        """Return the informer for a kind and view where somebody has requested it; None where nobody has."""
        informer = self._known.get((resource, view, namespace, labels, fields))
        return None if informer is None else cast("Informer[V]", informer)

    def watch_same(self, others: Informers) -> None:
        """Watch what others watch, whether they run or not."""
        for (resource, view, namespace, labels, fields), informer in others._known.items():
            self.of(resource, view, namespace=namespace, labels=labels, fields=fields, sizes=informer.has_sizes)

    def __iter__(self) -> Any:
        return iter(list(self._known.values()))

    def drop(self, informer: Informer[Any]) -> Deferred[None]:
        """Stop and remove an informer that is no longer used (of a namespace that is no longer offloaded)."""
        for wanted, known in list(self._known.items()):
            if known is informer:
                del self._known[wanted]
                return maybeDeferred(informer.disownServiceParent)
        return maybeDeferred(lambda: None)

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when all informers created so far have synced."""

        async def each() -> None:
            # Sequential: unlike a DeferredList, a coroutine propagates a cancellation to its caller.
            for informer in list(self._known.values()):
                await informer.when_synced()

        return Deferred.fromCoroutine(each())
