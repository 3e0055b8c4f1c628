"""Lays out tables for a terminal of any width; no character of a cell is ever lost. Pure."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from liqod.cli.console.render import UNKNOWN, Row, cell

GAP: Final = 2
"""Spaces between two columns."""
INDENT: Final = 4
"""Spaces before a line beneath its row."""
FOLDED: Final = 14
"""Columns to which a column may be narrowed before the table becomes a list of records."""
NARROW: Final = 36
"""Terminals below this width show a heading on a line of its own."""
FILLED: Final = 48
"""Columns that a column is filled up to where lines may have any length: a longer cell moves the rest of its row."""
STYLES: Final = {
    **dict.fromkeys(("Ready", "Accepted", "Running", "leading", "Authenticated", "Offered", "good", "yes"), "green"),
    **dict.fromkeys(("TrustPending", "Pending", "Suspect", "Connecting", "warning", "Ready,cordoned"), "yellow"),
    **dict.fromkeys(("Refused", "Lost", "Failed", "bad", "error", "NotReady"), "red"),
}

Line = list[tuple[str, str]]
"""The parts of a line, each with its style."""


def layout(
    rows: Sequence[Row], columns: Mapping[str, str], width: int | None, beneath: Sequence[str] = ()
) -> list[Line]:
    """Return the lines of a table; ``columns`` maps the key of a row to its heading, in order.

    ``width`` None is unlimited. Where the table does not fit, the columns in ``beneath`` go below their row, then wide
    columns are folded, and on a terminal that is too narrow for that each row becomes a record of its own.
    """
    cells = [{key: cell(row.get(key)) for key in columns} for row in rows]
    natural = {key: max([display_width(columns[key]), *(display_width(one[key]) for one in cells)]) for key in columns}
    if width is None:
        filled = {key: min(natural[key], max(FILLED, display_width(columns[key]))) for key in columns}
        return _aligned(cells, columns, filled, folds=False)
    if _total(natural.values()) <= width:
        return _aligned(cells, columns, natural)
    below = [key for key in columns if key in beneath]
    across = {key: heading for key, heading in columns.items() if key not in beneath}
    widths = _narrowed({key: natural[key] for key in across}, across, width)
    if widths is None or width < NARROW:
        return _records(cells, columns, width)
    lines = _aligned([], across, widths)
    for one in cells:
        lines += _aligned([one], across, widths, heading=False)
        for key in below:
            if one[key] != UNKNOWN:
                text = one[key] if key == "why" else f"{columns[key].lower()}: {one[key]}"
                lines += [[(" " * INDENT + part, "")] for part in fold(text, width - INDENT)]
    return lines


def display_width(text: str) -> int:
    """Return how many columns a terminal needs for a text (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) != 0 for character in text)


def fold(text: str, width: int) -> list[str]:
    """Return a text in lines of at most ``width`` columns, broken at spaces and after commas where there are any."""
    if display_width(text) <= width:
        return [text]
    # Wide characters count twice, so half as many are certain to fit.
    room = width if text.isascii() else max(1, width // 2)
    return _Folding(max(1, room), break_on_hyphens=False).wrap(text) or [""]


class _Folding(textwrap.TextWrapper):
    """Breaks lists without spaces after their commas, rather than inside of words."""

    wordsep_simple_re = re.compile(r"([\t\n\v\f\r ]+|(?<=,)(?=\S))")


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + GAP * (len(found) - 1)


def _narrowed(natural: Mapping[str, int], headings: Mapping[str, str], width: int) -> dict[str, int] | None:
    """Return widths that fit, or None where columns would become too narrow to be read."""
    widths = dict(natural)
    least = {key: max(display_width(headings[key]), min(FOLDED, natural[key])) for key in natural}
    while _total(widths.values()) > width:
        widest = max(widths, key=lambda key: (widths[key] > least[key], widths[key]))
        if widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
    return widths


def _aligned(
    cells: Sequence[Mapping[str, str]],
    columns: Mapping[str, str],
    widths: Mapping[str, int],
    *,
    heading: bool = True,
    folds: bool = True,
) -> list[Line]:
    lines: list[Line] = []
    if heading:
        lines.append([(_joined([_padded(columns[key], widths[key]) for key in columns]), "bold")])
    for one in cells:
        folded = {key: fold(one[key], widths[key]) if folds else [one[key]] for key in columns}
        for number in range(max(len(parts) for parts in folded.values())):
            parts: Line = []
            for key in columns:
                text = folded[key][number] if number < len(folded[key]) else ""
                parts.append((text, STYLES.get(one[key], "")))
                parts.append((" " * (max(0, widths[key] - display_width(text)) + GAP), ""))
            while parts and not parts[-1][0].strip():
                parts.pop()
            lines.append(parts)
    return lines


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _joined(texts: Sequence[str]) -> str:
    return (" " * GAP).join(texts).rstrip()


def _records(cells: Sequence[Mapping[str, str]], columns: Mapping[str, str], width: int) -> list[Line]:
    label = max(display_width(heading) for heading in columns.values()) + GAP
    narrow = width < NARROW or label > width // 2
    lines: list[Line] = []
    for number, one in enumerate(cells):
        if number:
            lines.append([])
        for key, heading in columns.items():
            style = STYLES.get(one[key], "")
            if narrow:
                lines += [[(part, "bold")] for part in fold(heading, width)]
                lines += [[(part, style)] for part in fold(one[key], width)]
                continue
            for index, part in enumerate(fold(one[key], width - label)):
                lines.append([(_padded("" if index else heading, label), "bold"), (part, style)])
    return lines
