"""From the bytes of a watch to typed events: bounded lines, each decoded straight to the view.

Source: Kubernetes API concepts, "Efficient detection of changes", "Watch bookmarks", "Streaming lists".
"""

from __future__ import annotations

from typing import Final, Generic

import attrs
import msgspec

from liqod.kube.cache.store import V
from liqod.kube.errors import ApiError, from_status
from liqod.model.ids import Key
from liqod.model.objects.meta import Object

LONGEST: Final = 8 << 20
"""Bytes of one line. Objects stay under about 1.5 MiB (etcd's limit on a request); JSON escapes make them longer."""

INITIAL_END: Final = "k8s.io/initial-events-end"


class Change(msgspec.Struct, Generic[V]):
    """An object was ADDED, MODIFIED or DELETED."""

    type: str
    object: V


@attrs.frozen
class Bookmark:
    """Everything up to a resource version was sent; ``initial_end`` ends a streaming list."""

    resource_version: str
    initial_end: bool


@attrs.frozen
class Failure:
    """The server ends the watch with an error."""

    error: ApiError


@attrs.frozen
class Unreadable:
    """An object does not fit the view, or a line is no event; ``key`` is None when not even that could be read."""

    type: str
    key: Key | None
    resource_version: str
    why: str


class LineTooLong(Exception):
    """A line exceeds the bound; the rest of the stream is worthless."""


class Lines:
    """Cuts chunks into lines; holds at most one incomplete line of at most ``longest`` bytes."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their ends; raises LineTooLong."""
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


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope)
_object = msgspec.json.Decoder(Object)


class Decoder(Generic[V]):
    """Decodes the lines of a watch on objects of one view."""

    def __init__(self, view: type[V]) -> None:
        self._view = msgspec.json.Decoder(view)
        self._change: msgspec.json.Decoder[Change[V]] = msgspec.json.Decoder(Change[view])  # type: ignore[valid-type]

    def line(self, line: bytes) -> Change[V] | Bookmark | Failure | Unreadable:
        """Return the event of a line; never raises for what a server may send."""
        # The server writes the type first: most lines are changes and are decoded in one pass.
        if not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            try:
                change = self._change.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass
            else:
                if change.type in ("ADDED", "MODIFIED", "DELETED") and change.object.metadata.name:
                    return change
        return self._other(line)

    def object(self, raw: bytes | msgspec.Raw) -> V | Unreadable:
        """Return one object of a list, or why it cannot be read."""
        try:
            return self._view.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _unreadable("ADDED", raw, error)

    def _other(self, line: bytes) -> Bookmark | Failure | Unreadable:
        try:
            envelope = _envelope.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Unreadable("", None, "", f"not an event: {error}")
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


def _unreadable(kind: str, raw: bytes | msgspec.Raw, error: Exception) -> Unreadable:
    try:
        metadata = _object.decode(raw).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreadable(kind, None, "", str(error))
    return Unreadable(kind, metadata.key, metadata.resource_version, str(error))
