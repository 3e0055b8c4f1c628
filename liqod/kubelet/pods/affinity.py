"""Forges affinity and topology spread constraints of a pod at the lender (spec 004, "Pods offloading")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import reflected_labels
from liqod.model.names import ANTI_AFFINITY_LABELS, ANTI_AFFINITY_PRESET
from liqod.model.records.spillover import is_no_spread

# Controllers set these for each pod or revision: a selector with them would miss the pods to keep apart.
VOLATILE_LABELS: Final = frozenset(
    {"controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"}
    | {"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"}
)

PROPAGATE: Final = "propagate"
_INSISTS: Final = "DoNotSchedule"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def preset_affinity(
    spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str], context: Context
) -> dict[str, Any] | None:
    """Return the affinity at the lender by the pod's preset annotation, or None.

    ``propagate`` keeps the pod's own anti-affinity terms; ``soft`` and ``hard`` spread pods with the same labels over
    the lender's nodes. None for any other value, and without a label to select by.
    """
    preset = annotations.get(ANTI_AFFINITY_PRESET, "")
    if preset == PROPAGATE:
        own = (spec.get("affinity") or {}).get("podAntiAffinity")
        return {"podAntiAffinity": _own_terms(own)} if own else None
    if preset not in ("soft", "hard"):
        return None
    selected = selector_labels(labels, annotations, context)
    if not selected:
        return None
    term = {"labelSelector": {"matchLabels": selected}, "topologyKey": "kubernetes.io/hostname"}
    if preset == "hard":
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def selector_labels(labels: Mapping[str, str], annotations: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return the labels common to the pods to spread: those listed in the annotation, else all but volatile ones."""
    travelling = reflected_labels(labels, context)
    listed = {key.strip() for key in annotations.get(ANTI_AFFINITY_LABELS, "").split(",") if key.strip()}
    if listed:
        return {key: value for key, value in travelling.items() if key in listed}
    return {key: value for key, value in travelling.items() if key not in VOLATILE_LABELS}


def spread_constraints(
    constraints: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the topology spread constraints at the lender.

    A constraint with DoNotSchedule names a topology of the home cluster (zones, node labels) that the lender's nodes
    may lack; the pod would stay unschedulable there. It becomes ScheduleAnyway unless the preset is ``propagate``. The
    one that the webhook added for spillover is about nodes at home.
    """
    whole = [_with_merged_keys(constraint) for constraint in constraints if not is_no_spread(constraint)]
    if annotations.get(ANTI_AFFINITY_PRESET, "") == PROPAGATE:
        return whole
    preferred = {each.get("topologyKey") for each in whole if each.get("whenUnsatisfiable") != _INSISTS}
    forged = []
    for each in whole:
        if each.get("whenUnsatisfiable") != _INSISTS:
            forged.append(each)
        elif each.get("topologyKey") not in preferred:
            # Source: Kubernetes API, TopologySpreadConstraint: minDomains goes with DoNotSchedule only, and no two
            # constraints may have topologyKey and whenUnsatisfiable in common.
            softened = {key: value for key, value in each.items() if key != "minDomains"}
            forged.append({**softened, "whenUnsatisfiable": "ScheduleAnyway"})
    return forged


def _own_terms(affinity: Mapping[str, Any]) -> dict[str, Any]:
    forged = dict(affinity)
    if forged.get(_REQUIRED):
        forged[_REQUIRED] = [_with_merged_keys(term) for term in forged[_REQUIRED]]
    if forged.get(_PREFERRED):
        forged[_PREFERRED] = [
            {**one, "podAffinityTerm": _with_merged_keys(one.get("podAffinityTerm") or {})}
            for one in forged[_PREFERRED]
        ]
    return forged


def _with_merged_keys(term: Mapping[str, Any]) -> dict[str, Any]:
    """Return a term without the label keys that the home API server has merged into its selector.

    The API server merges these keys when a pod is created, and refuses a key that the selector has already. Source:
    Kubernetes API, PodAffinityTerm.matchLabelKeys and TopologySpreadConstraint.matchLabelKeys.
    """
    expressions = (term.get("labelSelector") or {}).get("matchExpressions") or ()
    merged = {expression.get("key") for expression in expressions}
    forged = dict(term)
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if forged.get(field):
            left = [key for key in forged.pop(field) if key not in merged]
            forged |= {field: left} if left else {}
    return forged
