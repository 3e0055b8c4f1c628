"""Watches one remote namespace: our ShadowPods and the lender's pods for them."""

from __future__ import annotations

from typing import Protocol

from twisted.application.service import MultiService
from twisted.internet.defer import DeferredList
from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.views import RemotePod, Shadow, decoded
from liqod.model.ids import Key
from liqod.model.objects.meta import label_selector
from liqod.model.objects.pod_completion import FINISHED


class PodListener(Protocol):
    """A subscriber to the changes in a remote namespace; pods are identified by name."""

    def pod_changed(self, name: str) -> None:
        """Notify that a ShadowPod or its pod changed or was listed for the first time."""
        ...

    def synced(self) -> None:
        """Notify that both caches have synced."""
        ...

    def caught_up(self) -> None:
        """Notify that the cache of pods is up to date again after an interruption."""
        ...

    def interrupted(self) -> None:
        """Notify that a cache is no longer up to date."""
        ...


class NoListener:
    """Null object: ignores all changes."""

    def pod_changed(self, name: str) -> None:
        """Do nothing."""

    def synced(self) -> None:
        """Do nothing."""

    def caught_up(self) -> None:
        """Do nothing."""

    def interrupted(self) -> None:
        """Do nothing."""


class RemoteNamespace(MultiService):
    """The caches of one remote namespace; ``since`` is when the watches started (reactor's clock)."""

    def __init__(
        self, clock: IReactorTime, client: Client, name: str, context: Context, listener: PodListener | None = None
    ) -> None:
        super().__init__()
        self.namespace = name
        self.client = client
        self.since = clock.seconds()
        self.mutations: Mutations[str, Shadow] = Mutations(clock)
        self._listener: PodListener = listener or NoListener()
        self._ended: dict[str, RemotePod] = {}
        labels = label_selector(ownership(context))
        self._shadows: Informer[Shadow] = Informer(client, SHADOWPODS, Shadow, clock, namespace=name, labels=labels)
        self._pods: Informer[RemotePod] = Informer(client, PODS, RemotePod, clock, namespace=name, labels=labels)
        self._shadows.subscribe(self._shadow_changed)
        self._pods.subscribe(self._pod_changed)
        self._pods.live.subscribe(lambda live: self._listener.caught_up() if live else None)
        for informer in (self._shadows, self._pods):
            informer.live.subscribe(lambda live: None if live else self._listener.interrupted())
            informer.setServiceParent(self)
        DeferredList([self._shadows.when_synced(), self._pods.when_synced()]).addCallback(self._all_synced)

    @property
    def synced(self) -> bool:
        """Whether both caches have synced, so that an object missing from them does not exist."""
        return self._shadows.synced and self._pods.synced

    @property
    def live(self) -> bool:
        """Whether the cache of pods is up to date; False during an interruption of the watch."""
        return self._pods.live.value

    @property
    def is_watched(self) -> bool:
        """Whether both caches have synced and are up to date."""
        return self.synced and self._shadows.live.value and self._pods.live.value

    @property
    def refused_since(self) -> float | None:
        """Since when the lender refuses a watch with 403 or 404 (reactor's clock); None while it does not."""
        since = [each.refused_since for each in (self._shadows, self._pods) if each.refused_since is not None]
        return min(since, default=None)

    @property
    def error(self) -> str:
        """Why the namespace cannot be watched; empty while it can."""
        return self._shadows.error or self._pods.error

    @property
    def shadows(self) -> int:
        """The number of our ShadowPods."""
        return len(self._shadows)

    def names(self) -> set[str]:
        """Return the names of all ShadowPods and pods in the caches."""
        return {key.name for key in (*self._shadows.keys(), *self._pods.keys())}

    def shadow(self, name: str) -> Shadow | None:
        """Return the newest known state of a ShadowPod."""
        return self.mutations.newest(name, self._shadows.get(Key(self.namespace, name)))

    def pod(self, name: str) -> RemotePod | None:
        """Return the pod that the lender runs for a ShadowPod."""
        return self._pods.get(Key(self.namespace, name))

    def ended(self, name: str) -> RemotePod | None:
        """Return the last state of a deleted pod that had terminated, until another pod has its name."""
        return self._ended.get(name)

    def forget_ended(self, name: str) -> None:
        """Drop the last state of a deleted pod: its home pod is gone as well."""
        self._ended.pop(name, None)

    def _shadow_changed(self, key: Key, old: Shadow | None, new: Shadow | None) -> None:
        if new is None:
            self.mutations.forget(key.name)
        self._notify(key.name)

    def _pod_changed(self, key: Key, old: RemotePod | None, new: RemotePod | None) -> None:
        self._ended.pop(key.name, None)
        # Bounded by the home pods: the step that follows drops the entry of one that is gone.
        is_removed = self.synced and new is None
        if is_removed and old is not None and decoded(old.status).get("phase") in FINISHED:
            self._ended[key.name] = old
        self._notify(key.name)

    def _notify(self, name: str) -> None:
        if self.synced:
            self._listener.pod_changed(name)

    def _all_synced(self, _: object) -> None:
        for name in self.names():
            self._listener.pod_changed(name)
        self._listener.synced()
