"""One kind in one offloaded namespace, watched at home and at the lender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred

from liqod.kube.cache.informer import Informer
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import Key
from liqod.model.objects.meta import label_selector


class NamespacePair(MultiService):
    """Both sides of a namespace; ``changed(name)`` is called with the name at home of what changed on either.

    Until both caches are complete nothing is told, then every object is. ``claims`` are those of each object that had
    its turn, ``objections`` what was said of some.
    """

    def __init__(
        self,
        reactor: Any,
        kind: Kind,
        context: Context,
        informers: NamespacedInformers,
        local: str,
        remote: RemoteNamespace,
        changed: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.local = local
        self.client = remote.client
        self.namespace = remote.namespace
        self.remote = remote
        self.since = float(reactor.seconds())
        self.home: Informer[Reflectable] = informers.acquire(kind.home, kind.home_view, local)
        labels = label_selector(ownership(context)) + (f",!{kind.unless}" if kind.unless else "")
        self.there: Informer[Reflectable] = Informer(
            remote.client, kind.there, kind.there_view, reactor, namespace=remote.namespace, labels=labels
        )
        self.there.setServiceParent(self)
        self._kind = kind
        self._context = context
        self._informers = informers
        self._changed = changed
        self._answers: Overlay[str, Reflectable] = Overlay(reactor)
        self.claims: dict[str, frozenset[tuple[str, str]]] = {}
        self.objections: dict[str, tuple[str, ...]] = {}
        self._unsubscribe = [self.home.subscribe(self._home_changed), self.there.subscribe(self._there_changed)]
        DeferredList([self.home.when_synced(), self.there.when_synced()]).addCallback(self._complete)

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        leaving = Deferred.fromCoroutine(self._informers.release(self.home))
        return DeferredList([maybeDeferred(super().stopService), leaving])

    @property
    def synced(self) -> bool:
        """Whether both caches are complete."""
        return self.home.synced and self.there.synced

    @property
    def complete(self) -> bool:
        """Whether every object of the home cluster was asked for its claims."""
        return self.synced and all(thing.metadata.name in self.claims for thing in self.home.items())

    def at_home(self, name: str) -> Reflectable | None:
        """Return an object of the home cluster."""
        return self.home.get(Key(self.local, name))

    def at_lender(self, name: str) -> Reflectable | None:
        """Return an object of the lender by its name there, as it is or as it was just written."""
        return self._answers.newest(name, self.there.get(Key(self.namespace, name)))

    def answered(self, name: str, there: Reflectable) -> None:
        """Remember the answer to a write."""
        self._answers.put(name, there)

    def forget(self, name: str) -> None:
        """An object of the lender is known to be gone, or to be another one."""
        self._answers.drop(name)

    def _home_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        if self.synced:
            self._changed(key.name)

    def _there_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        if new is None:
            self._answers.drop(key.name)
        if self.synced:
            self._changed(self._kind.name_at_home(key.name, self._context))

    def _complete(self, _: object) -> None:
        names = {thing.metadata.name for thing in self.home.items()}
        names.update(self._kind.name_at_home(thing.metadata.name, self._context) for thing in self.there.items())
        for name in names:
            self._changed(name)
