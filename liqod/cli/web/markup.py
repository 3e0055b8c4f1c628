"""Builds HTML and SVG from values; whatever is not ``Markup`` is escaped, so that no text becomes markup. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs

from liqod.cli.console.render import printable


@attrs.frozen
class Markup:
    """A piece of a page that is well-formed; only ``tag``, ``join`` and ``DOCTYPE`` make any."""

    text: str


Child: TypeAlias = "Markup | str | int | Iterable[Child] | None"

DOCTYPE: Final = Markup("<!doctype html>\n")
EMPTY: Final = frozenset(("link", "meta"))
"""Elements without an end tag (HTML standard, "Void elements"), as far as they are used here."""


def join(child: Child) -> Markup:
    """Return children as one piece: text is cleaned of control characters and escaped, None is nothing."""
    if isinstance(child, Markup):
        return child
    if child is None:
        return Markup("")
    if isinstance(child, str | int):
        return Markup(_escaped(str(child)))
    return Markup("".join(join(one).text for one in child))


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Return an element. ``class_`` is the attribute class, ``aria_label`` aria-label; None and False leave one out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in EMPTY:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children).text}</{name}>")


def _attribute(key: str, value: str | int | bool) -> str:
    if value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    # Bidirectional overrides and control characters go, as on a terminal: they would disguise what follows.
    return html.escape(printable(text))
