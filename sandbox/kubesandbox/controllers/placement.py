"""Filters and scores nodes for a pod: resources, taints, selectors, affinity. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from kubesandbox.kinds.kinds import Json
from kubesandbox.kinds.quantity import Resources, add, parse_all
from kubesandbox.store.selectors import from_expressions, labels_match

_CORE: Final = {"cpu": "Insufficient cpu", "memory": "Insufficient memory", "pods": "Too many pods"}


def requests_of(pod: Json) -> dict[str, Fraction]:
    """Return a pod's requests: the sum of its containers, or its largest init container, and one pod."""
    spec = pod.get("spec") or {}

    def asked(container: Json) -> dict[str, Fraction]:
        return parse_all((container.get("resources") or {}).get("requests") or {})

    total = add(asked(each) for each in spec.get("containers") or ())
    sidecars = add(asked(each) for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    total = add([total, sidecars, parse_all(spec.get("overhead") or {})])
    for each in spec.get("initContainers") or ():
        for name, value in asked(each).items():
            total[name] = max(total.get(name, Fraction(0)), value)
    total["pods"] = Fraction(1)
    return total


def tolerates(tolerations: Iterable[Json], taint: Mapping[str, Any]) -> Json | None:
    """Return the toleration that tolerates a taint, or None."""
    for each in tolerations:
        if each.get("effect") and each["effect"] != taint.get("effect"):
            continue
        if each.get("key") and each["key"] != taint.get("key"):
            continue
        operator = each.get("operator") or "Equal"
        if operator == "Exists" or (each.get("key") and each.get("value", "") == taint.get("value", "")):
            return each
    return None


def _term_matches(term: Mapping[str, Any], node: Json) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    metadata = node["metadata"]
    return labels_match(from_expressions(expressions), metadata.get("labels")) and labels_match(
        from_expressions(fields), {"metadata.name": metadata["name"]}
    )


def selects(spec: Mapping[str, Any], node: Json) -> bool:
    """Return whether a pod's node selector and required node affinity choose a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def obstacle(pod: Json, wanted: Resources, node: Json, free: Resources) -> str:
    """Return why a pod does not fit a node, in the scheduler's wording, or an empty text."""
    spec, node_spec = pod.get("spec") or {}, node.get("spec") or {}
    tolerations: Sequence[Json] = spec.get("tolerations") or ()
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node_spec.get("unschedulable") and tolerates(tolerations, unschedulable) is None:
        return "node(s) were unschedulable"
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and tolerates(tolerations, taint) is None:
            value = taint.get("value", "")
            return f"node(s) had untolerated taint {{{taint.get('key')}: {value}}}"
    if not selects(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    for name, value in wanted.items():
        if value > free.get(name, Fraction(0)):
            return _CORE.get(name, f"Insufficient {name}")
    return ""


def score(pod: Json, node: Json, free: Resources, allocatable: Resources) -> Fraction:
    """Return how well a pod fits a node: preferences count most, then the free share of cpu, memory, pods."""
    spec = pod.get("spec") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    points = Fraction(0)
    for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        if _term_matches(each.get("preference") or {}, node):
            points += int(each.get("weight", 1))
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "PreferNoSchedule" and tolerates(spec.get("tolerations") or (), taint) is None:
            points -= 1000
    for name in ("cpu", "memory", "pods"):
        total = allocatable.get(name, Fraction(0))
        if total:
            points += free.get(name, Fraction(0)) / total
    return points


def unavailable(reasons: Mapping[str, int], nodes: int) -> str:
    """Return the sentence of a FailedScheduling event."""
    if not nodes:
        return "no nodes available to schedule pods"
    parts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"0/{nodes} nodes are available: {parts}."
