"""What admission adds to a pod whose namespace spills over: own nodes are preferred to virtual ones (pure).

The preferred node affinity alone does not keep pods at home. For a pod without topology spread constraints the
scheduler's default ones prefer nodes with few pods of the same owner (PodTopologySpread,
``defaultingType: System``), by as many points as node affinity has: a virtual node that has none would win long before
own nodes are full. A constraint of the pod's own, which ranks all nodes alike, takes their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.records.offloading import BOTH, OffloadingPolicy
from liqod.model.records.spillover import NO_SPREAD, NONE, preferences

MAX_PREFERENCES: Final = 512
"""Preferred terms of a pod's own beyond which none are added."""
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_LEVELS: Final = ("affinity", "nodeAffinity", _PREFERRED)

Patch = list[dict[str, Any]]


def prefer_home(pod: Mapping[str, Any], policy: OffloadingPolicy, placed: Sequence[Mapping[str, Any]] = ()) -> Patch:
    """Return the JSON patch by which a pod prefers own nodes, then peers by weight; empty when it does already.

    To be applied after ``placed``, the patch of ``placement.mutations``. What the user wrote is kept: own preferred
    terms count beside ours, and own topology spread constraints are not touched.
    """
    spec = pod.get("spec")
    if not isinstance(spec, Mapping) or policy.placement != BOTH or policy.spillover.mode == NONE:
        return []
    selector = spec.get("nodeSelector")
    chosen = isinstance(selector, Mapping) and selector.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE
    if spec.get("nodeName") or chosen:
        return []
    affinity = _affinity(spec, policy, placed)
    return [*affinity, *_spread(spec)] if affinity is not None else []


def _affinity(spec: Mapping[str, Any], policy: OffloadingPolicy, placed: Sequence[Mapping[str, Any]]) -> Patch | None:
    """Return the operations on the affinity; None where it has a shape that the API server will refuse."""
    value: Any = _with_affinity(spec, placed)
    path, wanted = "/spec", preferences(tuple(policy.spillover.peers))
    for depth, name in enumerate(_LEVELS):
        path, inner = f"{path}/{name}", value.get(name)
        if inner is None:
            missing: Any = wanted
            for level in reversed(_LEVELS[depth + 1 :]):
                missing = {level: missing}
            return [{"op": "add", "path": path, "value": missing}]
        if name == _PREFERRED:
            break
        if not isinstance(inner, Mapping):
            return None
        value = inner
    if not isinstance(inner, list) or len(inner) > MAX_PREFERENCES:
        return None
    return [{"op": "add", "path": f"{path}/-", "value": term} for term in wanted if term not in inner]


def _with_affinity(spec: Mapping[str, Any], placed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a spec whose affinity is as after the patch that is applied before: each operation sets one part."""
    affinity: Any = spec.get("affinity")
    for operation in placed:
        parts = str(operation["path"]).split("/")[2:]
        if parts[:1] != ["affinity"]:
            continue
        made = operation["value"]
        for level, name in reversed(list(enumerate(parts[1:], 1))):
            outer: Any = affinity
            for one in parts[1:level]:
                outer = outer[one]
            made = {**outer, name: made}
        affinity = made
    return {"affinity": affinity}


def _spread(spec: Mapping[str, Any]) -> Patch:
    if spec.get("topologySpreadConstraints"):
        return []
    return [{"op": "add", "path": "/spec/topologySpreadConstraints", "value": [dict(NO_SPREAD)]}]
