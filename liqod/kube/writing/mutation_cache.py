"""Read your own writes: the response to a write takes precedence until the watch has caught up.

An informer lags behind recent writes; deciding from it would repeat them. The idea is ``cache.MutationCache`` of
client-go. Resource versions show whether the watch is behind our write: it is if it shows a version that we
overwrote, or a lower one (comparable as numbers since KEP-5504). Any other version is our write or a later one, and
takes precedence. An object that we created and that the watch does not show yet counts as existing: call ``forget``
when the watch reports its deletion.
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
"""Seconds for which a write takes precedence over a watch that does not show it; then the watch is authoritative."""
MOST: Final = 4096
"""Maximum number of pending writes; the oldest is dropped first. A repeated write is harmless, unbounded memory is not.
"""
VERSIONS: Final = 16
"""Maximum number of overwritten versions kept per object."""

T = TypeVar("T", bound=Viewed)
K = TypeVar("K", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Viewed, contravariant=True)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Mutated(Protocol[K_contra, T_contra]):
    """Records writes: ``Mutations`` or ``MutationCache``."""

    def wrote(self, key: K_contra, before: T_contra | None, after: T_contra) -> None:
        """Record the response to a write."""
        ...

    def forget(self, key: K_contra) -> None:
        """Drop the pending write of a key; the watch is authoritative again."""
        ...


@attrs.frozen
class _Pending(Generic[T]):
    """A write that the watch has not shown: overwritten versions, response, current state, and expiry time."""

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
    """Pending writes and deletions by key; the caller passes the state that the watch shows."""

    def __init__(self, clock: IReactorTime, ttl: float = TTL, most: int = MOST) -> None:
        self._clock = clock
        self._ttl = ttl
        self._most = most
        self._pending: dict[K, _Pending[T]] = {}

    def __len__(self) -> int:
        """The number of objects with a pending write, as of the last ``newest`` of each."""
        return len(self._pending)

    def keys(self) -> list[K]:
        """Return the keys of objects with a pending write."""
        return list(self._pending)

    def newest(self, key: K, seen: T | None) -> T | None:
        """Return the newest known state of an object that the watch shows as ``seen``; None if it does not exist."""
        pending = self._pending.get(key)
        if pending is None:
            return seen
        if self._clock.seconds() < pending.until and pending.is_ahead_of(seen):
            return pending.now
        del self._pending[key]
        return seen

    def wrote(self, key: K, before: T | None, after: T) -> None:
        """Record the response ``after`` to a write over ``before`` (None: it was created)."""
        # A write without effect does not change the resource version, and the watch sends no event for it.
        if before is None or after.metadata.resource_version != before.metadata.resource_version:
            self._note(key, before, after, after)

    def removed(self, key: K, before: T) -> None:
        """Record a deletion; not for an object with finalizers, whose deletion is an update (deletionTimestamp)."""
        self._note(key, before, before, None)

    def forget(self, key: K) -> None:
        """Drop the pending write of a key, after a refusal or a deletion; the watch is authoritative again."""
        self._pending.pop(key, None)

    def _note(self, key: K, before: T | None, newest: T, now: T | None) -> None:
        # After several writes in a row the watch may show any version before the last.
        known = self._pending.pop(key, None)
        older = (*(known.older if known is not None else ()), before.metadata.resource_version if before else "")
        while len(self._pending) >= self._most:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = _Pending(older[-VERSIONS:], newest, now, self._clock.seconds() + self._ttl)


class MutationCache(Generic[T]):
    """An informer overlaid with pending writes."""

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
        """Record the response ``after`` to a write over ``before`` (None: it was created)."""
        self._mutations.wrote(key, before, after)
        self.get(key)  # the watch event may have arrived before the response

    def removed(self, key: Key, before: T) -> None:
        """Record a deletion; not for an object with finalizers, whose deletion is an update (deletionTimestamp)."""
        self._mutations.removed(key, before)
        self.get(key)

    def forget(self, key: Key) -> None:
        """Drop the pending write of a key, after a refusal or a deletion; the watch is authoritative again."""
        self._mutations.forget(key)
