"""Renders values: tables for people, JSON and YAML for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from liqod.model.text import clean_text

Format = Literal["table", "wide", "json", "yaml"]
Row = Mapping[str, Any]

UNKNOWN = "-"


def cell(value: Any) -> str:
    """Return a value as the text of a cell: one printable line."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {value[key]}" for key in sorted(value))
    elif isinstance(value, list | tuple):
        text = ", ".join(str(item) for item in value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = "" if value is None else str(value)
    return printable(text) or UNKNOWN


def printable(text: str) -> str:
    """Return a peer's text without control characters: a terminal would execute escape sequences in it."""
    return clean_text(text, len(text), replacement="�")


def as_text(value: Any, form: Format, *, ascii_only: bool = False) -> str:
    """Return plain values as JSON or YAML; ``ascii_only`` escapes other characters, which loses nothing.

    They are escaped as well where a text has characters in it that a terminal would obey.
    """
    text = _dumped(value, form, ascii_only=ascii_only)
    return text if text.replace("\n", "").isprintable() else _dumped(value, form, ascii_only=True)


def _dumped(value: Any, form: Format, *, ascii_only: bool) -> str:
    if form == "yaml":
        import yaml  # The import costs 20 ms, which completion and ``version`` need not wait for.

        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=not ascii_only))
    return json.dumps(value, indent=2, ensure_ascii=ascii_only) + "\n"


def as_documents(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return objects as one YAML stream in ASCII, ready for ``kubectl apply -f -`` in any locale."""
    import yaml

    return str(yaml.safe_dump_all(objects, sort_keys=False))


def age(seconds: float) -> str:
    """Return a duration in the largest unit that holds at least two of it, like kubectl's AGE."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 object", "2 objects"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def join_reason(reason: str, message: str) -> str:
    """Return a condition's reason and message as one text."""
    if reason and message:
        return f"{reason}: {message}"
    return reason or message
