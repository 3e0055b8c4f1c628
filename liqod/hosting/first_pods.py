"""Holds the first pods of a namespace until what they call first is there: home's API server, and home's Services.

A borrower asks for a namespace when the first pod there is scheduled, so that Services, slices and pod come one right
after the other; at home the Services were there long before. A proxy refuses a connection to a Service of which it
knows no endpoint, and many a program ends when its first request is refused. So the first pods are created once the
slices are, and the proxies had time to read them. Those that follow do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from attrs import Factory, define
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.controller import After
from liqod.flow.observe import Subscribers
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.names import HOME_API_LABEL, SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.name_service import NameService
from liqod.model.records.views import ShadowEndpointSlice

PROXIES: Final = 1.0
"""Seconds that the proxies of the nodes have to carry out a slice. Source: kube-proxy, ``minSyncPeriod``, 1 s."""
HELD: Final = 8.0
"""Seconds after which the first pods of a namespace wait no longer, whatever is missing."""
_BY_NAMESPACE: Final = "namespace"
Subscriber = Callable[[Sequence[Key]], None]


def is_in_place(services: Iterable[Object], shadows: Iterable[Object], slices: Iterable[Object]) -> bool:
    """Return whether all that is wanted of a namespace's Services is made, and the way to home's API server is one.

    ``shadows`` are the slices that are wanted, ``slices`` those that were made.
    """
    made = list(slices)
    names, joined = {one.metadata.name for one in made}, {_service_of(one) for one in made}
    known = {one.metadata.name: HOME_API_LABEL in one.metadata.labels for one in services}
    is_way_there = all(name in joined for name, leads_home in known.items() if leads_home)
    return is_way_there and all(one.metadata.name in names for one in shadows if _service_of(one) in known)


def _service_of(piece: Object) -> str:
    return piece.metadata.labels.get(SERVICE_NAME_LABEL, "")


def _namespace_of(one: Object) -> Iterable[Hashable]:
    yield one.metadata.namespace


@define
class _Held:
    """A namespace whose pods wait, ``until`` at most; ``settling`` runs once all is in place."""

    until: float
    settling: Timer
    keys: dict[Key, None] = Factory(dict)


class FirstPods:
    """Decides for each namespace whether its pods wait; subscribers are called with those that wait no longer.

    ``slices`` are the caches of what is made here. Namespaces that were there when it ``begins`` are not held.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        services: Informer[NameService],
        shadows: Informer[ShadowEndpointSlice],
        slices: Iterable[Informer[Any]],
    ) -> None:
        self._clock = clock
        self._namespaces = namespaces
        self._services = services
        self._shadows = shadows
        self._slices = tuple(slices)
        self._done: set[str] = set()
        self._held: dict[str, _Held] = {}
        self._subscribers: Subscribers[Subscriber] = Subscribers()
        self._unsubscribe: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Follow the caches; what is there already was made by an earlier daemon."""
        self._done = {one.metadata.name for one in self._namespaces.items()}
        self._unsubscribe.append(self._namespaces.subscribe(self._namespace_changed))
        caches: tuple[Informer[Any], ...] = (self._services, self._shadows, *self._slices)
        for cache in caches:
            cache.add_index(_BY_NAMESPACE, _namespace_of)
            self._unsubscribe.append(cache.subscribe(self._changed))

    def close(self) -> None:
        """Follow nothing any more, and hold nothing."""
        unsubscribe, self._unsubscribe = self._unsubscribe, []
        for end in unsubscribe:
            end()
        for held in self._held.values():
            held.settling.cancel()
        self._held.clear()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with the keys of pods that wait no longer; return the unsubscribe function."""
        return self._subscribers.add(subscriber)

    def wait(self, key: Key) -> After | None:
        """Return how long a pod waits at most; None for one that does not."""
        space, now = key.namespace, self._clock.seconds()
        if space in self._done:
            return None
        held = self._held.get(space)
        if held is None:
            held = self._held[space] = _Held(now + HELD, Timer(self._clock))
            self._look(space)
        if space in self._done:
            return None
        if now >= held.until:
            self._log.info("pods in {namespace} wait no longer for Services of their home", namespace=space)
            self._release(space)
            return None
        held.keys[key] = None
        return After(held.until - now)

    def _look(self, space: str) -> None:
        """Have the proxies' time begin again if all is in place; it ends if something is wanted that is not there."""
        held = self._held[space]
        made = [one for cache in self._slices for one in cache.by_index(_BY_NAMESPACE, space)]
        services = self._services.by_index(_BY_NAMESPACE, space)
        if not is_in_place(services, self._shadows.by_index(_BY_NAMESPACE, space), made):
            held.settling.cancel()
        elif made:
            held.settling.start(PROXIES, self._release, space)
        else:
            self._release(space)

    def _release(self, space: str) -> None:
        self._done.add(space)
        held = self._held.pop(space)
        held.settling.cancel()
        for subscriber in self._subscribers:
            subscriber(tuple(held.keys))

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or old.metadata.uid == new.metadata.uid):
            return
        # Another one of that name is new as well.
        self._done.discard(key.name)
        if (held := self._held.pop(key.name, None)) is not None:
            held.settling.cancel()

    def _changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        if key.namespace in self._held:
            self._look(key.namespace)
