"""Extends and restores a pod's tolerations of not-ready and unreachable nodes (pure).

The taint manager evicts a pod from such a node after the ``tolerationSeconds`` of two tolerations; the admission plugin
DefaultTolerationSeconds adds them with 300 s. The original values are kept in an annotation, by position, so that they
can be restored, and the pod at the lender gets the original ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

HELD: Final = "offloading.liqo.io/held-tolerations"
"""The annotation that lists the tolerations as they were before their seconds were changed."""

EVICT_AFTER: Final = "liqo.io/evict-after"
"""Annotation with the seconds without its lender after which a pod is evicted; 0: never."""

TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def limit_of(annotations: Mapping[str, Any], setting: float) -> float:
    """Return the seconds after which a pod is evicted: its annotation, else the setting; 0: never."""
    try:
        own = float(annotations[EVICT_AFTER])
    except (KeyError, ValueError, TypeError):
        return setting
    return own if 0 <= own < float("inf") else setting


def lengthened(
    tolerations: Sequence[Mapping[str, Any]], seconds: float
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return tolerations with ``seconds`` (0: unlimited), and the original ones for the annotation."""
    held = {
        str(position): dict(one)
        for position, one in enumerate(tolerations)
        if one.get("tolerationSeconds") is not None and is_about_nodes(one)
    }
    limit = {"tolerationSeconds": math.ceil(seconds)} if seconds else {}
    changed = [
        {**bare(one), **limit} if str(position) in held else dict(one) for position, one in enumerate(tolerations)
    ]
    return changed, held


def bare(toleration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a toleration without its seconds."""
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def is_about_nodes(toleration: Mapping[str, Any]) -> bool:
    """Return whether a toleration is for the taint not-ready or unreachable."""
    return any(matches(toleration, taint) for taint in TAINTS)


def matches(toleration: Mapping[str, Any], taint: str) -> bool:
    """Return whether a toleration tolerates a taint of this key, without value, that evicts.

    Source: k8s.io/api ``Toleration.ToleratesTaint``.
    """
    if toleration.get("effect") not in (None, "", "NoExecute") or toleration.get("key") not in (None, "", taint):
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and not toleration.get("value"))
