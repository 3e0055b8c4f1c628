"""The objects of a cluster and the log of their changes, as etcd and the watch cache keep them. Pure.

One counter numbers every change of every kind. Stored objects are shared and never changed in place. The log is
bounded: a watch from an older version gets 410 Gone (Expired).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kubesandbox.kinds.kinds import GroupResource, Json, Key

HISTORY: Final = 20_000
"""Changes kept per kind: more than a test makes in the minutes that a watch may be away."""


class Expired(Exception):
    """The requested changes were compacted (410 Expired)."""


class Stored:
    """One version of an object; its JSON is made once, for all watchers and lists."""

    __slots__ = ("_json", "object", "version")

    def __init__(self, body: Json, version: int) -> None:
        self.object = body
        self.version = version
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = msgspec.json.encode(self.object)
        return self._json


class Change(msgspec.Struct, frozen=True):
    """One change of one object: ``old`` is None for a creation; with ``gone``, ``new`` is its last state."""

    version: int
    key: Key
    old: Stored | None
    new: Stored
    gone: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """All objects at a version."""

    version: int
    objects: dict[tuple[GroupResource, Key], Stored]


Listener = Callable[[Change], None]


class Store:
    """Objects by kind, namespace and name.

    ``put`` and ``remove`` set ``metadata.resourceVersion`` on a copy of the metadata and notify the listeners of the
    kind before they return; a listener must not raise.
    """

    def __init__(self, *, history: int = HISTORY) -> None:
        self.version = 0
        self._history = history
        self._objects: dict[GroupResource, dict[str, dict[str, Stored]]] = {}
        self._log: dict[GroupResource, deque[Change]] = {}
        self._floor: dict[GroupResource, int] = {}
        self._compacted = 0
        self._listeners: dict[GroupResource, list[Listener]] = {}

    def get(self, resource: GroupResource, key: Key) -> Stored | None:
        """Return the current version of an object, or None."""
        return self._objects.get(resource, {}).get(key.namespace, {}).get(key.name)

    def items(self, resource: GroupResource, namespace: str = "") -> list[Stored]:
        """Return the objects of a kind (of one namespace, if given), in the order of their keys."""
        spaces = self._objects.get(resource, {})
        chosen = [namespace] if namespace else sorted(spaces)
        found: list[Stored] = []
        for space in chosen:
            objects = spaces.get(space, {})
            found.extend(objects[name] for name in sorted(objects))
        return found

    def count(self, resource: GroupResource) -> int:
        return sum(len(space) for space in self._objects.get(resource, {}).values())

    def resources(self) -> list[GroupResource]:
        """Return the kinds that have objects."""
        return [resource for resource, spaces in self._objects.items() if any(spaces.values())]

    def items_at(self, resource: GroupResource, version: int, namespace: str = "") -> list[Stored]:
        """Return the objects as they were at an earlier version; raises Expired when that is too long ago."""
        if version < self._floor_of(resource):
            raise Expired
        found = {_key(stored.object): stored for stored in self.items(resource, namespace)}
        for change in reversed(self._log.get(resource, ())):
            if change.version <= version:
                break
            if namespace and change.key.namespace != namespace:
                continue
            if change.old is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.old
        return [found[key] for key in sorted(found)]

    def changes_since(self, resource: GroupResource, version: int) -> list[Change]:
        """Return the later changes of a kind, oldest first; raises Expired when some of them are no longer kept."""
        if version < self._floor_of(resource):
            raise Expired
        found: list[Change] = []
        for change in reversed(self._log.get(resource, ())):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def put(self, resource: GroupResource, key: Key, body: Json) -> Stored:
        """Store a new version of an object and return it, stamped."""
        self.version += 1
        space = self._objects.setdefault(resource, {}).setdefault(key.namespace, {})
        old = space.get(key.name)
        new = space[key.name] = self._stamped(body)
        self._tell(resource, Change(self.version, key, old, new))
        return new

    def remove(self, resource: GroupResource, key: Key) -> Stored | None:
        """Remove an object; return its last state, stamped with the version of the removal."""
        old = self._objects.get(resource, {}).get(key.namespace, {}).pop(key.name, None)
        if old is None:
            return None
        self.version += 1
        last = self._stamped(old.object)
        self._tell(resource, Change(self.version, key, old, last, gone=True))
        return last

    def compact(self) -> None:
        """Drop the log of changes, like a compaction of etcd."""
        self._log.clear()
        self._floor.clear()
        self._compacted = self.version

    def snapshot(self) -> Snapshot:
        """Return the present state, like ``etcdctl snapshot save``."""
        return Snapshot(self.version, {(resource, _key(stored.object)): stored for resource, stored in self})

    def restore(self, snapshot: Snapshot) -> None:
        """Return to an earlier state and its version, like ``etcdctl snapshot restore``; stop all clients before."""
        for resource, stored in list(self):
            if (resource, _key(stored.object)) not in snapshot.objects:
                self.remove(resource, _key(stored.object))
        for (resource, key), stored in snapshot.objects.items():
            if self.get(resource, key) is not stored:
                self.put(resource, key, stored.object)
                self._objects[resource][key.namespace][key.name] = stored
        self.version = snapshot.version
        self.compact()

    def subscribe(self, resource: GroupResource, listener: Listener) -> Callable[[], None]:
        """Call the listener on every change of a kind from now on; return the unsubscribe function."""
        listeners = self._listeners.setdefault(resource, [])
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return unsubscribe

    def __iter__(self) -> Iterator[tuple[GroupResource, Stored]]:
        for resource in self.resources():
            for stored in self.items(resource):
                yield resource, stored

    def _stamped(self, body: Json) -> Stored:
        return Stored(body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}, self.version)

    def _floor_of(self, resource: GroupResource) -> int:
        return self._floor.get(resource, self._compacted)

    def _tell(self, resource: GroupResource, change: Change) -> None:
        log = self._log.setdefault(resource, deque())
        log.append(change)
        if len(log) > self._history:
            self._floor[resource] = log.popleft().version
        for listener in tuple(self._listeners.get(resource, ())):
            listener(change)


def _key(body: Json) -> Key:
    metadata = body["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])
