"""One remote namespace, watched: the ShadowPods that are ours there, and the pods that the lender runs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import DeferredList

from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.views import FINISHED, RemotePod, Shadow, decoded
from liqod.model.ids import Key
from liqod.model.objects.meta import label_selector


class RemoteNamespace(MultiService):
    """The lender's side of one home namespace.

    ``changed(name)`` is called for each pod of which anything changed there, and for all of them when both caches are
    complete; ``caught_up`` when the pods' cache follows the lender again after it did not. ``answers`` holds ShadowPods
    that were just written.
    """

    def __init__(
        self,
        reactor: Any,
        client: Client,
        name: str,
        context: Context,
        changed: Callable[[str], None],
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.namespace = name
        self.client = client
        self.since = float(reactor.seconds())
        self.answers: Overlay[str, Shadow] = Overlay(reactor)
        self._changed = changed
        self._ended: dict[str, RemotePod] = {}
        labels = label_selector(ownership(context))
        self._shadows: Informer[Shadow] = Informer(client, SHADOWPODS, Shadow, reactor, namespace=name, labels=labels)
        self._pods: Informer[RemotePod] = Informer(client, PODS, RemotePod, reactor, namespace=name, labels=labels)
        self._shadows.subscribe(self._shadow_changed)
        self._pods.subscribe(self._pod_changed)
        self._pods.live.subscribe(lambda live: caught_up() if live else None)
        for informer in (self._shadows, self._pods):
            informer.setServiceParent(self)
        DeferredList([self._shadows.when_synced(), self._pods.when_synced()]).addCallback(self._complete)

    @property
    def synced(self) -> bool:
        """Whether both caches are complete, so that absence means absence."""
        return self._shadows.synced and self._pods.synced

    @property
    def live(self) -> bool:
        """Whether what is seen of the pods is what the lender has now, not what it had before an interruption."""
        return self._pods.live.value

    @property
    def error(self) -> str:
        """Why the namespace cannot be watched; empty while it can."""
        return self._shadows.error or self._pods.error

    def names(self) -> set[str]:
        """Return the names of all pods that the lender knows of."""
        return {key.name for key in (*self._shadows.keys(), *self._pods.keys())}

    def shadow(self, name: str) -> Shadow | None:
        """Return a ShadowPod, as it is or as it was just written."""
        return self.answers.newest(name, self._shadows.get(Key(self.namespace, name)))

    def pod(self, name: str) -> RemotePod | None:
        """Return the pod that the lender runs for a ShadowPod."""
        return self._pods.get(Key(self.namespace, name))

    def ended(self, name: str) -> RemotePod | None:
        """Return the last sight of a pod that is gone since and had ended, until another one has its name."""
        return self._ended.get(name)

    def _shadow_changed(self, key: Key, old: Shadow | None, new: Shadow | None) -> None:
        if new is None:
            self.answers.drop(key.name)
            self._ended.pop(key.name, None)
        self._tell(key.name)

    def _pod_changed(self, key: Key, old: RemotePod | None, new: RemotePod | None) -> None:
        self._ended.pop(key.name, None)
        # As many as there are ShadowPods at most: each goes with its ShadowPod.
        wanted = new is None and old is not None and self._shadows.get(key) is not None
        if wanted and old is not None and decoded(old.status).get("phase") in FINISHED:
            self._ended[key.name] = old
        self._tell(key.name)

    def _tell(self, name: str) -> None:
        if self.synced:
            self._changed(name)

    def _complete(self, _: object) -> None:
        for name in self.names():
            self._changed(name)
        self._changed("")
