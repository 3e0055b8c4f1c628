"""The order of listing and watching, as a machine without I/O or clock.

It gets what happened and returns what to do next; it maintains the cache. Lists are streamed (WatchList, KEP-3157)
where the server supports it, else read in pages. After a broken watch it resumes from the last resource version; only
when that is too old (410) does it list again, and deletions that were missed are deltas of that list. Semantics as in
client-go's Reflector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Generic

import attrs

from liqod.flow.backoff import Backoff
from liqod.kube.cache.store import Delta, Store, V
from liqod.kube.cache.watch_decoder import Bookmark, Change, Failure, Unreadable
from liqod.kube.errors import Gone, Invalid, KubeError, ServerError, Throttled
from liqod.model.ids import Key

SILENCE: Final = 70.0
"""Seconds without a line after which a watch counts as broken: the server sends bookmarks every 60 s."""
HEALTHY: Final = 10.0
"""Seconds that a watch must have lived for its end to be ordinary."""
BRIEF: Final = 0.25
"""Seconds between the starts of two watches at least. A busy server ends watches of slow readers, whose
buffer in its watch cache is full; one that delivered events is resumed at once: by waiting it would fall further behind
and be ended again."""
SHORTEST, LONGEST = 300.0, 600.0
"""Seconds that a watch is asked to last, spread so that they do not all end together."""

BACKOFF: Final = Backoff(initial=1.2, factor=2.0, cap=22.5, jitter=1 / 3)
"""From 0.8 s to 30 s with its jitter."""
WARMING: Final = Backoff(initial=0.15, factor=2.0, cap=1.0, jitter=1 / 3)
"""While the API server fills the cache of a kind that was never asked for: it takes a tenth of a second or two, and the
second that the server asks to be left alone would be most of a daemon's start."""

_SOON: Final = 5
SPREAD: Final = 0.5
"""Seconds over which the watches of a server are spread that start again after an interruption."""


@attrs.frozen
class List:
    """Read all objects, page by page; answer with ``listed`` or ``ended``."""


@attrs.frozen
class Watch:
    """Watch from a resource version; with ``initial`` the server is asked to send what there is first."""

    resource_version: str
    initial: bool
    timeout: int


@attrs.frozen
class Wait:
    """Wait for so many seconds, then call ``waited``."""

    seconds: float


Command = List | Watch | Wait


class ListWatch(Generic[V]):
    """Keeps a store equal to the server's state, through every failure.

    ``synced`` once a first list was complete. ``error`` is the last failure's sentence, empty when live;
    ``stale_since`` the time since which the store may be behind, None when live. ``closing`` asks the driver to end the
    watch now.
    """

    def __init__(self, store: Store[V], random: Callable[[], float], *, stream: bool = True) -> None:
        self.store = store
        self.synced = False
        self.error = ""
        self.stale_since: float | None = None
        self.closing = False
        self.resource_version = ""
        self._random = random
        self._stream = stream
        self._initial = False
        self._fruitful = False
        self._cut_short = 0
        self._incoming: dict[Key, V] = {}
        self._unread: set[Key] = set()
        self._attempts = 0
        self._connected_at: float | None = None
        self._listed_at: float | None = None
        self._last_activity = 0.0
        self._failure: KubeError | None = None

    @property
    def connected_at(self) -> float | None:
        """Since when a watch is connected; None while there is none."""
        return self._connected_at

    @property
    def last_activity(self) -> float:
        """When the server last sent something in a watch."""
        return self._last_activity

    @property
    def deadline(self) -> float:
        """When a silent watch is to be aborted."""
        return self._last_activity + SILENCE

    def start(self, now: float) -> Command:
        """Return the first command."""
        self.stale_since = now if self.stale_since is None else self.stale_since
        return self._list()

    def waited(self) -> Command:
        """A wait is over."""
        return self._watch() if self.resource_version else self._list()

    def listed(
        self, objects: Mapping[Key, V], unread: Collection[Key], resource_version: str, now: float
    ) -> tuple[list[Delta[V]], Command]:
        """A list is complete; ``unread`` are the keys of objects that could not be decoded."""
        deltas = self.store.replace(objects, unread)
        self._complete(resource_version, now)
        self._live()
        return deltas, self._watch()

    def connected(self, now: float) -> None:
        """The server accepted the watch."""
        self._connected_at = self._last_activity = now
        if not self._initial:
            self._live()

    def received(self, event: Change[V] | Bookmark | Failure | Unreadable, now: float) -> Iterable[Delta[V]]:
        """An event came; returns what changed in the store."""
        self._last_activity = now
        if isinstance(event, Change):
            return self._initial_change(event) if self._initial else self._change(event)
        if isinstance(event, Bookmark):
            return self._bookmark(event, now)
        if isinstance(event, Failure):
            self._failure = event.error
            self.closing = True
            return ()
        return self._skipped(event)

    def ended(self, error: KubeError | None, now: float) -> Command:
        """A list or a watch ended: with an error, or, for a watch, in the ordinary way."""
        error = self._failure or error
        plain, initial, fruitful = self.closing, self._initial, self._fruitful
        lived = 0.0 if self._connected_at is None else now - self._connected_at
        self._reset_stream()
        if initial and (error is None or isinstance(error, Invalid)):
            # The server says that it does not stream lists, or it ended without ever telling the end of one: it is read
            # in pages this time, and for good if that was not the accident of a restart.
            self._cut_short += 1
            self._stream = error is None and not plain and self._cut_short < 3
            return List()
        if error is None:
            if lived < HEALTHY and not fruitful:
                return self._wait()
            self._attempts = 0
            return self._watch() if lived >= BRIEF else Wait(BRIEF - lived)
        if lived >= HEALTHY:
            self._attempts = 0
        if isinstance(error, Gone) or _from_the_future(error):
            watched, self.resource_version = bool(self.resource_version), ""
            self._stale(f"the resource version is no longer known, everything is listed again: {error}", now)
            # At once, unless it was listed just now: a server that refuses every version must not be listed in a loop.
            fresh = self._listed_at is not None and now - self._listed_at < HEALTHY
            return self._list() if watched and not fresh else self._wait()
        self._stale(str(error), now)
        if is_warming(error) and self._attempts < _SOON:
            return self._wait(backoff=WARMING)
        return self._wait(error.retry_after if isinstance(error, Throttled | ServerError) else 0.0)

    def renewed(self, now: float) -> Command:
        """What was under way is given up, because the path to the server was interrupted and is whole again."""
        self._reset_stream()
        self._attempts = 0
        self.stale_since = now if self.stale_since is None else self.stale_since
        return Wait(SPREAD * self._random())

    def _list(self) -> Command:
        if not self._stream:
            return List()
        self._reset_stream()
        self._initial = True
        return Watch("", True, self._timeout())

    def _watch(self) -> Watch:
        return Watch(self.resource_version, False, self._timeout())

    def _wait(self, at_least: float = 0.0, backoff: Backoff = BACKOFF) -> Wait:
        delay = backoff.using(self._random).delay(self._attempts)
        self._attempts += 1
        return Wait(max(delay, at_least))

    def _timeout(self) -> int:
        return int(SHORTEST + (LONGEST - SHORTEST) * self._random())

    def _reset_stream(self) -> None:
        self._initial = self.closing = self._fruitful = False
        self._failure = None
        self._connected_at = None
        self._incoming = {}
        self._unread = set()

    def _complete(self, resource_version: str, now: float) -> None:
        self.resource_version = resource_version
        self._listed_at = now
        self.synced = True

    def _stale(self, error: str, now: float) -> None:
        self.error = error
        self.stale_since = now if self.stale_since is None else self.stale_since

    def _live(self) -> None:
        self.error = ""
        self.stale_since = None

    def _initial_change(self, event: Change[V]) -> Iterable[Delta[V]]:
        key = event.object.metadata.key
        if event.type == "DELETED":
            self._incoming.pop(key, None)
        else:
            self._incoming[key] = event.object
        return ()

    def _change(self, event: Change[V]) -> Iterable[Delta[V]]:
        metadata = event.object.metadata
        self._fruitful = True
        if metadata.resource_version:
            self.resource_version = metadata.resource_version
        delta = self.store.remove(metadata.key) if event.type == "DELETED" else self.store.put(event.object)
        return () if delta is None else (delta,)

    def _bookmark(self, event: Bookmark, now: float) -> Iterable[Delta[V]]:
        if not self._initial:
            if event.resource_version:
                self.resource_version = event.resource_version
            return ()
        if not event.initial_end:
            # A server that does not know streaming lists ignores what it was asked and watches from now on.
            self.closing = True
            return ()
        incoming, unread = self._incoming, self._unread
        self._initial = False
        self._incoming, self._unread = {}, set()
        self._complete(event.resource_version, now)
        self._live()
        return self.store.replace(incoming, unread)

    def _skipped(self, event: Unreadable) -> Iterable[Delta[V]]:
        if event.key is None:
            return ()
        if self._initial:
            self._unread.add(event.key)
            return ()
        if event.resource_version:
            self.resource_version = event.resource_version
        if event.type == "DELETED":
            delta = self.store.remove(event.key)
            return () if delta is None else (delta,)
        return ()


def is_warming(error: KubeError) -> bool:
    """Tell whether the server refuses because its watch cache of this kind is being filled (429, storage/cacher)."""
    return isinstance(error, Throttled) and "storage is (re)initializing" in error.message


def _from_the_future(error: KubeError) -> bool:
    """Tell whether the server does not know our resource version yet: its data was restored from a backup."""
    if not isinstance(error, ServerError):
        return False
    causes: Any = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )
