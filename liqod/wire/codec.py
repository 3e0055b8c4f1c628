"""Payloads <-> events: msgpack with limits, then typed structs, then bounds. The only module that imports msgpack.

A payload is an array ``[number, field, ...]``. Unknown trailing fields are ignored; an unknown number becomes an
``UnknownEvent``. Everything else that is not valid is a RemoteProtocolError: no untyped value is returned.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgpack
import msgspec

from liqod.wire.check import MAX_MINOR, BadField, check, plain
from liqod.wire.errors import LocalProtocolError, RemoteProtocolError
from liqod.wire.events import BY_NUMBER, Event
from liqod.wire.framing import FrameLimits

MAX_NUMBER: Final = MAX_MINOR


@attrs.frozen
class UnknownEvent:
    """An event whose number this release does not know; the owner answers ``Unsupported`` and the session continues."""

    number: int


def decode(payload: bytes, limits: FrameLimits) -> Event | UnknownEvent:
    """Return the event in a payload; raises RemoteProtocolError, and nothing else, for anything that is not one."""
    try:
        fields = msgpack.unpackb(
            payload,
            raw=False,
            use_list=False,
            strict_map_key=True,
            object_pairs_hook=_without_duplicates,
            max_str_len=limits.string,
            max_bin_len=0,
            max_ext_len=0,
            max_array_len=limits.items,
            max_map_len=limits.items,
        )
    except (ValueError, TypeError, RecursionError) as error:
        # The message of msgpack's errors may quote the payload, and with it secrets: it is not passed on.
        raise RemoteProtocolError(
            "NotMsgpack", f"a frame of {len(payload)} bytes is not msgpack within limits"
        ) from error
    if not isinstance(fields, tuple) or not fields:
        raise RemoteProtocolError("NotAnEvent", "a frame holds no array with a number first")
    number = fields[0]
    if type(number) is not int or not 0 < number <= MAX_NUMBER:
        raise RemoteProtocolError("NotAnEvent", f"a frame does not begin with a number from 1 to {MAX_NUMBER}")
    if _depth_passes(fields, limits.depth):
        raise RemoteProtocolError("TooDeep", f"a frame nests deeper than {limits.depth} levels")
    kind = BY_NUMBER.get(number)
    if kind is None:
        return UnknownEvent(number)
    try:
        event = msgspec.convert(fields[1:], kind, strict=True)
        check(event)
    except (msgspec.ValidationError, BadField) as error:
        raise RemoteProtocolError("BadField", f"{kind.__name__}: {error}") from error
    return event


def encode(event: Event, limits: FrameLimits) -> bytes:
    """Return the payload of an event; raises LocalProtocolError when a peer with the same limits would refuse it.

    Text for people is cleaned first; nothing else is changed.
    """
    message: Any = getattr(event, "message", None)
    if isinstance(message, str):
        event = msgspec.structs.replace(event, message=plain(message))
    try:
        payload: bytes = msgpack.packb([event.number, *msgspec.to_builtins(event)], use_bin_type=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise LocalProtocolError(f"{type(event).__name__} cannot be encoded: {error}") from error
    if len(payload) > limits.frame:
        raise LocalProtocolError(f"{type(event).__name__} takes {len(payload)} bytes; {limits.frame} are allowed")
    try:
        decode(payload, limits)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"no peer would accept this: {error.message}") from error
    return payload


def _depth_passes(value: object, limit: int) -> bool:
    """Return whether containers nest deeper than a limit; works level by level, so that depth costs no stack."""
    level: list[Any] = [value]
    for _ in range(limit):
        deeper: list[Any] = []
        for container in level:
            members = container.values() if isinstance(container, dict) else container
            deeper += [member for member in members if isinstance(member, tuple | dict)]
        if not deeper:
            return False
        level = deeper
    return True


def _without_duplicates(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map; raises ValueError for a duplicate key, of which other decoders may take another value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map holds a key twice")
    return found
