"""Read your own writes: what the API server answered counts until the watch has shown it.

An informer lags behind what was just written; deciding from it would write the same thing twice. The idea is that of
``cache.MutationCache`` in client-go. Resource versions show whether the watch is behind our write: it is when it
still shows a version that we wrote over, or a lower one (comparable as numbers since KEP-5504). Anything else it shows
is our write or one that came later, and is believed. An object that we created and that the watch does not show at all
counts as there: call ``forget`` when the watch tells that it was deleted.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import Viewed
from liqod.model.ids import Key
from liqod.model.objects.meta import is_newer

TTL: Final = 30.0
"""Seconds that a write counts against a watch that does not show it: after that the watch, or the write, was lost, and
what the watch shows is believed again."""
MOST: Final = 4096
"""Writes that are remembered; the oldest is forgotten first. Writing something twice is harmless, growing is not."""
VERSIONS: Final = 16
"""Versions of one object that are remembered as overwritten: a watch further behind is believed."""

T = TypeVar("T", bound=Viewed)
K = TypeVar("K", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Viewed, contravariant=True)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Mutated(Protocol[K_contra, T_contra]):
    """Where writes are noted: ``Mutations`` or ``MutationCache``."""

    def wrote(self, key: K_contra, before: T_contra | None, after: T_contra) -> None:
        """Note the answer to a write."""
        ...

    def forget(self, key: K_contra) -> None:
        """Believe the watch again."""
        ...


@attrs.frozen
class _Pending(Generic[T]):
    """A write that the watch has not shown: versions before it, its answer, what is there now, until when it counts."""

    older: tuple[str, ...]
    newest: T
    now: T | None
    until: float

    def is_ahead_of(self, seen: T | None) -> bool:
        if seen is None:
            return "" in self.older
        version = seen.metadata.resource_version
        return version in self.older or is_newer(self.newest.metadata, seen.metadata)


class Mutations(Generic[K, T]):
    """Writes and removals by key; the caller brings what the watch shows."""

    def __init__(self, clock: IReactorTime, ttl: float = TTL, most: int = MOST) -> None:
        self._clock = clock
        self._ttl = ttl
        self._most = most
        self._pending: dict[K, _Pending[T]] = {}

    def __len__(self) -> int:
        """The number of objects whose last write was not seen yet, as far as was asked."""
        return len(self._pending)

    def keys(self) -> list[K]:
        """Return the keys of those objects."""
        return list(self._pending)

    def newest(self, key: K, seen: T | None) -> T | None:
        """Return the newest known state of an object that the watch shows as ``seen``; None when it does not exist."""
        pending = self._pending.get(key)
        if pending is None:
            return seen
        if self._clock.seconds() < pending.until and pending.is_ahead_of(seen):
            return pending.now
        del self._pending[key]
        return seen

    def wrote(self, key: K, before: T | None, after: T) -> None:
        """Note the answer ``after`` to a write over ``before`` (None: it was created)."""
        if before is None or after.metadata.resource_version != before.metadata.resource_version:
            self._note(key, before, after, after)

    def removed(self, key: K, before: T) -> None:
        """Note that an object was removed; not for one that finalizers hold, the watch shows that as a change."""
        self._note(key, before, before, None)

    def forget(self, key: K) -> None:
        """Believe the watch again: a write was refused because the object is not what we thought, or it is gone."""
        self._pending.pop(key, None)

    def _note(self, key: K, before: T | None, newest: T, now: T | None) -> None:
        # Of several writes in a row the watch may show any but the last.
        known = self._pending.pop(key, None)
        older = (*(known.older if known is not None else ()), before.metadata.resource_version if before else "")
        while len(self._pending) >= self._most:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = _Pending(older[-VERSIONS:], newest, now, self._clock.seconds() + self._ttl)


class MutationCache(Generic[T]):
    """An informer, and on top of it what was written but not seen yet."""

    def __init__(self, informer: Informer[T], clock: IReactorTime, ttl: float = TTL, most: int = MOST) -> None:
        self.informer = informer
        self._mutations: Mutations[Key, T] = Mutations(clock, ttl, most)

    def get(self, key: Key) -> T | None:
        """Return the newest known state of an object, or None."""
        return self._mutations.newest(key, self.informer.get(key))

    def items(self) -> list[T]:
        """Return all objects, each in its newest known state."""
        keys = dict.fromkeys([*self.informer.keys(), *self._mutations.keys()])
        return [value for value in map(self.get, keys) if value is not None]

    def wrote(self, key: Key, before: T | None, after: T) -> None:
        """Note the answer ``after`` to a write over ``before`` (None: it was created)."""
        self._mutations.wrote(key, before, after)
        self.get(key)  # the watch may have been faster than the answer

    def removed(self, key: Key, before: T) -> None:
        """Note that an object was removed; not for one that finalizers hold, the watch shows that as a change."""
        self._mutations.removed(key, before)
        self.get(key)

    def forget(self, key: Key) -> None:
        """Believe the watch again: a write was refused because the object is not what we thought, or it is gone."""
        self._mutations.forget(key)
