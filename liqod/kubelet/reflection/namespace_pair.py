"""Watches one kind in one offloaded namespace, at home and at the lender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import Factory, define
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.refusals import Attempts
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import Key
from liqod.model.objects.meta import label_selector

AWAITED: Final = 8.0
"""Seconds after which the first pods of a namespace wait no longer for Services that the lender does not have."""
Addresses = frozenset[tuple[str, str]]


@define
class TrackedObject:
    """The record of one object between reconciles; after a restart it is rebuilt from the observed state."""

    exports: Addresses | None = None
    """The single addresses that the lender's pods must reach for it; None: it was not forged yet."""
    objections: tuple[str, ...] = ()
    """The parts that are permanently not reflected and for which events were recorded."""
    offered_class: str = ""
    """The class that it has at the lender, once that was seen in the offer."""
    attempts: Attempts = Factory(Attempts)
    """Failed writes at the lender."""
    postponed: bool = False
    """Waits until the lender answers."""
    portable_only: bool = False
    """The lender refused its labels or annotations: only those that every lender grants go along."""


class NamespacePair(MultiService):
    """The caches of a namespace at home and at the lender; ``changed(name)`` is called with the home name of an object.

    ``deleted(key)`` is called when an object was seen to be deleted at home. No change is reported before both caches
    have synced; then every object is reported once. ``settled()`` is called once: when the lender has what there was.
    """

    def __init__(
        self,
        clock: IReactorTime,
        kind: Kind,
        context: Context,
        *,
        informers: NamespacedInformers,
        local: str,
        remote: RemoteNamespace,
        changed: Callable[[str], None],
        deleted: Callable[[Key], None],
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.local = local
        self.client = remote.client
        self.namespace = remote.namespace
        self.since = clock.seconds()
        self.home: Informer[Reflectable] = informers.acquire(kind.home, kind.home_view, local)
        # The API server filters by label: other objects, of any number, never reach this cache.
        labels = label_selector(ownership(context)) + (f",!{kind.unless}" if kind.unless else "")
        self.there: Informer[Reflectable] = Informer(
            remote.client, kind.there, kind.there_view, clock, namespace=remote.namespace, labels=labels
        )
        self.there.setServiceParent(self)
        self.mutations: Mutations[str, Reflectable] = Mutations(clock)
        self.tracked: dict[str, TrackedObject] = {}
        self.changed_at: dict[str, float] = {}
        """Since when a home object has a change that the lender does not have, by name."""
        self._clock = clock
        self._kind = kind
        self._context = context
        self._informers = informers
        self._changed = changed
        self._settled = settled
        self.is_settled = False
        """Whether the lender had all that was at home at some time, or had something before."""
        self._unsubscribe = [
            self.home.subscribe_deletions(lambda key, old: deleted(key)),
            self.home.subscribe(self._home_changed),
            self.there.subscribe(self._there_changed),
        ]
        DeferredList([self.home.when_synced(), self.there.when_synced()]).addCallback(self._all_synced)

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        releasing = Deferred.fromCoroutine(self._informers.release(self.home))
        return DeferredList([maybeDeferred(super().stopService), releasing])

    @property
    def synced(self) -> bool:
        """Whether both caches have synced."""
        return self.home.synced and self.there.synced

    @property
    def exports(self) -> Addresses:
        """The addresses requested for all objects."""
        return frozenset().union(*(tracked.exports or () for tracked in self.tracked.values()))

    @property
    def requests_complete(self) -> bool:
        """Whether the requests of every home object are known."""
        known = self.tracked
        return self.synced and all(
            (tracked := known.get(each.metadata.name)) is not None and tracked.exports is not None
            for each in self.home.items()
        )

    def at_home(self, name: str) -> Reflectable | None:
        """Return an object of the home cluster."""
        return self.home.get(Key(self.local, name))

    def at_lender(self, name: str) -> Reflectable | None:
        """Return the newest known state of an object of the lender, by its name there."""
        return self.mutations.newest(name, self.there.get(Key(self.namespace, name)))

    def settle(self) -> None:
        """Note it, if the lender has all that is at home."""
        if self.synced and not self.changed_at:
            self._settle_once()

    def _settle_once(self) -> None:
        if not self.is_settled:
            self.is_settled = True
            self._settled()

    def _home_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        if self.synced:
            self.changed_at.setdefault(key.name, self._clock.seconds())
            self._changed(key.name)

    def _there_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        if new is None:
            self.mutations.forget(key.name)
        if self.synced:
            self._changed(self._kind.name_at_home(key.name, self._context))

    def _all_synced(self, _: object) -> None:
        names = {each.metadata.name for each in self.home.items()}
        self.changed_at.update(dict.fromkeys(names, self._clock.seconds()))
        names.update(self._kind.name_at_home(each.metadata.name, self._context) for each in self.there.items())
        for name in names:
            self._changed(name)
        # What was reflected before is there, but for what changed meanwhile: nobody waits for that.
        if self.there.items():
            self._settle_once()
        self.settle()


class FirstServices:
    """The namespaces that are reflected here and whose pods wait no longer for Services are in ``settled``."""

    def __init__(self, clock: IReactorTime, settled: Latest[frozenset[str]]) -> None:
        self._clock = clock
        self._settled = settled
        self._timers: dict[str, Timer] = {}

    def await_in(self, local: str) -> None:
        """Have the pods of a namespace wait, for ``AWAITED`` at most."""
        timer = self._timers[local] = Timer(self._clock)
        timer.start(AWAITED, self.settle, local)

    def settle(self, local: str) -> None:
        """Have the pods of a namespace wait no longer; one that is not reflected here is left alone."""
        if (timer := self._timers.get(local)) is not None:
            timer.cancel()
            self._settled.set(self._settled.value | {local})

    def forget(self, local: str) -> None:
        """Forget a namespace that is no longer reflected here."""
        if (timer := self._timers.pop(local, None)) is not None:
            timer.cancel()
            self._settled.set(self._settled.value - {local})

    def close(self) -> None:
        """Forget all of them."""
        for local in tuple(self._timers):
            self.forget(local)
