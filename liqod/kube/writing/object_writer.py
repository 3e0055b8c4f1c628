"""Writes metadata and spec of an object by conditional patches; every response is in the mutation cache at once.

A patch carries the resource version of the state that it was decided on: if the object has changed since, the API
server answers 409, nothing is written, and the caller decides again. After a refusal the watch is authoritative again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from liqod.kube.cache.store import Viewed
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, NotFound
from liqod.kube.resources import Resource
from liqod.kube.writing.mutation_cache import MutationCache

S = TypeVar("S", bound=Viewed)


class ObjectWriter(Generic[S]):
    """Writes objects of one kind; records each response in ``mutations``, which the caller reads from."""

    def __init__(self, client: Client, resource: Resource, view: type[S], mutations: MutationCache[S]) -> None:
        self._client = client
        self._resource = resource
        self._view = view
        self._mutations = mutations

    async def patch(
        self, present: S, *, metadata: Mapping[str, Any] | None = None, spec: Mapping[str, Any] | None = None
    ) -> S:
        """Merge-patch metadata and spec of ``present``, the newest known state of an object; return the new state.

        Raises Conflict or NotFound when that is not its state any more, else KubeError.
        """
        meta = present.metadata
        change: dict[str, Any] = {"metadata": {"resourceVersion": meta.resource_version, **(metadata or {})}}
        if spec:
            change["spec"] = spec
        try:
            written = await self._client.patch(self._resource, meta.name, change, meta.namespace, view=self._view)
        except (Conflict, NotFound):
            self._mutations.forget(meta.key)
            raise
        self._mutations.wrote(meta.key, present, written)
        return written

    async def add_finalizer(self, present: S, finalizer: str) -> S:
        """Add a finalizer, which delays the deletion of the object; raises as ``patch``."""
        # A merge patch replaces lists as a whole (RFC 7396): the resource version protects the finalizers of others.
        return await self.patch(present, metadata={"finalizers": [*present.metadata.finalizers, finalizer]})

    async def remove_finalizer(self, present: S, finalizer: str) -> None:
        """Remove a finalizer of an object that is being deleted; raises Conflict when the object has changed.

        The API server deletes the object with its last finalizer: then the cache no longer shows it, before the watch
        does. An object that is gone already is no error.
        """
        left = [name for name in present.metadata.finalizers if name != finalizer]
        try:
            await self.patch(present, metadata={"finalizers": left or None})
        except NotFound:
            left = []
        if not left:
            self._mutations.removed(present.metadata.key, present)
