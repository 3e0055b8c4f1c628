"""Label selectors as Kubernetes writes them: ``a=b, c!=d, e in (x, y), f notin (x), g, !h``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

MAX_LENGTH: Final = 4096
# A qualified name: an optional DNS subdomain of at most 253 characters, then at most 63 (apimachinery,
# IsQualifiedName).
_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")


@attrs.frozen
class LabelRequirement:
    """One term: the label's value must, or must not, be among ``values``; None asks for the label alone."""

    key: str
    wanted: bool
    values: frozenset[str] | None

    @property
    def expression(self) -> dict[str, Any]:
        """The term as a ``matchExpressions`` entry (Kubernetes API: LabelSelectorRequirement)."""
        if self.values is None:
            return {"key": self.key, "operator": "Exists" if self.wanted else "DoesNotExist"}
        return {"key": self.key, "operator": "In" if self.wanted else "NotIn", "values": sorted(self.values)}

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil it; a label that is absent has no value, and differs from every value."""
        if self.values is None:
            return (self.key in labels) is self.wanted
        return (self.key in labels and labels[self.key] in self.values) is self.wanted


def parse(text: str) -> tuple[LabelRequirement, ...]:
    """Return the terms of a selector, none for an empty one; raises ValueError naming the term that is wrong."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a label selector of {len(text)} characters; {MAX_LENGTH} are allowed")
    if not text.strip():
        return ()
    return tuple(_term(term.strip()) for term in _COMMA.split(text))


def matches(terms: tuple[LabelRequirement, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels fulfil all terms."""
    return all(term.matches(labels) for term in terms)


def _term(text: str) -> LabelRequirement:
    if found := _EQUALITY.fullmatch(text):
        return LabelRequirement(found[1], found[2] != "!=", frozenset((found[3],)))
    if found := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in found[3].split(","))
        return LabelRequirement(found[1], found[2] == "in", values)
    if found := _EXISTS.fullmatch(text):
        return LabelRequirement(found[2], not found[1], None)
    raise ValueError(f"{text[:80]!r} is not a label selector such as 'region=eu', 'tier in (gold, silver)' or '!spot'")
