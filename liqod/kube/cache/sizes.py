"""The sizes of the objects of a cache, as the API server sent them."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from liqod.flow.observe import Gate, Subscribers
from liqod.model.ids import Key

Subscriber = Callable[[Key, int | None, int | None], None]
WriteSubscriber = Callable[[Key, int], None]


class Sizes:
    """The bytes of JSON of each object of a cache, with all that its view leaves out: ``metadata.managedFields`` above
    all.

    An object that cannot be decoded counts as well, if its name can be read. Subscribers are called with
    ``(key, old, new)``; None: there is no such object. An object of a list counts at once, one that is missing from it
    until the list is complete. Bounded like the cache.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._sizes: dict[Key, int] = {}
        self._listed: set[Key] | None = None
        self._gate = Gate()
        self._subscribers: Subscribers[Subscriber] = Subscribers()
        self._writes: Subscribers[WriteSubscriber] = Subscribers()

    def __len__(self) -> int:
        return len(self._sizes)

    def get(self, key: Key) -> int | None:
        """Return the size of an object, or None."""
        return self._sizes.get(key)

    def contents(self) -> dict[Key, int]:
        """Return the sizes of all objects."""
        return dict(self._sizes)

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when subscribers were notified of the first list."""
        return self._gate.wait()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` for every object and then for every change; return the unsubscribe function."""
        for key, size in list(self._sizes.items()):
            self._call(subscriber, key, None, size)
        return self._subscribers.add(subscriber)

    def subscribe_writes(self, subscriber: WriteSubscriber) -> Callable[[], None]:
        """Call ``subscriber`` with the size of each version that a watch shows from now on; of a list with none.

        One of the same size as the one before counts as well: etcd keeps both until it is compacted. Of a
        deletion it keeps next to nothing. What happens while nothing watches is not seen. Returns the unsubscribe
        function.
        """
        return self._writes.add(subscriber)

    def begin(self) -> None:
        """Note that a new list begins; an incomplete one is dropped."""
        self._listed = set()

    def complete(self) -> None:
        """Drop what the complete list does not have."""
        listed, self._listed = self._listed, None
        if listed is None:
            return
        for key in [key for key in self._sizes if key not in listed]:
            self._set(key, None)
        self._gate.open()

    def note(self, key: Key, size: int) -> bool:
        """Note the size of an object in place of its previous one; return True: none is refused."""
        if self._listed is not None:
            self._listed.add(key)
        else:
            self._wrote(key, size)
        self._set(key, size)
        return True

    def drop(self, key: Key) -> None:
        """Note that there is no such object."""
        if self._listed is not None:
            self._listed.discard(key)
        self._set(key, None)

    def _set(self, key: Key, new: int | None) -> None:
        old = self._sizes.get(key)
        if old == new:
            return
        if new is None:
            del self._sizes[key]
        else:
            self._sizes[key] = new
        for subscriber in self._subscribers:
            self._call(subscriber, key, old, new)

    def _wrote(self, key: Key, size: int) -> None:
        for subscriber in self._writes:
            try:
                subscriber(key, size)
            except Exception:
                self._log.failure("a subscriber failed on what was written of {name}", name=str(key))

    def _call(self, subscriber: Subscriber, key: Key, old: int | None, new: int | None) -> None:
        try:
            subscriber(key, old, new)
        except Exception:
            self._log.failure("a subscriber failed on the size of {name}", name=str(key))
