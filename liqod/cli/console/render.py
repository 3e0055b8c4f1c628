"""Renders values: tables for people, JSON and YAML for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml
from rich import box
from rich.markup import escape
from rich.table import Table

from liqod.model.text import clean_text

Format = Literal["table", "json", "yaml"]
Row = Mapping[str, Any]

_STYLES = {
    "Ready": "green",
    "Accepted": "green",
    "Running": "green",
    "leading": "green",
    "Authenticated": "green",
    "Offered": "green",
    "TrustPending": "yellow",
    "Pending": "yellow",
    "Suspect": "yellow",
    "Connecting": "yellow",
    "Refused": "red",
    "Lost": "red",
    "Failed": "red",
}
UNKNOWN = "-"


def as_table(rows: Sequence[Row], columns: Mapping[str, str], title: str = "") -> Table:
    """Return a table; ``columns`` maps the key of a row to its heading, in order."""
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    for key, heading in columns.items():
        # Administrators compare these words by reading them aloud, so this column is never wrapped.
        table.add_column(heading, overflow="fold", no_wrap=key == "words")
    for row in rows:
        table.add_row(*(cell(row.get(key)) for key in columns))
    return table


def cell(value: Any) -> str:
    """Return a value as the text of a cell: printable, without markup of its own, coloured if it is a known state."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {value[key]}" for key in sorted(value))
    elif isinstance(value, list | tuple):
        text = ", ".join(str(item) for item in value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = "" if value is None else str(value)
    style = _STYLES.get(text)
    shown = escape(printable(text)) or UNKNOWN
    return f"[{style}]{shown}[/]" if style else shown


def printable(text: str) -> str:
    """Return a peer's text without control characters: a terminal would execute escape sequences in it."""
    return clean_text(text, len(text), replacement="�")


def as_text(value: Any, form: Format) -> str:
    """Return plain values as JSON or YAML."""
    if form == "yaml":
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def as_documents(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return objects as one YAML stream, ready for ``kubectl apply -f -``."""
    return str(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True))


def age(seconds: float) -> str:
    """Return a duration in the largest unit that holds at least two of it, like kubectl's AGE."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def join_reason(reason: str, message: str) -> str:
    """Return a condition's reason and message as one text."""
    if reason and message:
        return f"{reason}: {message}"
    return reason or message
