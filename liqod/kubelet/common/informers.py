"""Shares caches of single home namespaces between the virtual kubelets that reflect them."""

from __future__ import annotations

from typing import Any, TypeVar

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import Resource
from liqod.model.objects.meta import Object

V = TypeVar("V", bound=Object)


class NamespacedInformers:
    """Starts a cache when it is first acquired, and stops it with the last release."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._users: dict[Informer[Any], int] = {}

    def __len__(self) -> int:
        return len(self._users)

    def acquire(self, resource: Resource, view: type[V], namespace: str) -> Informer[V]:
        """Return the cache of one kind in one namespace; each call must be paired with one ``release``."""
        informer = self._informers.of(resource, view, namespace=namespace)
        self._users[informer] = self._users.get(informer, 0) + 1
        return informer

    async def release(self, informer: Informer[Any]) -> None:
        """Release a cache; the last release stops it."""
        self._users[informer] -= 1
        if not self._users[informer]:
            del self._users[informer]
            await self._informers.drop(informer)
