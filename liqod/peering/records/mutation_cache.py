"""Reading one's own writes: a cache that is behind our last write is not believed about that object.

Writes are conditional on the resource version they were computed from, so that the next event the cache sees for the
object is our own write or one that came later; either way the cache is right again then.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import frozen

from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, is_newer

T = TypeVar("T", bound=Object)


@frozen
class _Pending(Generic[T]):
    """What was written and not yet seen: the versions before, the newest one known, what is there now (or None)."""

    older: frozenset[str]
    newest: T
    now: T | None

    def is_ahead_of(self, seen: T | None) -> bool:
        return _version(seen) in self.older or (seen is not None and is_newer(self.newest.metadata, seen.metadata))


class Overlay(Generic[T]):
    """An informer, and on top of it what was written, or removed, but not yet seen."""

    def __init__(self, informer: Informer[T]) -> None:
        self.informer = informer
        self._written: dict[Key, _Pending[T]] = {}

    def get(self, key: Key) -> T | None:
        """Return the newest state of an object that is known here, or None."""
        seen = self.informer.get(key)
        pending = self._written.get(key)
        if pending is None:
            return seen
        if pending.is_ahead_of(seen):
            return pending.now
        del self._written[key]
        return seen

    def items(self) -> list[T]:
        """Return all objects, each in its newest known state."""
        keys = dict.fromkeys([*self.informer.keys(), *self._written])
        return [value for value in map(self.get, keys) if value is not None]

    def wrote(self, key: Key, before: T | None, after: T) -> None:
        """Note the answer to a write of an object that was ``before``; an equal answer changes nothing."""
        if after.metadata.resource_version != _version(before):
            self._note(key, _Pending(self._older(key, before), after, after))

    def removed(self, key: Key, before: T) -> None:
        """Note that a write of an object that was ``before`` removed it: the watch may tell much later."""
        self._note(key, _Pending(self._older(key, before), before, None))

    def forget(self, key: Key) -> None:
        """Believe the cache again: a write on top of ours failed because the object is not what we thought."""
        self._written.pop(key, None)

    def _older(self, key: Key, before: T | None) -> frozenset[str]:
        # Of several writes in a row the cache may show any but the last.
        pending = self._written.get(key)
        return (pending.older if pending is not None else frozenset()) | {_version(before)}

    def _note(self, key: Key, pending: _Pending[T]) -> None:
        if pending.is_ahead_of(self.informer.get(key)):
            self._written[key] = pending
        else:
            self._written.pop(key, None)  # the cache has moved on already


def _version(value: Object | None) -> str:
    return value.metadata.resource_version if value is not None else ""
