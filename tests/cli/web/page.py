"""Reads a page as a browser does, and checks the rules for people who use a keyboard or a screen reader."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise

import attrs

VOID = ("meta", "link", "br", "img", "input")
NAMED = ("a", "section", "nav", "svg", "meter", "table")
"""Elements that need a name for assistive technology here."""


@attrs.define
class Element:
    """An element with its attributes, its children and its text, in order."""

    name: str
    attributes: dict[str, str]
    children: list[Element | str] = attrs.Factory(list)

    def all(self, name: str = "") -> Iterator[Element]:
        """Yield this element and all beneath it, those of one name only where it is given."""
        if name in ("", self.name):
            yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.all(name)

    @property
    def text(self) -> str:
        """The text of it and of all beneath it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def one(self, key: str) -> Element:
        """Return the element with an id."""
        (found,) = (element for element in self.all() if element.attributes.get("id") == key)
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), f"{tag} has an attribute twice"
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"{tag} ends inside of {self.open[-1].name}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("pages have no comments")


def parse(text: str) -> Element:
    """Return a page; raises AssertionError where its elements are not closed in order."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    (document,) = parser.open
    return document


def flaws(page: Element) -> list[str]:
    """Return which rules a page breaks: names, landmarks, headings, captions, IDs, and what the policy forbids."""
    found = []
    ids = [one.attributes["id"] for one in page.all() if "id" in one.attributes]
    found += [f"the ID {one} is there {ids.count(one)} times" for one in set(ids) if ids.count(one) > 1]
    for name in ("header", "main", "footer", "h1", "title"):
        if len(list(page.all(name))) != 1:
            found.append(f"there is not exactly one {name}")
    levels = [int(one.name[1]) for one in page.all() if one.name in ("h1", "h2", "h3")]
    found += [f"h{after} follows h{before}" for before, after in pairwise(levels) if after > before + 1]
    found += [
        f"the heading {one.name} is empty" for one in page.all() if one.name in ("h1", "h2") and not one.text.strip()
    ]
    if not any(one.attributes.get("lang") for one in page.all("html")):
        found.append("the page has no language")
    for one in page.all():
        found += _of_element(one, ids)
    return found


def _of_element(one: Element, ids: list[str]) -> Iterator[str]:
    given = one.attributes
    labelled = given.get("aria-labelledby", "")
    if labelled and labelled not in ids:
        yield f"{one.name} is labelled by {labelled}, which is not there"
    if (
        one.name in NAMED
        and given.get("aria-hidden") != "true"
        and not (given.get("aria-label") or labelled or one.text.strip())
    ):
        yield f"{one.name} has no name"
    if one.name == "table":
        if not any(caption.text.strip() for caption in one.all("caption")):
            yield "a table has no caption"
        if not all(head.attributes.get("scope") for head in one.all("th")):
            yield "a heading of a table has no scope"
    if any(name.startswith("on") or name == "style" for name in given) or one.name == "style":
        yield f"{one.name} has a script or a style in it"
    if one.name == "script" and (one.text or not given.get("src")):
        yield "a script is in the page"
    if int(given.get("tabindex", "0")) > 0:
        yield f"{one.name} changes the order of the keyboard"
    if "tabindex" in given and not given.get("id"):
        yield f"{one.name} takes the keyboard, and loses it with the next news: it has no ID"
    for name in ("src", "href"):
        if ":" in given.get(name, "") or given.get(name, "").startswith("/"):
            yield f"{one.name} leads to {given[name]}"
