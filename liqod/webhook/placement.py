"""What admission changes in a pod: the toleration that lets it onto virtual nodes (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.model.names import TAINT_EFFECT, TAINT_KEY

TOLERATION: Final = {"key": TAINT_KEY, "operator": "Exists", "effect": TAINT_EFFECT}


def tolerates(tolerations: list[Any]) -> bool:
    """Tell whether some toleration already lets a pod onto virtual nodes.

    Source: k8s.io/api ``Toleration.ToleratesTaint``; an absent operator is Equal, an empty effect is every effect.
    """
    return any(isinstance(toleration, Mapping) and _matches(toleration) for toleration in tolerations)


def _matches(toleration: Mapping[str, Any]) -> bool:
    if toleration.get("tolerationSeconds") is not None:
        # It only delays the eviction; the user chose it for another purpose, and the pod still needs ours.
        return False
    if toleration.get("effect") not in (None, "", TAINT_EFFECT):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return toleration.get("key") in (None, "", TAINT_KEY)
    return operator == "Equal" and toleration.get("key") == TAINT_KEY and toleration.get("value") == "true"


def mutations(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) for a pod; empty when it needs nothing. The user's tolerations stay."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return []
    tolerations = spec.get("tolerations")
    if tolerations is None:
        return [{"op": "add", "path": "/spec/tolerations", "value": [dict(TOLERATION)]}]
    if not isinstance(tolerations, list) or tolerates(tolerations):
        return []
    return [{"op": "add", "path": "/spec/tolerations/-", "value": dict(TOLERATION)}]
