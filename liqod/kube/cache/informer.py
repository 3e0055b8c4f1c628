"""A cache of one kind that follows the API server and notifies subscribers (client-go: SharedInformer)."""

from __future__ import annotations

import random as _random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic

import attrs
import msgspec
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python import failure

from liqod.flow.observe import Gate, Latest, Subscribers
from liqod.flow.timer import Timer
from liqod.kube.cache.listwatch import (
    CATCH_UP,
    LONGEST_CATCH_UP,
    Command,
    List,
    ListWatch,
    Wait,
    Watch,
    is_warming,
)
from liqod.kube.cache.sizes import Sizes
from liqod.kube.cache.store import Delta, Store, V
from liqod.kube.cache.watch_decoder import LONGEST, Bookmark, Decoder, Failure, Unreadable, WatchEvent, object_size
from liqod.kube.cache.watch_stream import TURN, WatchStream, WatchTimeout
from liqod.kube.client import Client
from liqod.kube.connection.answers import MOST_PARTS, OF_A_PEER
from liqod.kube.connection.cache_quota import CacheUsage, decoded_size
from liqod.kube.connection.kept_caches import CacheContents, Watched
from liqod.kube.errors import Gone, KubeError, Undecodable
from liqod.kube.resources import Resource
from liqod.model.digests import long_digest
from liqod.model.ids import Key
from liqod.model.text import clean_text

REMEMBERED: Final = 256
"""Maximum number of undecodable objects whose keys are kept, so that each is logged once."""

LONGEST_NAME: Final = 320
"""Most characters of an object's key in the log: Kubernetes allows 63 for a namespace and 253 for a name."""

Subscriber = Callable[[Key, V | None, V | None], None]


class Informer(Service, Generic[V]):
    """Caches the objects of a kind (of a namespace, by selectors), decoded to ``view``.

    Subscribers are called with ``(key, old, new)``; reads are local. ``error`` is the message of the last failure,
    empty when live; ``stale_since`` is the clock's time since which the cache may be behind, None when live. ``live``
    is True while the watch follows the server. When the network path recovers, the watch restarts at once. When an
    informer of the same client sees lower versions than before, all list again, at most once in some seconds.
    If the objects exceed the client's quota, the cache keeps its last state, is not live, and lists again after a
    back-off. With ``sizes`` the cache notes how large each object is as the server sends it. Where the client has kept
    what another cache of the same objects held, this one begins with that, and with a watch in place of a list.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        resource: Resource,
        view: type[V],
        clock: IReactorTime,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        sizes: bool = False,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.resource = resource
        self._client = client
        self._view = view
        self._clock = clock
        self._namespace = namespace
        self._selectors = {"labelSelector": labels, "fieldSelector": fields}
        self._decoder = Decoder(view)
        self._store: Store[V] = Store()
        self._machine = ListWatch(self._store, random)
        self._gate = Gate()
        self._subscribers: Subscribers[Subscriber[V]] = Subscribers()
        self._deletion_subscribers: Subscribers[Callable[[Key, V], None]] = Subscribers()
        self._undelivered: deque[Delta[V]] = deque()
        self._delivery = Timer(clock)
        self._catching_up = Timer(clock)
        self._run: Deferred[None] | None = None
        self._request: Deferred[Command] | None = None
        self._command: Command | None = None
        self._unsubscribes: tuple[Callable[[], None], ...] = ()
        self.live: Latest[bool] = Latest(False)
        self._in_trouble = False
        self._known_undecodable: set[str] = set()
        self._held: CacheUsage | None = None
        self._sizes = Sizes() if sizes else None

    def __repr__(self) -> str:
        where = f" in {self._namespace}" if self._namespace else ""
        return f"<Informer {self.resource}{where}: {len(self._store)}{'' if self.synced else ', not synced'}>"

    @property
    def watched(self) -> Watched:
        """What this is a cache of."""
        return Watched(
            server=self._client.config.server,
            resource=self.resource,
            view=self._view,
            namespace=self._namespace,
            labels=self._selectors["labelSelector"],
            fields=self._selectors["fieldSelector"],
        )

    # Reading

    @property
    def synced(self) -> bool:
        """Whether the first list is complete and subscribers were notified of it."""
        return self._gate.is_open

    @property
    def error(self) -> str:
        """The message of the last failure; empty when live."""
        return self._machine.error

    @property
    def stale_since(self) -> float | None:
        """The clock's time since which the cache may be behind; None when live."""
        return self._machine.stale_since

    @property
    def refused_since(self) -> float | None:
        """The clock's time since which the server answers that the objects may not be read (403) or are none (404)."""
        return self._machine.refused_since

    @property
    def went_back(self) -> int:
        """How often the server's resource versions were lower than earlier ones: its etcd was restored."""
        return self._machine.went_back

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when ``synced``."""
        return self._gate.wait()

    @property
    def has_sizes(self) -> bool:
        """Whether the sizes of the objects are noted."""
        return self._sizes is not None

    @property
    def sizes(self) -> Sizes:
        """The sizes of the objects as the server sends them; raise ValueError if they are not noted."""
        if self._sizes is None:
            raise ValueError(f"{self!r} was made without sizes")
        return self._sizes

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Key) -> V | None:
        """Return an object, or None."""
        return self._store.get(key)

    def items(self) -> list[V]:
        """Return all objects."""
        return list(self._store)

    def keys(self) -> list[Key]:
        """Return the keys of all objects."""
        return self._store.keys()

    def add_index(self, name: str, values: Callable[[V], Iterable[Hashable]]) -> None:
        """Index objects by the values that ``values`` returns for each; adding the same function again is a no-op."""
        self._store.add_index(name, values)

    def by_index(self, name: str, value: Hashable) -> list[V]:
        """Return the objects with a value in an index."""
        return self._store.by_index(name, value)

    def subscribe(self, subscriber: Subscriber[V]) -> Callable[[], None]:
        """Call ``subscriber`` for every cached object and then for every change; return the unsubscribe function."""
        while self._undelivered:
            self._notify(self._undelivered.popleft())
        for value in list(self._store):
            self._call(subscriber, Delta(value.metadata.key, None, value))
        return self._subscribers.add(subscriber)

    def subscribe_deletions(self, subscriber: Callable[[Key, V], None]) -> Callable[[], None]:
        """Call ``subscriber`` for every deletion that the server reports, before other subscribers of it.

        Return the function that unsubscribes. It is not called for an object that is merely missing from a new list.
        """
        return self._deletion_subscribers.add(subscriber)

    # Life

    def startService(self) -> None:
        super().startService()
        if self._client.allowance is not None:
            self._held = CacheUsage(self._client.allowance)
            self._decoder.most_parts = MOST_PARTS
        kept = self._client.kept.get(self.watched)
        if kept is not None and not self._machine.synced:
            self._begin_with(kept)
        if self._client.went_back.value > self._machine.went_back:
            self._machine.lowered(self._client.went_back.value, self._clock.seconds())
        # Before anything is asked for: what a list shows then is never older.
        self._machine.newest = max(self._machine.newest, self._client.seen.newest(self.resource))
        self._unsubscribes = (
            self._client.path_since.subscribe(self._path_is_new),
            self._client.went_back.subscribe(self._versions_went_back),
        )
        self._run = Deferred.fromCoroutine(self._follow())
        self._run.addErrback(self._crashed)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._client.seen.note(self.resource, self._machine.newest, went_back=self.went_back > 0)
        if self._client.kept.is_open:
            self._keep_contents()
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        run, self._run = self._run, None
        if run is not None:
            run.cancel()
        if self._held is not None:
            self._held.clear()
        return succeed(None) if run is None else run

    def _begin_with(self, kept: CacheContents) -> None:
        """Begin with what another cache of the same objects held.

        Nothing of it counts where a part of what this one notes is missing, or the server went back since.
        """
        if kept.went_back != self._client.went_back.value:
            return
        tables: list[tuple[CacheUsage | Sizes | None, Mapping[Key, int] | None]] = [
            (self._held, kept.usage),
            (self._sizes, kept.sizes),
        ]
        if any(table is not None and noted is None for table, noted in tables):
            return
        # As in a list that is complete when this cache has caught up: the events until then count into it.
        self._start_list()
        for table, noted in tables:
            if table is not None and not all(table.note(key, size) for key, size in (noted or {}).items()):
                return
        self._undelivered.extend(self._machine.resume(kept))
        # As after a list, never inside the call that starts this service.
        self._delivery.start(0, self._deliver)

    def _keep_contents(self) -> None:
        contents = self._machine.contents()
        if contents is not None:
            sizes = None if self._sizes is None else self._sizes.contents()
            usage = None if self._held is None else self._held.contents()
            self._client.kept.keep(self.watched, attrs.evolve(contents, sizes=sizes, usage=usage))

    def _crashed(self, reason: failure.Failure) -> None:
        if not reason.check(CancelledError):
            self._log.failure("watching {kind} ended", reason, kind=str(self.resource))

    def _path_is_new(self, since: float) -> None:
        """Cancel the current request, unless its watch received data after ``since``."""
        machine = self._machine
        if machine.connected_at is None or machine.last_activity < since:
            self._renew()

    def _compare_versions(self) -> None:
        """Notify the other informers of the client when this one has seen lower versions."""
        counted = self._client.went_back
        if self._machine.went_back <= counted.value:
            return
        self._client.seen.forget()
        if counted.observed(self._machine.went_back, self._clock.seconds()):
            self._log.warn(
                "the resource versions of {kind} went back: everything is listed again", kind=str(self.resource)
            )

    def _versions_went_back(self, count: int) -> None:
        if count <= self._machine.went_back:
            return
        # One that waits to list is not put off again, or a server could keep it from ever listing.
        waits_to_list = isinstance(self._command, Wait) and not self._machine.resource_version
        self._machine.lowered(count, self._client.went_back.list_at)
        if not waits_to_list:
            self._renew()

    def _renew(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.cancel()

    async def _follow(self) -> None:
        command = self._machine.start(self._clock.seconds())
        # A subscriber may stop this service from inside this loop: cancelling a coroutine that runs now has no effect.
        while self.running:
            self._command = command
            request = self._request = Deferred.fromCoroutine(self._step(command))
            try:
                command = await request
            except CancelledError:
                if self._request is request or not self.running:
                    raise
                command = self._machine.renewed(self._clock.seconds())
                self._update_live()
            except Exception:
                # An informer whose loop died would serve stale objects as current ones.
                self._log.failure("watching {kind} failed", kind=str(self.resource))
                command = self._ended(Undecodable("the daemon failed on what the server sent; see the log"))

    async def _step(self, command: Command) -> Command:
        if isinstance(command, Wait):
            await deferLater(self._clock, command.seconds)
            return self._machine.waited()
        if isinstance(command, List):
            return await self._list()
        return await self._watch(command)

    async def _list(self) -> Command:
        # The page size of client-go's reflector and of kubectl. Without a resourceVersion the answer is the most recent
        # state; with "0" it would be any that the server has cached, perhaps older than what we saw (Kubernetes API
        # concepts).
        limit, token = 500, ""
        objects: dict[Key, V] = {}
        unread: set[Key] = set()
        self._start_list()
        while True:
            try:
                page = await self._client.page(
                    self.resource,
                    self._namespace,
                    msgspec.Raw,
                    labels=self._selectors["labelSelector"],
                    fields=self._selectors["fieldSelector"],
                    limit=limit,
                    token=token,
                )
            except Gone as error:
                if not token:
                    return self._ended(error)
                # etcd compacted the token's revision (410 Expired, by default after 5 min): list again without pages.
                objects, unread, token, limit = {}, set(), "", 0
                self._start_list()
                continue
            except KubeError as error:
                return self._ended(error)
            if not await self._read(page.items or (), objects, unread):
                return self._ended(self._quota_exceeded())
            token = page.metadata.continue_
            if not token:
                break
        if self._held is not None:
            self._held.complete()
        if self._sizes is not None:
            self._sizes.complete()
        deltas, command = self._machine.listed(objects, unread, page.metadata.resource_version, self._clock.seconds())
        self._compare_versions()
        self._recovered()
        self._publish(deltas)
        return command

    async def _read(self, raws: Iterable[msgspec.Raw], objects: dict[Key, V], unread: set[Key]) -> bool:
        """Add the objects of a page; return False when the quota is exceeded."""
        started = self._clock.seconds()
        for raw in raws:
            value = self._decoder.object(raw)
            if isinstance(value, Unreadable):
                self._log_undecodable(value)
                key = value.key
                if key is not None:
                    unread.add(key)
            else:
                key = value.metadata.key
                objects[key] = value
            size = memoryview(raw).nbytes
            if key is not None and self._sizes is not None:
                self._sizes.note(key, size)
            if key is not None and self._held is not None and not self._held.note(key, _occupied(size, value)):
                return False
            if self._clock.seconds() - started > TURN:
                await deferLater(self._clock, 0)
                started = self._clock.seconds()
        return True

    async def _watch(self, command: Watch) -> Command:
        stream = WatchStream(self._clock, self._line, LONGEST if self._held is None else OF_A_PEER)
        parameters = {
            **self._selectors,
            # Without bookmarks the version of a quiet kind grows old, until the server answers 410 to the next watch.
            "allowWatchBookmarks": "true",
            "resourceVersion": command.resource_version,
            # The server ends the watch then; by itself it would after 30 to 60 minutes (kube-apiserver
            # --min-request-timeout).
            "timeoutSeconds": str(command.timeout),
        }
        if command.initial:
            self._start_list()
            # Both parameters are required for a streaming list (KEP-3157); the server answers 422 to one alone.
            parameters |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            abort = await self._client.watch(self.resource, self._namespace, parameters, stream)
        except KubeError as refusal:
            stream.end()
            return self._ended(refusal)
        self._machine.connected(self._clock.seconds())
        self._recovered()
        watchdog = WatchTimeout(self._clock, lambda: self._machine.deadline, stream.closed)
        if not self._machine.synced and not command.initial:
            self._await_silence(self._clock.seconds())
        try:
            error = await stream.closed
        finally:
            self._catching_up.cancel()
            watchdog.stop()
            stream.end()
            abort()
        return self._ended(error)

    def _await_silence(self, now: float) -> None:
        """Wait until the watch has brought what happened since the version that it goes on from."""
        begun = self._machine.connected_at
        left = (now if begun is None else begun) + LONGEST_CATCH_UP - now
        self._catching_up.start(max(0.0, min(CATCH_UP, left)), self._caught_up)

    def _caught_up(self) -> None:
        """Count as synced, unless the server said that it does not go on from there."""
        if self._machine.closing:
            return
        for table in (self._held, self._sizes):
            if table is not None:
                table.complete()
        self._machine.caught_up()
        self._recovered()
        self._publish(())

    def _line(self, line: bytes) -> bool:
        event: WatchEvent[V] | Bookmark | Failure | Unreadable = self._decoder.line(line)
        if isinstance(event, Unreadable):
            self._log_undecodable(event)
        if self._sizes is not None and isinstance(event, Bookmark | WatchEvent | Unreadable):
            self._count(self._sizes, event, object_size(line, event))
        if self._held is not None:
            kept = event.object if isinstance(event, WatchEvent) else event
            if not self._count(self._held, event, _occupied(len(line), kept)):
                event = Failure(self._quota_exceeded())
        now = self._clock.seconds()
        deltas = self._machine.received(event, now)
        if self._catching_up.running:
            self._await_silence(now)
        self._compare_versions()
        if self._in_trouble or not self.live.value:
            self._recovered()
        self._publish(deltas)
        return not self._machine.closing

    def _start_list(self) -> None:
        if self._held is not None:
            self._held.begin()
        if self._sizes is not None:
            self._sizes.begin()

    def _count(
        self, table: CacheUsage | Sizes, event: WatchEvent[V] | Bookmark | Failure | Unreadable, size: int
    ) -> bool:
        """Count the object of an event; return whether it may be kept."""
        if isinstance(event, Bookmark):
            if event.initial_end:
                table.complete()
            return True
        key = event.object.metadata.key if isinstance(event, WatchEvent) else getattr(event, "key", None)
        if key is None:
            return True
        if isinstance(event, WatchEvent | Unreadable) and event.type == "DELETED":
            table.drop(key)
            return True
        return table.note(key, size)

    def _quota_exceeded(self) -> Gone:
        """Return the error of an exceeded quota; as Gone it leads to a new list, like an expired resource version."""
        most = self._client.allowance.most if self._client.allowance is not None else 0
        return Gone(
            410, "TooMuch", f"{self._client.config.server} shows more than the {most >> 20} MiB that are kept of it"
        )

    def _ended(self, error: KubeError | None) -> Command:
        before = self._machine.error
        command = self._machine.ended(error, self._clock.seconds())
        after = self._machine.error
        is_news = after not in ("", before) and not (error and is_warming(error))
        self._in_trouble = bool(after) and (self._in_trouble or is_news)
        if is_news:
            self._log.warn("watching {kind} failed: {error}; it is tried again", kind=str(self.resource), error=after)
        self._update_live()
        return command

    def _update_live(self) -> None:
        self.live.set(self._machine.stale_since is None)

    def _recovered(self) -> None:
        if self._in_trouble and not self._machine.error:
            self._in_trouble = False
            self._log.info("watching {kind} works again", kind=str(self.resource))
        self._update_live()

    def _log_undecodable(self, event: Unreadable) -> None:
        # A key may be as long as the server likes. It stays when the object is gone: who makes it again and again would
        # write as many lines to the log.
        digest = long_digest(event.key)
        if digest in self._known_undecodable or len(self._known_undecodable) >= REMEMBERED:
            return
        self._known_undecodable.add(digest)
        self._log.warn(
            "{kind} {name} cannot be read and is left out: {error}",
            kind=str(self.resource),
            name=clean_text(str(event.key or "(an object without a name)"), LONGEST_NAME),
            error=event.why,
        )

    # Notification

    def _publish(self, deltas: Iterable[Delta[V]]) -> None:
        self._undelivered.extend(deltas)
        if not self._delivery.running:
            self._deliver()

    def _deliver(self) -> None:
        started = self._clock.seconds()
        while self._undelivered:
            if self._clock.seconds() - started > TURN:
                self._delivery.start(0, self._deliver)
                return
            self._notify(self._undelivered.popleft())
        if self._machine.synced:
            self._gate.open()

    def _notify(self, delta: Delta[V]) -> None:
        if delta.watched and delta.old is not None:
            for deleted in self._deletion_subscribers:
                deleted(delta.key, delta.old)
        for subscriber in self._subscribers:
            self._call(subscriber, delta)

    def _call(self, subscriber: Subscriber[V], delta: Delta[V]) -> None:
        try:
            subscriber(delta.key, delta.old, delta.new)
        except Exception:
            self._log.failure("a subscriber failed on {kind} {name}", kind=str(self.resource), name=str(delta.key))


def _occupied(sent: int, kept: V | Bookmark | Failure | Unreadable) -> int:
    """Return the bytes that an object counts with: those that were sent, or that it occupies where these are more."""
    return sent if isinstance(kept, Bookmark | Failure | Unreadable) else max(sent, decoded_size(kept))
