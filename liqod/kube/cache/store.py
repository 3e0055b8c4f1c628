"""Stores the objects of one kind with indexes; every change returns a delta."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta


class Viewed(Protocol):
    """A view that a cache can hold: it has metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


V = TypeVar("V", bound=Viewed)


class Delta(NamedTuple, Generic[V]):
    """A change of one object: ``old`` is None for an addition, ``new`` is None for a deletion.

    ``watched``: a deletion that the server reported, not one that a new list let conclude.
    """

    key: Key
    old: V | None
    new: V | None
    watched: bool = False


class Store(Generic[V]):
    """Objects by key, and by the values that index functions return for them.

    Bounded by the number of objects in the API server. An object with an unchanged resource version is no change.
    """

    def __init__(self) -> None:
        self._objects: dict[Key, V] = {}
        self._indexes: dict[str, tuple[Callable[[V], Iterable[Hashable]], dict[Hashable, dict[Key, V]]]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[V]:
        return iter(self._objects.values())

    def get(self, key: Key) -> V | None:
        """Return the object of a key, or None."""
        return self._objects.get(key)

    def keys(self) -> list[Key]:
        """Return the keys of all objects."""
        return list(self._objects)

    def contents(self) -> dict[Key, V]:
        """Return all objects by their keys."""
        return dict(self._objects)

    def add_index(self, name: str, values: Callable[[V], Iterable[Hashable]]) -> None:
        """Index objects by the values that ``values`` returns for each; raise ValueError if the name is in use."""
        if name in self._indexes:
            if self._indexes[name][0] is not values:
                raise ValueError(f"there is another index {name!r} already")
            return
        index: dict[Hashable, dict[Key, V]] = {}
        self._indexes[name] = (values, index)
        for key, value in self._objects.items():
            for entry in values(value):
                index.setdefault(entry, {})[key] = value

    def by_index(self, name: str, value: Hashable) -> list[V]:
        """Return the objects with a value in an index; raise KeyError for an unknown index."""
        return list(self._indexes[name][1].get(value, {}).values())

    def put(self, new: V) -> Delta[V] | None:
        """Store an object; return the change, or None for a known resource version."""
        metadata = new.metadata
        key = metadata.key
        old = self._objects.get(key)
        if old is not None and _same(old.metadata, metadata):
            return None
        self._objects[key] = new
        self._reindex(key, old, new)
        return Delta(key, old, new)

    def remove(self, key: Key) -> Delta[V] | None:
        """Remove an object; return the change, or None if it was not stored."""
        old = self._objects.pop(key, None)
        if old is None:
            return None
        self._reindex(key, old, None)
        return Delta(key, old, None)

    def replace(self, fresh: Mapping[Key, V], keep: Collection[Key] = ()) -> list[Delta[V]]:
        """Replace the contents by a complete list; return all changes, including missed deletions.

        Keys in ``keep`` exist but could not be decoded: their last known state remains. Deletions come first. An object
        that was deleted and created again under its name (another UID) is reported as a deletion and an addition.
        """
        deltas: list[Delta[V]] = []
        kept = set(keep)
        for key, old in list(self._objects.items()):
            now = fresh.get(key)
            if (key in kept) if now is None else _is_same_one(old.metadata, now.metadata):
                continue
            if (delta := self.remove(key)) is not None:
                deltas.append(delta)
        # This loop processes a whole cache in one turn of the reactor, so it is kept minimal.
        objects, indexed = self._objects, bool(self._indexes)
        for key, new in fresh.items():
            before = objects.get(key)
            if before is not None and _same(before.metadata, new.metadata):
                continue
            objects[key] = new
            if indexed:
                self._reindex(key, before, new)
            deltas.append(Delta(key, before, new))
        return deltas

    def _reindex(self, key: Key, old: V | None, new: V | None) -> None:
        for values, index in self._indexes.values():
            if old is not None:
                for entry in values(old):
                    bucket = index.get(entry)
                    if bucket is not None:
                        bucket.pop(key, None)
                        if not bucket:
                            del index[entry]
            if new is not None:
                for entry in values(new):
                    index.setdefault(entry, {})[key] = new


def _is_same_one(old: ObjectMeta, new: ObjectMeta) -> bool:
    return not new.uid or old.uid == new.uid


def _same(old: ObjectMeta, new: ObjectMeta) -> bool:
    # Equal versions of one UID are the same state; a re-created object may have any version (Kubernetes API concepts).
    return bool(new.resource_version) and old.resource_version == new.resource_version and old.uid == new.uid
