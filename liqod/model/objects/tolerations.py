"""For how long a pod tolerates that its node is not ready or not reached, and how that is changed and noted (pure).

Kubernetes evicts a pod from such a node by the seconds of two tolerations, five minutes unless somebody said otherwise.
What a pod had before they were changed stands in one of its annotations, by position, so that it can be given back and
a pod at a lender never notices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

HELD: Final = "offloading.liqo.io/held-tolerations"
"""The annotation that lists the tolerations as they were before their seconds were changed."""

EVICT_AFTER: Final = "liqo.io/evict-after"
"""The annotation by which a pod says after how many seconds without its lender it is to be evicted; 0: never."""

TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def limit_of(annotations: Mapping[str, Any], setting: float) -> float:
    """Return after how many seconds a pod is to be evicted: its own wish, else the setting; 0: never."""
    try:
        own = float(annotations[EVICT_AFTER])
    except (KeyError, ValueError, TypeError):
        return setting
    return own if 0 <= own < float("inf") else setting


def lengthened(
    tolerations: Sequence[Mapping[str, Any]], seconds: float
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return tolerations by which a pod stays for so many ``seconds`` (0: for ever), and what to note of before."""
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
    """Return whether a toleration is one of those that decide about the eviction."""
    return any(matches(toleration, taint) for taint in TAINTS)


def matches(toleration: Mapping[str, Any], taint: str) -> bool:
    """Return whether a toleration tolerates a taint of this key, without value, that evicts.

    Source: k8s.io/api ``Toleration.ToleratesTaint``.
    """
    if toleration.get("effect") not in (None, "", "NoExecute") or toleration.get("key") not in (None, "", taint):
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and not toleration.get("value"))
