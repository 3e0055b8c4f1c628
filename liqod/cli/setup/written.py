"""What ``install`` and ``up`` write to the cluster: each object, and in one line for each kind. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs


@attrs.frozen
class WrittenObject:
    """An object that was written, with its namespace before its name; ``is_new``: it was not there before."""

    kind: str
    name: str
    is_new: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {'installed' if self.is_new else 'changed'}"


Change: TypeAlias = WrittenObject | str
"""An object that was written, or a sentence about something else that was done."""


def brief(changes: Sequence[Change]) -> list[str]:
    """Return a line for each kind of object, and all sentences, in the order in which each of them came first."""
    of_kind: dict[str, list[WrittenObject]] = {}
    for one in changes:
        if isinstance(one, WrittenObject):
            of_kind.setdefault(one.kind, []).append(one)
    lines = [_line(of_kind[one.kind]) if isinstance(one, WrittenObject) else one for one in changes]
    return list(dict.fromkeys(lines))


def _line(same: Sequence[WrittenObject]) -> str:
    if len(same) == 1:
        return str(same[0])
    kind, new = same[0].kind, sum(one.is_new for one in same)
    kinds = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{kinds}: {new} installed, {len(same) - new} changed"
