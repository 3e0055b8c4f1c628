"""Times of the week, such as ``Mon-Fri 08:00-18:00``, in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY: Final = 1440
_WINDOW = re.compile(r"(?:(\w{3})(?:-(\w{3}))?\s+)?(\d\d):(\d\d)-(\d\d):(\d\d)")
_FIRST_DAY: Final = 3
"""The first of January 1970 was a Thursday."""


@attrs.frozen
class Window:
    """From one minute of certain days (0: Monday) to another; an end before the start is on the next day."""

    days: frozenset[int]
    start: int
    end: int


def parse(text: str) -> Window:
    """Return a window written as ``[Day[-Day]] HH:MM-HH:MM``; raises ValueError with what is allowed."""
    found = _WINDOW.fullmatch(text.strip())
    if found is not None:
        first, last = (found[1] or "Mon").title(), (found[2] or found[1] or "Sun").title()
        start, end = int(found[3]) * 60 + int(found[4]), int(found[5]) * 60 + int(found[6])
        minutes = int(found[4]) < 60 and int(found[6]) < 60
        if first in DAYS and last in DAYS and minutes and start < DAY and 0 < end <= DAY and start != end:
            begin, count = DAYS.index(first), (DAYS.index(last) - DAYS.index(first)) % 7 + 1
            return Window(frozenset((begin + offset) % 7 for offset in range(count)), start, end)
    raise ValueError(f"{text[:80]!r} is not a time of the week such as 'Mon-Fri 08:00-18:00' or '22:00-06:00' (UTC)")


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Return whether a moment (seconds since 1970) lies in one of the windows; without any it always does."""
    if not windows:
        return True
    day, minute = divmod(int(now // 60), DAY)
    weekday = (day + _FIRST_DAY) % 7
    return any(_contains(window, weekday, minute) for window in windows)


def until_change(windows: Sequence[Window], now: float) -> float | None:
    """Return the seconds until a window starts or ends, None without windows."""
    day, second = divmod(now, DAY * 60)
    weekday = (int(day) + _FIRST_DAY) % 7
    moments = []
    for window in windows:
        for offset in range(-1, 9):
            if (weekday + offset) % 7 in window.days:
                end = window.end if window.end > window.start else window.end + DAY
                moments += [(offset * DAY + window.start) * 60 - second, (offset * DAY + end) * 60 - second]
    return min((moment for moment in moments if moment > 0), default=None)


def _contains(window: Window, weekday: int, minute: int) -> bool:
    if window.start < window.end:
        return weekday in window.days and window.start <= minute < window.end
    return (weekday in window.days and minute >= window.start) or (
        (weekday - 1) % 7 in window.days and minute < window.end
    )
