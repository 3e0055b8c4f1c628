"""Node selectors as Kubernetes evaluates them: terms are alternatives, requirements of a term all hold. Pure.

Source: k8s.io/component-helpers ``nodeaffinity`` and k8s.io/apimachinery ``labels.Requirement.Matches``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from liqod.model.objects.meta import View

NAME_FIELD: Final = "metadata.name"


class NodeRequirement(View, frozen=True):
    """One requirement on a label (or on the field ``metadata.name``)."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(View, frozen=True):
    """Requirements that all hold for a node; a term without any selects nothing."""

    match_expressions: list[NodeRequirement] | None = None
    match_fields: list[NodeRequirement] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no requirement."""
        return not self.match_expressions and not self.match_fields


class NodeSelector(View, frozen=True):
    """Terms, of which one has to hold."""

    node_selector_terms: list[Term] | None = None


def selects(terms: Sequence[Term], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether one of the terms holds for a node."""
    return any(_holds(term, name, labels) for term in terms)


def rules_out(terms: Sequence[Term], known: Mapping[str, str]) -> bool:
    """Return whether no term can hold for a node with the ``known`` labels, whatever other labels it has."""
    return bool(terms) and all(
        any(one.key in known and not _fulfils(one, known) for one in term.match_expressions or ()) for term in terms
    )


def _holds(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    if term.empty:
        return False
    return all(_fulfils(one, labels) for one in term.match_expressions or ()) and all(
        _fulfils(one, {NAME_FIELD: name}) for one in term.match_fields or ()
    )


def _fulfils(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
    return False


def _compares(operator: str, value: str | None, values: Sequence[str]) -> bool:
    left, right = _number(value), _number(values[0] if len(values) == 1 else None)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _number(text: str | None) -> int | None:
    """Return a whole number of 64 bits, as Go's strconv.ParseInt reads it; None for anything else."""
    if text is None or len(text) > 20 or not text.isascii() or not text.removeprefix("-").removeprefix("+").isdigit():
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None
