"""Decodes the bytes of a watch to typed events: bounded lines, each decoded directly to the view.

Source: Kubernetes API concepts, "Efficient detection of changes", "Watch bookmarks", "Streaming lists".
"""

from __future__ import annotations

from typing import Any, Final, Generic

import attrs
import msgspec

from liqod.kube.cache.store import V
from liqod.kube.errors import ApiError, from_status
from liqod.kube.nesting import count_parts, shallow
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, View, number

LONGEST: Final = 16 << 20
"""Maximum bytes of one line: etcd limits a request to 1.5 MiB (``--max-request-bytes``), and Go writes one byte of it,
such as ``<``, as six in JSON."""

INITIAL_END: Final = "k8s.io/initial-events-end"


class WatchEvent(msgspec.Struct, Generic[V]):
    """An object was ADDED, MODIFIED or DELETED."""

    type: str
    object: V


@attrs.frozen
class Bookmark:
    """All changes up to a resource version were sent; ``initial_end`` marks the end of a streaming list."""

    resource_version: str
    initial_end: bool


@attrs.frozen
class Failure:
    """The server closes the watch with an error."""

    error: ApiError


@attrs.frozen
class Unreadable:
    """An object does not match the view, or a line is no event; ``key`` is None if the metadata is unreadable too."""

    type: str
    key: Key | None
    resource_version: str
    why: str


def object_size(line: bytes, event: WatchEvent[Any] | Bookmark | Unreadable) -> int:
    """Return the bytes of the object in the line of an event: as many as it has as an item of a list."""
    kind = "BOOKMARK" if isinstance(event, Bookmark) else event.type
    return max(0, len(line) - len('{"type":"","object":}') - len(kind))


class LineTooLong(Exception):
    """A line exceeds the bound; the rest of the stream cannot be parsed."""


class Lines:
    """Splits chunks into lines; buffers at most one incomplete line of at most ``longest`` bytes."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without line ends; raise LineTooLong."""
        first, *rest = data.split(b"\n")
        self._size += len(first)
        if self._size > self._longest:
            raise LineTooLong(f"a line of more than {self._longest} bytes in a watch")
        if first:
            self._partial.append(first)
        if not rest:
            return []
        lines = [b"".join(self._partial), *rest[:-1]]
        last = rest[-1]
        self._partial = [last] if last else []
        self._size = len(last)
        if self._size > self._longest:
            raise LineTooLong(f"a line of more than {self._longest} bytes in a watch")
        return [line for line in lines if line]


class _Name(View, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Named(View, frozen=True):
    metadata: _Name = _Name()


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope)
_object = msgspec.json.Decoder(Object)
_named = msgspec.json.Decoder(_Named)


class Decoder(Generic[V]):
    """Decodes watch lines and list items to one view; what has more parts than ``most_parts`` is Unreadable."""

    def __init__(self, view: type[V], most_parts: int | None = None) -> None:
        self.most_parts = most_parts
        self._view = msgspec.json.Decoder(view, float_hook=number)
        self._change: msgspec.json.Decoder[WatchEvent[V]] = msgspec.json.Decoder(WatchEvent[view], float_hook=number)  # type: ignore[valid-type]

    def line(self, line: bytes) -> WatchEvent[V] | Bookmark | Failure | Unreadable:
        """Return the event of a line; malformed input is returned as Unreadable, not raised."""
        try:
            if (why := self._too_many(line)) is not None:
                envelope = _envelope.decode(line)
                return _unreadable(envelope.type, envelope.object, why)
            # The API server writes ``type`` first (metav1.WatchEvent): most lines are changes, decoded in one pass.
            if not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
                try:
                    change = self._change.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    pass
                else:
                    if change.type in ("ADDED", "MODIFIED", "DELETED") and change.object.metadata.name:
                        return change
            return self._other(line)
        except RecursionError as error:
            return _nested(line, error)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Unreadable("", None, "", f"not an event: {error}")

    def object(self, raw: bytes | msgspec.Raw) -> V | Unreadable:
        """Return one object of a list, or Unreadable with the cause."""
        if (why := self._too_many(raw)) is not None:
            return _unreadable("ADDED", raw, why)
        try:
            return self._view.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _unreadable("ADDED", raw, error)

    def _too_many(self, data: bytes | msgspec.Raw) -> ValueError | None:
        if self.most_parts is None or (parts := count_parts(bytes(data))) <= self.most_parts:
            return None
        return ValueError(f"some {parts} parts in it: more than {self.most_parts} are not read")

    def _other(self, line: bytes) -> Bookmark | Failure | Unreadable:
        envelope = _envelope.decode(line)
        if envelope.type == "ERROR":
            return Failure(from_status(0, bytes(envelope.object)))
        if envelope.type == "BOOKMARK":
            try:
                metadata = _object.decode(envelope.object).metadata
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                return Unreadable("BOOKMARK", None, "", str(error))
            return Bookmark(metadata.resource_version, metadata.annotations.get(INITIAL_END) == "true")
        try:
            self._view.decode(envelope.object)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _unreadable(envelope.type, envelope.object, error)
        return Unreadable(envelope.type, None, "", f"an event of type {envelope.type[:20]!r} without a named object")


def _nested(line: bytes, error: RecursionError) -> Unreadable:
    try:
        envelope = _envelope.decode(shallow(line))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreadable("", None, "", str(error))
    return _unreadable(envelope.type, envelope.object, error)


def _unreadable(kind: str, raw: bytes | msgspec.Raw, error: Exception) -> Unreadable:
    try:
        metadata = _named.decode(raw).metadata
    except RecursionError:
        return _unreadable(kind, shallow(bytes(raw)), error)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreadable(kind, None, "", str(error))
    return Unreadable(kind, Key(metadata.namespace, metadata.name), metadata.resource_version, str(error))
