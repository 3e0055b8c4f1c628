"""List-and-watch state machine, without I/O or clock: takes events, updates the store, returns the next command.

Lists are streamed (WatchList, KEP-3157) where the server supports it, else read in pages. After a broken watch it
resumes from the last resource version; when that has expired (410), or when a watch of a kind with bookmarks brought
nothing at all, it lists again, and missed deletions are deltas of that list.
Semantics: client-go ``tools/cache/reflector.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Generic

import attrs

from liqod.flow.backoff import Backoff
from liqod.kube.cache.store import Delta, Store, V
from liqod.kube.cache.watch_decoder import Bookmark, Failure, Unreadable, WatchEvent
from liqod.kube.connection.kept_caches import CacheContents
from liqod.kube.connection.seen_versions import revision
from liqod.kube.errors import Forbidden, Gone, Invalid, KubeError, NotFound, ServerError, Throttled, Undecodable
from liqod.model.ids import Key

SILENCE: Final = 70.0
"""Seconds without a line after which a watch counts as broken: the server sends bookmarks about every 60 s."""
HEALTHY: Final = 10.0
"""Seconds after which the end of a watch counts as regular rather than as a failure."""
BRIEF: Final = 0.25
"""Minimum seconds between the starts of two watches. A busy server closes watches of slow readers, whose buffer in its
watch cache is full (``storage/cacher``). A watch that delivered events resumes at once: waiting would increase its lag,
and the server would close it again."""
SHORTEST, LONGEST = 300.0, 600.0
"""Range of ``timeoutSeconds`` of a watch; random, so that watches do not all end together (as client-go does)."""

BACKOFF: Final = Backoff(initial=1.2, factor=2.0, cap=22.5, jitter=1 / 3)
"""0.8 s to 30 s including jitter, the range of client-go's reflector."""
WARMING: Final = Backoff(initial=0.15, factor=2.0, cap=1.0, jitter=1 / 3)
"""Back-off while the API server initializes its watch cache of a kind. That takes 0.1 to 0.2 s; its ``Retry-After`` of
1 s would dominate the start-up time of the daemon."""

_SOON: Final = 5
SPREAD: Final = 0.5
"""Seconds over which the restarts of a server's watches are spread after a network interruption."""
CATCH_UP: Final = 0.25
LONGEST_CATCH_UP: Final = 2.0
"""Seconds without an event, and at most since its start, until a watch that goes on from kept contents has brought what
happened meanwhile: the server sends that at once (or that the version is too old), and nothing marks where it ends."""


@attrs.frozen
class List:
    """Read all objects in pages; report the result with ``listed`` or ``ended``."""


@attrs.frozen
class Watch:
    """Watch from a resource version; with ``initial``, request the existing objects first (``sendInitialEvents``)."""

    resource_version: str
    initial: bool
    timeout: int


@attrs.frozen
class Wait:
    """Wait ``seconds``, then call ``waited``."""

    seconds: float


Command = List | Watch | Wait


class ListWatch(Generic[V]):
    """Keeps a store equal to the server's state and recovers from failures.

    ``synced`` is True once a first list was complete. ``error`` is the message of the last failure, empty when live;
    ``stale_since`` is the time since which the store may be behind, None when live. ``closing`` requests the driver to
    close the watch now. ``went_back`` counts how often the server's resource versions were lower than earlier ones, or
    than ``newest``, which starts as what an earlier list-watch has seen; or than those of another list-watch.
    One that was stopped leaves its ``contents``, from which another can ``resume`` in place of a first list.
    """

    def __init__(self, store: Store[V], random: Callable[[], float], *, stream: bool = True) -> None:
        self.store = store
        self.synced = False
        self.error = ""
        self.stale_since: float | None = None
        self.refused_since: float | None = None
        self.closing = False
        self.went_back = 0
        self.resource_version = ""
        self.newest = 0
        self._random = random
        self._stream = stream
        self._initial = False
        self._fruitful = False
        self._mute = False
        # Kinds that the API server does not keep in its watch cache, such as events, have no bookmarks.
        self._has_bookmarks = False
        self._cut_short = 0
        self._incoming: dict[Key, V] = {}
        self._unread: set[Key] = set()
        self._attempts = 0
        self._lowered = False
        self._resumes = False
        self._list_from = 0.0
        self._connected_at: float | None = None
        self._listed_at: float | None = None
        self._last_activity = 0.0
        self._failure: KubeError | None = None

    @property
    def connected_at(self) -> float | None:
        """The time since which a watch is connected; None without one."""
        return self._connected_at

    @property
    def last_activity(self) -> float:
        """The time at which the server last sent something in a watch."""
        return self._last_activity

    @property
    def deadline(self) -> float:
        """The time at which a silent watch must be aborted."""
        return self._last_activity + SILENCE

    def start(self, now: float) -> Command:
        """Return the first command."""
        self.stale_since = now if self.stale_since is None else self.stale_since
        resumes, self._resumes = self._resumes, False
        return self._watch() if resumes and self.resource_version else self._list()

    def contents(self) -> CacheContents | None:
        """Return what there is to go on from; None before a list was complete, and when everything is to be listed."""
        if not self.synced or not self.resource_version:
            return None
        return CacheContents(
            objects=self.store.contents(),
            resource_version=self.resource_version,
            newest=self.newest,
            went_back=self.went_back,
            has_bookmarks=self._has_bookmarks,
        )

    def resume(self, contents: CacheContents) -> list[Delta[V]]:
        """Begin with the contents of another list-watch of the same objects; return the deltas.

        Call it before ``start``. ``synced`` is True after ``caught_up``, or after a list if the version is too old.
        """
        self.resource_version = contents.resource_version
        self.newest = max(self.newest, contents.newest)
        self.went_back = contents.went_back
        self._has_bookmarks = contents.has_bookmarks
        self._resumes = True
        return self.store.replace(contents.objects)

    def caught_up(self) -> None:
        """Note that what happened since the version of ``resume`` has come."""
        self.synced = True
        self._live()

    def waited(self) -> Command:
        """Return the command after a wait."""
        return self._watch() if self.resource_version else self._list()

    def listed(
        self, objects: Mapping[Key, V], unread: Collection[Key], resource_version: str, now: float
    ) -> tuple[list[Delta[V]], Command]:
        """Store a complete list and return the deltas; ``unread`` holds the keys of undecodable objects."""
        deltas = self.store.replace(objects, unread)
        self._complete(resource_version, now)
        self._live()
        return deltas, self._watch()

    def connected(self, now: float) -> None:
        """Note that the server accepted the watch."""
        self._connected_at = self._last_activity = now
        self._mute = True
        if not self._initial and self.synced:
            self._live()

    def received(self, event: WatchEvent[V] | Bookmark | Failure | Unreadable, now: float) -> Iterable[Delta[V]]:
        """Apply an event; return the changes of the store."""
        self._last_activity = now
        self._mute = False
        if isinstance(event, WatchEvent):
            return self._initial_change(event) if self._initial else self._change(event)
        if isinstance(event, Bookmark):
            return self._bookmark(event, now)
        if isinstance(event, Failure):
            self._failure = event.error
            self.closing = True
            return ()
        return self._skipped(event)

    def ended(self, error: KubeError | None, now: float) -> Command:
        """Return the command after a list or watch ended; ``error`` is None for a regular end of a watch."""
        error = self._failure or error
        plain, initial, fruitful = self.closing, self._initial, self._fruitful
        lived = 0.0 if self._connected_at is None else now - self._connected_at
        self._reset_stream()
        self._note_refusal(error, now)
        if initial and (error is None or isinstance(error, Invalid | Undecodable)):
            # The server rejects streaming lists (422, feature gate WatchList off), closed the stream before the end of
            # the list, or sent an object that is too long for a line: fall back to pages this time, and permanently
            # unless it was a server restart.
            self._cut_short += 1
            self._stream = error is None and not plain and self._cut_short < 3
            return List()
        if error is None:
            if lived < HEALTHY and not fruitful:
                return self._wait()
            self._attempts = 0
            if self._mute and self._has_bookmarks and now >= self.deadline:
                # A server whose etcd was restored sends neither events nor bookmarks before it has reached the version
                # again (apiserver ``storage/cacher/cache_watcher.go``); the list shows the lower one.
                return self._list()
            return self._watch() if lived >= BRIEF else Wait(BRIEF - lived)
        if lived >= HEALTHY:
            self._attempts = 0
        if isinstance(error, Gone | Undecodable):
            # From the same version, what cannot be decoded would come again.
            watched, self.resource_version = bool(self.resource_version), ""
            self._stale(f"everything is listed again: {error}", now)
            # List at once, unless the last list is recent: a server that rejects every version must not be listed in a
            # tight loop.
            fresh = self._listed_at is not None and now - self._listed_at < HEALTHY
            return self._list() if watched and not fresh else self._wait()
        self._stale(str(error), now)
        if is_warming(error) and self._attempts < _SOON:
            return self._wait(backoff=WARMING)
        return self._wait(error.retry_after if isinstance(error, Throttled | ServerError) else 0.0)

    def renewed(self, now: float) -> Command:
        """Return the command after the current request was cancelled: the path recovered, or ``lowered`` was called."""
        self._reset_stream()
        if not self._lowered:
            self._attempts = 0
        self._lowered = False
        self.stale_since = now if self.stale_since is None else self.stale_since
        return Wait(max(0.0, self._list_from - now) + SPREAD * self._random())

    def lowered(self, went_back: int, list_from: float) -> None:
        """Note that another list-watch of the server saw lower versions: what ``renewed`` returns leads to a list.

        It begins at ``list_from`` (time) at the earliest. A watch from a version that the server has reached again goes
        on, and does not say what the restore removed.
        """
        self.went_back, self.newest, self.resource_version = went_back, 0, ""
        self._lowered, self._list_from = True, list_from

    def _list(self) -> Command:
        if not self._stream:
            return List()
        self._reset_stream()
        self._initial = True
        # Without a version, sendInitialEvents begins with the most recent state, read consistently (Kubernetes API
        # concepts, "Streaming lists"; KEP-3157).
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
        version = revision(resource_version)
        if 0 < version < self.newest:
            self.went_back, self.newest = self.went_back + 1, 0
        self.newest = max(self.newest, version)
        self._listed_at = now
        self._lowered = False
        self.synced = True

    def _stale(self, error: str, now: float) -> None:
        self.error = error
        self.stale_since = now if self.stale_since is None else self.stale_since

    def _note_refusal(self, error: KubeError | None, now: float) -> None:
        if not isinstance(error, Forbidden | NotFound):
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = now

    def _live(self) -> None:
        self.error = ""
        self.refused_since = None
        self.stale_since = None

    def _initial_change(self, event: WatchEvent[V]) -> Iterable[Delta[V]]:
        key = event.object.metadata.key
        if event.type == "DELETED":
            self._incoming.pop(key, None)
        else:
            # Nothing is replaced before the bookmark that ends the initial events: an object that has not come yet may
            # exist.
            self._incoming[key] = event.object
        return ()

    def _change(self, event: WatchEvent[V]) -> Iterable[Delta[V]]:
        metadata = event.object.metadata
        self._fruitful = True
        if metadata.resource_version:
            self.resource_version = metadata.resource_version
            self.newest = max(self.newest, revision(metadata.resource_version))
        if event.type != "DELETED":
            delta = self.store.put(event.object)
            return () if delta is None else (delta,)
        return self._removed(metadata.key)

    def _removed(self, key: Key) -> Iterable[Delta[V]]:
        delta = self.store.remove(key)
        # A DELETED event is evidence of the deletion; an object that is missing from a new list is not.
        return () if delta is None else (delta._replace(watched=True),)

    def _bookmark(self, event: Bookmark, now: float) -> Iterable[Delta[V]]:
        self._has_bookmarks = True
        if not self._initial:
            if event.resource_version:
                self.resource_version = event.resource_version
            return ()
        if not event.initial_end:
            # A server without WatchList (before 1.27) ignores the unknown parameter and starts a plain watch.
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
        return self._removed(event.key) if event.type == "DELETED" else ()


def is_warming(error: KubeError) -> bool:
    """Return whether the server refuses because it initializes its watch cache of this kind (429, storage/cacher)."""
    return isinstance(error, Throttled) and "storage is (re)initializing" in error.message
