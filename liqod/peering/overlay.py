"""Reading one's own writes: a cache that is behind our last write is not believed about that object.

Writes are conditional on the resource version they were computed from, so that the next event the cache sees for the
object is our own write or one that came later; either way the cache is right again then.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from liqod.kube.informer import Informer
from liqod.model.ids import Key
from liqod.model.meta import Object

T = TypeVar("T", bound=Object)


class Overlay(Generic[T]):
    """An informer, and on top of it what was written but not yet seen."""

    def __init__(self, informer: Informer[T]) -> None:
        self.informer = informer
        self._written: dict[Key, tuple[frozenset[str], T]] = {}

    def get(self, key: Key) -> T | None:
        """Return the newest state of an object that is known here, or None."""
        seen = self.informer.get(key)
        pending = self._written.get(key)
        if pending is None:
            return seen
        older, written = pending
        if _version(seen) in older:
            return written
        del self._written[key]
        return seen

    def items(self) -> list[T]:
        """Return all objects, each in its newest known state."""
        keys = dict.fromkeys([*self.informer.keys(), *self._written])
        return [value for value in map(self.get, keys) if value is not None]

    def wrote(self, key: Key, before: T | None, after: T) -> None:
        """Note the answer to a write of an object that was ``before``; an equal answer changes nothing."""
        old, pending = _version(before), self._written.get(key)
        if after.metadata.resource_version == old:
            return
        older = (pending[0] if pending is not None else frozenset()) | {old}
        if _version(self.informer.get(key)) in older:
            # Of several writes in a row the cache may show any but the last.
            self._written[key] = (older, after)
        else:
            self._written.pop(key, None)  # the cache has moved on already

    def forget(self, key: Key) -> None:
        """Believe the cache again: a write on top of ours failed because the object is not what we thought."""
        self._written.pop(key, None)


def _version(value: Object | None) -> str:
    return value.metadata.resource_version if value is not None else ""
