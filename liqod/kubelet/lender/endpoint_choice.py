"""Which way to take to a lender's API server: by its address, or over its relay (pure).

Direct is preferred, because it costs nobody anything. It is left when it fails, after some patience, and only for a
relay that answers; and it is taken again only after it answered several times in a row, so that a way that comes and
goes does not make everything that watches the lender begin anew each time. One that has only just been offered has not
come and gone: it is taken when it answers.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

Way = Literal["direct", "relay"]
Setting = Literal["auto", "direct", "relay"]

PATIENCE: Final = 10.0
"""Seconds that a way which has worked may fail before the other one is looked at."""
IMPATIENT: Final = 5.0
"""Seconds between two looks at the other way while the present one fails."""
LOOK_BACK: Final = 60.0
"""Seconds between two looks at the direct way while the relay is in use."""
STEADY: Final = 3
"""Answers in a row after which the direct way is taken again."""


def possible(setting: Setting, *, direct: bool, relay: bool) -> tuple[Way, ...]:
    """Return the ways that both sides allow, the preferred one first: ``direct`` and ``relay`` are the lender's."""
    offered: list[Way] = []
    if direct and setting != "relay":
        offered.append("direct")
    if relay and setting != "direct":
        offered.append("relay")
    return tuple(offered)


@frozen
class Course:
    """How it goes on the way in use: ``proven`` once the lender answered on it, ``ill_since`` when it began to fail.

    ``other`` is the other way, None where there is none; ``answers`` how often it answered in a row when it was looked
    at, the last time at ``looked``; ``untried``: it has been offered since the way in use was, and has not failed.
    """

    way: Way
    other: Way | None
    proven: bool = False
    ill_since: float | None = None
    answers: int = 0
    looked: float = float("-inf")
    untried: bool = False


Step = Literal["stay", "look", "change"]


def plan(course: Course, now: float) -> tuple[Step, float | None]:
    """Return what to do now, and in how many seconds to ask again (None: when something changes)."""
    if course.other is None:
        return "stay", None
    if course.ill_since is not None:
        left = course.ill_since + (PATIENCE if course.proven else 0.0) - now
        if left > 0:
            return "stay", left
        if course.answers and course.looked >= course.ill_since:
            return "change", None
        return _look(course, now, IMPATIENT)
    if course.way == "direct":
        return "stay", None
    if course.answers >= (1 if course.untried else STEADY):
        return "change", None
    return _look(course, now, LOOK_BACK)


def _look(course: Course, now: float, every: float) -> tuple[Step, float | None]:
    left = course.looked + every - now
    return ("look", None) if left <= 0 else ("stay", left)
