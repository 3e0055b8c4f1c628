"""Makes terminal transcripts that are the same each time: what differs from run to run is replaced. Pure.

Times, ages, the random ends of names, addresses of pods and places of files are replaced; tables are laid out again for
the cells that are in them then. Keys and IDs of clusters have to be the same beforehand: words of keys are folded by
their lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from tests.real.terminal import ROWS, folded

DATE: Final = "2026-01-01T12:00:00Z"
LENGTH: Final = "… "
"""Stands for a number of seconds or milliseconds."""
AGE: Final = "1m"
ENDS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of the ends of generated names (Kubernetes, apimachinery util/rand)."""
HEADING: Final = re.compile(r"^[A-Z][A-Z0-9()-]*(?: [A-Z0-9()-]+)*(?: {2,}[A-Z][A-Z0-9()-]*(?: [A-Z0-9()-]+)*)+$")
"""The first line of a table: headings in capitals, two spaces or more between them."""
INDENT: Final = "    "
BEGIN: Final = "<!-- What follows is written by tests.real.test_first_minutes; nobody edits it. -->"

_DATES: Final = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
_LENGTHS: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?=(?:ms|s|seconds|min)\b)")
_PODS: Final = re.compile(rf"\b([a-z][a-z0-9-]*?)-([{ENDS}]{{8,10}})-([{ENDS}]{{5}})\b")
_UIDS: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_ADDRESSES: Final = re.compile(r"\b(10|172|192|240)\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\b(?!/)")


_TOKENS: Final = re.compile(r"\bliqo1\.[\w-]+")
_WAITING: Final = re.compile(r"(?m)^(ready: .*\n)(?:  .*\n)*(  .*\n)")


@frozen
class Step:
    """One line that a user types, at one cluster, and what it printed; ``text`` stands before it."""

    prompt: str
    typed: str
    printed: str
    text: str = ""


@define
class Names:
    """Gives what differs from run to run a name that does not, by the order in which it is first seen.

    ``kept`` are texts that stay: IDs and addresses that are the same each time. ``places`` are paths and what stands
    for them.
    """

    kept: Sequence[str] = ()
    places: Mapping[str, str] = field(factory=dict)
    _known: dict[tuple[str, str], str] = field(factory=dict)

    def __call__(self, text: str) -> str:
        """Return a text without what differs; the length of a line may be another one then."""
        for place in sorted(self.places, key=len, reverse=True):
            text = text.replace(place, self.places[place])
        text = _TOKENS.sub("liqo1.…", text)
        text = _DATES.sub(DATE, text)
        text = _PODS.sub(self._pod, text)
        text = _UIDS.sub(self._uid, text)
        text = _ADDRESSES.sub(self._address, text)
        return _LENGTHS.sub(LENGTH, text)

    def _named(self, kind: str, name: str, make: Callable[[int], str]) -> str:
        key = (kind, name)
        if key not in self._known:
            self._known[key] = make(sum(known == kind for known, _ in self._known))
        return self._known[key]

    def _pod(self, found: re.Match[str]) -> str:
        whole = found[0]
        if whole in self.kept:
            return whole
        owner = self._named("owner", found[2], lambda number: f"{ENDS[number % len(ENDS)]}" * len(found[2]))
        pod = self._named(f"pod of {found[2]}", found[3], lambda number: f"{ENDS[number % len(ENDS)]}" * 5)
        return f"{found[1]}-{owner}-{pod}"

    def _uid(self, found: re.Match[str]) -> str:
        if found[0] in self.kept:
            return found[0]
        return self._named("uid", found[0], lambda number: f"00000000-0000-4000-8000-{number:012d}")

    def _address(self, found: re.Match[str]) -> str:
        if found[0] in self.kept:
            return found[0]
        network = f"{found[1]}.{found[2]}.{found[3]}"
        return self._named(f"address in {network}", found[0], lambda number: f"{network}.{number + 2}")


def settled(text: str) -> str:
    """Return what ``up`` printed with the last of what the daemon said while it started: how much it says differs."""
    return _WAITING.sub(r"\1\2", text)


def normalized(text: str, names: Names) -> str:
    """Return a plain text of a terminal in the form in which it is kept: its tables laid out for what is in them."""
    lines = text.split("\n")
    found: list[str] = []
    while lines:
        line = lines.pop(0)
        if HEADING.match(line):
            rows, starts = [line], columns(line)
            beneath: list[list[str]] = [[]]
            while lines and (is_row(lines[0], starts) or lines[0].startswith(INDENT)):
                if lines[0].startswith(INDENT):
                    beneath[-1].append(names(lines.pop(0)))
                else:
                    rows.append(lines.pop(0))
                    beneath.append([])
            for row, notes in zip(table(rows, starts, names), beneath, strict=True):
                found += [row, *notes]
        else:
            found.append(names(line))
    return "\n".join(found)


def columns(heading: str) -> list[int]:
    """Return where the columns of a table begin."""
    return [0, *(match.end() for match in re.finditer(r" {2,}", heading))]


def is_row(line: str, starts: Sequence[int]) -> bool:
    """Return whether a line is a row: it has a space before each column, and two somewhere; no sentence has."""
    if not line or line[0] == " " or "  " not in line or HEADING.match(line):
        return False
    return all(start >= len(line) or line[start - 1] == " " for start in starts[1:])


def table(rows: Sequence[str], starts: Sequence[int], names: Names) -> list[str]:
    """Return the lines of a table with its cells replaced; the first row is the heading."""
    ends = [*starts[1:], max(map(len, rows)) + 1]
    cells = [[row[start:end].strip() for start, end in zip(starts, ends, strict=True)] for row in rows]
    was = [list(row) for row in cells]
    heading = cells[0]
    for row in cells[1:]:
        for number, cell in enumerate(row):
            row[number] = AGE if heading[number] in ("AGE", "LAST SEEN") and cell else names(cell)
    gap = min((starts[n + 1] - starts[n] - len(row[n]) for row in was for n in range(len(starts) - 1)), default=2)
    gap = 3 if gap >= 3 else 2
    widths = [max(len(row[number]) for row in cells) for number in range(len(starts))]
    return [
        (" " * gap).join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def page(head: str, steps: Sequence[Step], names: Names) -> str:
    """Return the page: its beginning, and every step with what it printed."""
    parts = [head.partition(BEGIN)[0].rstrip("\n"), "", BEGIN, ""]
    for step in steps:
        if step.text:
            parts += [step.text, ""]
        parts.append(f"{INDENT}{step.prompt}$ {names(step.typed)}")
        if step.printed:
            lines = folded(normalized(step.printed, names))
            parts += [f"{INDENT}{line}".rstrip() for line in lines]
            # One row is that of the next prompt.
            if (beyond := len(lines) - (ROWS - 1)) > 0:
                parts += ["", f"These are {len(lines)} lines: the first {beyond} scrolled off the screen."]
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"
