"""Watch streams: the changes of a kind as lines of JSON, from some version on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import attrs
import msgspec
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import Json, Kind
from kubesandbox.store.listing import Chooser, encode_stored
from kubesandbox.store.state import Change, Expired, Store, Stored

BOOKMARK_SECONDS: Final = 60.0
MAX_PENDING: Final = 50_000
"""Lines kept for a watcher that does not read; more ends its stream, and the client lists again."""

Encoder = Callable[[Kind, Stored], bytes]


class Sink(Protocol):
    """Where the lines go: a twisted.web request."""

    def write(self, data: bytes) -> object: ...
    def finish(self) -> object: ...
    def registerProducer(self, producer: Any, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


@attrs.frozen
class WatchOptions:
    """``version`` None starts with the present objects; ``initial_end`` asks for the bookmark that ends those.

    Later events and bookmarks of ``version`` or lower are left out, also where the store has not reached it yet
    (apiserver ``storage/cacher/cache_watcher.go``).
    """

    namespace: str
    chooses: Chooser
    version: int | None
    bookmarks: bool = attrs.field(default=False, kw_only=True)
    initial_end: bool = attrs.field(default=False, kw_only=True)
    seconds: float = attrs.field(default=1800.0, kw_only=True)
    encode: Encoder = attrs.field(default=encode_stored, kw_only=True)


def event_of(change: Change, options: WatchOptions) -> tuple[str, Stored] | None:
    """Return the event type and object of a change for a watcher; None if the selector does not match.

    An object that starts to match the selector is ADDED, one that stops matching is DELETED.
    """
    if options.namespace and change.key.namespace != options.namespace:
        return None
    chooses = options.chooses
    before = change.old is not None and (chooses is None or chooses(change.old.object))
    after = not change.gone and (chooses is None or chooses(change.new.object))
    if change.gone:
        return ("DELETED", change.new) if before else None
    if after:
        return ("MODIFIED" if before else "ADDED", change.new)
    if before and change.old is not None:
        return "DELETED", _restamped(change.old, change.version)
    return None


def _restamped(old: Stored, version: int) -> Stored:
    return Stored(old.object | {"metadata": old.object["metadata"] | {"resourceVersion": str(version)}}, version)


@implementer(IPushProducer)
class WatchStream:
    """One watcher; it ends after its time-out, when its client disconnects, or when the client is too slow."""

    def __init__(self, clock: IReactorTime, store: Store, kind: Kind, options: WatchOptions, sink: Sink) -> None:
        self._clock = clock
        self._store = store
        self._kind = kind
        self._options = options
        self._sink = sink
        self._pending: deque[bytes] = deque()
        self._paused = False
        self._open = True
        self._floor = store.version if options.version is None else options.version
        self._timers: list[IDelayedCall] = []
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Send the initial events, then subscribe to changes."""
        self._sink.registerProducer(self, True)
        try:
            for line in self._initial():
                self._send(line)
        except Expired:
            oldest = self._store.version
            gone = statuses.expired(f"too old resource version: {self._options.version} ({oldest})")
            self._send(_line("ERROR", msgspec.json.encode(gone.body())))
            self.stop()
            return
        if not self._open:
            return
        self._unsubscribe = self._store.subscribe(self._kind.resource, self._changed)
        self._timers.append(self._clock.callLater(self._options.seconds, self.stop))
        if self._options.bookmarks:
            first = min(BOOKMARK_SECONDS, max(self._options.seconds - 2, 0.5))
            self._timers.append(self._clock.callLater(first, self._bookmark))

    def stop(self) -> None:
        """End the stream normally, as at its time-out."""
        if self._open:
            self.abandon()
            for line in self._pending:
                self._sink.write(line)
            self._sink.unregisterProducer()
            self._sink.finish()

    def abandon(self) -> None:
        """Unsubscribe after the client disconnected."""
        self._open = False
        self._unsubscribe()
        for timer in self._timers:
            if timer.active():
                timer.cancel()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        while self._pending and not self._paused and self._open:
            self._sink.write(self._pending.popleft())

    def stopProducing(self) -> None:
        self.abandon()

    def _initial(self) -> Iterator[bytes]:
        options = self._options
        if options.version is None:
            for stored in self._store.items(self._kind.resource, options.namespace):
                if options.chooses is None or options.chooses(stored.object):
                    yield _line("ADDED", options.encode(self._kind, stored))
            if options.initial_end:
                yield self._bookmark_line({"k8s.io/initial-events-end": "true"})
            return
        for change in self._store.changes_since(self._kind.resource, options.version):
            if (event := event_of(change, options)) is not None:
                yield _line(event[0], options.encode(self._kind, event[1]))

    def _changed(self, change: Change) -> None:
        if change.version <= self._floor:
            return
        if (event := event_of(change, self._options)) is not None:
            self._send(_line(event[0], self._options.encode(self._kind, event[1])))

    def _bookmark(self) -> None:
        if self._store.version > self._floor:
            self._send(self._bookmark_line({}))
        self._timers = [timer for timer in self._timers if timer.active()]
        self._timers.append(self._clock.callLater(BOOKMARK_SECONDS, self._bookmark))

    def _bookmark_line(self, annotations: Json) -> bytes:
        metadata: Json = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        body = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        return _line("BOOKMARK", msgspec.json.encode(body))

    def _send(self, line: bytes) -> None:
        if not self._open:
            return
        if not self._paused:
            self._sink.write(line)
        elif len(self._pending) < MAX_PENDING:
            self._pending.append(line)
        else:
            self._pending.clear()
            self.stop()


def _line(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"
