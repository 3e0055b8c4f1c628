"""One line of JSON for each event of the log, with fields of stable names (docs/logging.md). Pure."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from typing import Final

from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

from liqod.audit.events import LOGGER as AUDIT_LOG
from liqod.model.text import ELLIPSIS
from liqod.model.timestamps import from_epoch, rfc3339_micro

MAX_LINE: Final = 16 * 1024
"""Bytes of a line at most, with its line feed: container runtimes cut longer ones (containerd, CRI-O and Docker)."""
MAX_MESSAGE: Final = 3 * 1024
MAX_FIELD: Final = 1024
MAX_TRACEBACK: Final = 6 * 1024
"""Bytes of one value at most, as JSON writes it; of a traceback the end is kept, which has the error."""

OURS: Final = "liqod."
"""How the loggers begin whose events have fields. What is known of others' events is in their text alone."""
RESERVED: Final = ("time", "level", "component", "message", "traceback")
"""Names that no field of an event has."""
LEGACY: Final = "log_legacy"
"""The logger that Twisted names for events of its older log, ``twisted.python.log``."""

_AT: Final = re.compile(r"(?: object| instance)? at 0x[0-9a-fA-F]+")


def json_line(event: LogEvent) -> str:
    """Return an event as one line of JSON in ASCII, with its line feed, of at most ``MAX_LINE`` bytes; never raises."""
    try:
        return _encode(_members(event))
    except Exception as error:
        lost = {"time": _time(event.get("log_time")), "level": "error", "component": __name__}
        return _encode([*lost.items(), ("message", f"a line is lost: {type(error).__name__}")])


def plain(value: object) -> str | int | float | bool:
    """Return a value as JSON has it: numbers as they are, all else as text, and never as ``repr`` shows it."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _clean(_text(value))


def _encode(members: Iterable[tuple[str, object]]) -> str:
    written: list[str] = []
    left = MAX_LINE - len("{}\n")
    for name, value in dict(members).items():
        member = f"{json.dumps(name)}:{json.dumps(value)}"
        if len(member) + 1 <= left:
            written.append(member)
            left -= len(member) + 1
    return f"{{{','.join(written)}}}\n"


def _members(event: LogEvent) -> Iterator[tuple[str, object]]:
    component = str(event.get("log_namespace") or "")
    failure = event.get("failure" if component == LEGACY else "log_failure")
    text = _message(event, component, failure)
    yield "time", _time(event.get("log_time"))
    yield "level", str(getattr(event.get("log_level"), "name", "info"))
    yield "component", _clip("twisted" if component == LEGACY else component, MAX_FIELD)
    yield "message", _clip(str(event.get("type")) if component == AUDIT_LOG else text, MAX_MESSAGE)
    if isinstance(failure, Failure):
        yield "error", _clip(_clean(_text(failure)), MAX_FIELD)
        yield "traceback", _clip(_traceback(failure), MAX_TRACEBACK, end=True)
    if not component.startswith(OURS):
        return
    for name, given in event.items():
        if given is None or (isinstance(given, str) and not given) or name.startswith("log_") or name in RESERVED:
            continue
        value = plain(given)
        # Where the text is one field alone, it is not written twice.
        if value != text:
            yield name, _clip(value, MAX_FIELD) if isinstance(value, str) else value


def _message(event: LogEvent, component: str, failure: object) -> str:
    if component == LEGACY and isinstance(failure, Failure):
        # log_text has the traceback as well.
        return _clean(str(event.get("why") or "Unhandled Error"))
    return _clean(formatEvent(event))


def _time(seconds: object) -> str:
    try:
        return rfc3339_micro(from_epoch(seconds if isinstance(seconds, int | float) else 0.0))
    except (ValueError, OverflowError, OSError):  # no date of the calendar: datetime.fromtimestamp
        return rfc3339_micro(from_epoch(0.0))


def _text(value: object) -> str:
    try:
        if isinstance(value, Failure):
            value = value.value
        if isinstance(value, BaseException):
            return str(value) or type(value).__name__
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, datetime):
            return rfc3339_micro(value)
        if isinstance(value, list | tuple | set | frozenset) and type(value).__str__ is object.__str__:
            return ", ".join(str(plain(one)) for one in value)
        # object's own __str__ is repr.
        has_text = isinstance(value, float) or type(value).__str__ is not object.__str__
        return str(value) if has_text else type(value).__name__
    except Exception:
        return type(value).__name__


def _traceback(failure: Failure) -> str:
    try:
        return _clean(failure.getTraceback())
    except Exception:
        return ""


def _clean(text: str) -> str:
    """Leave out addresses in memory, and lone surrogates, which a strict reader of JSON refuses."""
    return _AT.sub("", text).encode("utf-8", "replace").decode()


def _clip(text: str, limit: int, *, end: bool = False) -> str:
    """Return the beginning of a text, or its end, that takes at most ``limit`` bytes in JSON."""
    near = text[-limit:] if end else text[:limit]
    if len(near) == len(text) and len(json.dumps(text)) <= limit:
        return text
    room = limit - len(json.dumps(ELLIPSIS))
    if end:
        return ELLIPSIS + near[len(near) - _fitting(near[::-1], room) :]
    return near[: _fitting(near, room)] + ELLIPSIS


def _fitting(text: str, limit: int) -> int:
    return bisect_right(range(1, len(text) + 1), limit, key=lambda count: len(json.dumps(text[:count])))
