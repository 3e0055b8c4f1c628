"""One remote namespace, watched: our ShadowPods in it, and the pods that the lender runs for them; and the states that
a namespace can be in.
"""

from __future__ import annotations

from typing import Any, Protocol

from attrs import Factory, define, frozen
from twisted.application.service import MultiService
from twisted.internet.defer import DeferredList

from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.refusals import Attempts
from liqod.kubelet.common.views import FINISHED, RemotePod, Shadow, decoded
from liqod.model.ids import Key
from liqod.model.objects.meta import label_selector


class PodListener(Protocol):
    """Who wants to know what changes in a remote namespace; pods are known by their name."""

    def pod_changed(self, name: str) -> None:
        """A ShadowPod or its pod changed, or was listed for the first time."""
        ...

    def synced(self) -> None:
        """Both caches are complete."""
        ...

    def caught_up(self) -> None:
        """The cache of pods follows the lender again after an interruption."""
        ...


class NoListener:
    """Wants to know nothing."""

    def pod_changed(self, name: str) -> None:
        """Ignore a change."""

    def synced(self) -> None:
        """Ignore it."""

    def caught_up(self) -> None:
        """Ignore it."""


class RemoteNamespace(MultiService):
    """The lender's side of one home namespace; ``since`` is when it was first watched (reactor's clock)."""

    def __init__(
        self, reactor: Any, client: Client, name: str, context: Context, listener: PodListener | None = None
    ) -> None:
        super().__init__()
        self.namespace = name
        self.client = client
        self.since = float(reactor.seconds())
        self.mutations: Mutations[str, Shadow] = Mutations(reactor)
        self._listener: PodListener = listener or NoListener()
        self._ended: dict[str, RemotePod] = {}
        labels = label_selector(ownership(context))
        self._shadows: Informer[Shadow] = Informer(client, SHADOWPODS, Shadow, reactor, namespace=name, labels=labels)
        self._pods: Informer[RemotePod] = Informer(client, PODS, RemotePod, reactor, namespace=name, labels=labels)
        self._shadows.subscribe(self._shadow_changed)
        self._pods.subscribe(self._pod_changed)
        self._pods.live.subscribe(lambda live: self._listener.caught_up() if live else None)
        for informer in (self._shadows, self._pods):
            informer.setServiceParent(self)
        DeferredList([self._shadows.when_synced(), self._pods.when_synced()]).addCallback(self._all_synced)

    @property
    def synced(self) -> bool:
        """Whether both caches are complete, so that absence means absence."""
        return self._shadows.synced and self._pods.synced

    @property
    def live(self) -> bool:
        """Whether the cache of pods shows what the lender has now, rather than what it had before an interruption."""
        return self._pods.live.value

    @property
    def error(self) -> str:
        """Why the namespace cannot be watched; empty while it can."""
        return self._shadows.error or self._pods.error

    def names(self) -> set[str]:
        """Return the names of all pods that the lender knows of."""
        return {key.name for key in (*self._shadows.keys(), *self._pods.keys())}

    def shadow(self, name: str) -> Shadow | None:
        """Return the newest known state of a ShadowPod."""
        return self.mutations.newest(name, self._shadows.get(Key(self.namespace, name)))

    def pod(self, name: str) -> RemotePod | None:
        """Return the pod that the lender runs for a ShadowPod."""
        return self._pods.get(Key(self.namespace, name))

    def ended(self, name: str) -> RemotePod | None:
        """Return the last state of a pod that had ended and is gone, until another pod has its name."""
        return self._ended.get(name)

    def _shadow_changed(self, key: Key, old: Shadow | None, new: Shadow | None) -> None:
        if new is None:
            self.mutations.forget(key.name)
            self._ended.pop(key.name, None)
        self._notify(key.name)

    def _pod_changed(self, key: Key, old: RemotePod | None, new: RemotePod | None) -> None:
        self._ended.pop(key.name, None)
        # Bounded by the ShadowPods: an entry goes with its ShadowPod.
        is_removed = new is None and old is not None and self._shadows.get(key) is not None
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


@frozen
class NotOffloaded:
    """Pods of the namespace are not offloaded through this node, for the reason in ``message``."""

    message: str


@frozen
class Pending:
    """The namespace is to be offloaded but cannot be used yet; ``asked``: the lender may know of it already."""

    asked: bool


@frozen
class Refused:
    """The lender refuses the namespace (for now)."""

    reason: str
    message: str


@frozen
class Offloaded:
    """Pods of the namespace are offloaded to ``remote``; while ``draining`` no new ones."""

    remote: RemoteNamespace
    draining: bool


NamespaceState = NotOffloaded | Pending | Refused | Offloaded


@define
class TrackedNamespace:
    """What is remembered about a namespace between two steps; after a restart it is rebuilt from the records."""

    remote: RemoteNamespace | None = None
    """Its counterpart at the lender, once it is watched."""
    request_again: bool = False
    """The lender refused something in it: its grant is to be requested again."""
    unanswered: int = 0
    """Requests for it since the last answer that could be used."""
    attempts: Attempts = Factory(Attempts)
    """Refusals of the lender in a row."""
