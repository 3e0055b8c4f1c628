"""Label and field selectors: their texts, and which objects they choose. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kubesandbox.kinds.kinds import EVENTS, JOBS, NAMESPACES, NODES, PODS, SECRETS, GroupResource, Json


class SelectorError(ValueError):
    """The text is not a selector, or names a field that the kind cannot be selected by."""


@attrs.frozen
class Requirement:
    """One condition on a label: operator is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                try:
                    left, right = int(value or ""), int(self.values[0])
                except (ValueError, IndexError):
                    return False
                return left > right if self.operator == "Gt" else left < right
        return False


Labels = tuple[Requirement, ...]

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET: Final = re.compile(rf"\s*({_NAME})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*({_NAME})\s*(==|=|!=|>|<)\s*([-A-Za-z0-9_.]*)\s*")
_EXISTS: Final = re.compile(rf"\s*(!?)\s*({_NAME})\s*")


def parse_labels(text: str) -> Labels:
    """Parse a label selector such as ``a=b,c!=d,e in (f,g),!h``; raises SelectorError."""
    found: list[Requirement] = []
    rest = text.strip()
    while rest:
        requirement, end = _one(rest)
        found.append(requirement)
        rest = rest[end:]
        if rest:
            if not rest.startswith(","):
                raise SelectorError(
                    f"unable to parse requirement: found '{rest[:20]}', expected: ',' or 'end of string'"
                )
            rest = rest[1:]
    return tuple(found)


def _one(text: str) -> tuple[Requirement, int]:
    if found := _SET.match(text):
        values = tuple(value.strip() for value in found[3].split(","))
        return Requirement(found[1], "In" if found[2] == "in" else "NotIn", values), found.end()
    if found := _EQUAL.match(text):
        operator = {"!=": "NotIn", ">": "Gt", "<": "Lt"}.get(found[2], "In")
        return Requirement(found[1], operator, (found[3],)), found.end()
    if found := _EXISTS.match(text):
        return Requirement(found[2], "DoesNotExist" if found[1] else "Exists"), found.end()
    raise SelectorError(
        f"unable to parse requirement: found '{text[:20]}', expected: !, identifier, or 'end of string'"
    )


def from_object(selector: Mapping[str, Any] | None) -> Labels:
    """Return a ``LabelSelector`` object as requirements; an absent or empty one has none and matches everything."""
    if not selector:
        return ()
    equal = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    return (*equal, *from_expressions(selector.get("matchExpressions") or ()))


def from_expressions(expressions: Sequence[Mapping[str, Any]]) -> Labels:
    return tuple(
        Requirement(each.get("key", ""), each.get("operator", ""), tuple(each.get("values") or ()))
        for each in expressions
    )


def labels_match(requirements: Labels, labels: Mapping[str, str] | None) -> bool:
    """Return whether labels meet every requirement."""
    present = labels or {}
    return all(each.matches(present) for each in requirements)


Field = tuple[str, bool, str]
"""A field, whether it must equal (else must differ), and the value."""

_FIELDS: Final[Mapping[GroupResource, tuple[str, ...]]] = {
    PODS: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    NODES: ("spec.unschedulable",),
    NAMESPACES: ("status.phase",),
    SECRETS: ("type",),
    JOBS: ("status.successful",),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def parse_fields(resource: GroupResource, text: str) -> tuple[Field, ...]:
    """Parse a field selector for a kind; raises SelectorError for a field the kind has no index of."""
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource, ()))
    found: list[Field] = []
    for part in filter(None, text.split(",")):
        for sign in ("!=", "==", "="):
            name, operator, value = part.partition(sign)
            if operator:
                break
        else:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        if name not in known:
            if resource in _FIELDS:
                raise SelectorError(f"field label not supported: {name}")
            raise SelectorError(f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        found.append((name, operator != "!=", value))
    return tuple(found)


def fields_match(fields: Sequence[Field], body: Json) -> bool:
    """Return whether an object meets every condition."""
    return all((_field(body, name) == value) is equal for name, equal, value in fields)


def _field(body: Json, path: str) -> str:
    if path == "source":
        return str((body.get("source") or {}).get("component") or body.get("reportingComponent") or "")
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value)


def chooser(labels: Labels, fields: Sequence[Field]) -> Callable[[Json], bool] | None:
    """Return the predicate of the selectors, or None if they match everything."""
    if not labels and not fields:
        return None

    def chooses(body: Json) -> bool:
        return labels_match(labels, body["metadata"].get("labels")) and fields_match(fields, body)

    return chooses
