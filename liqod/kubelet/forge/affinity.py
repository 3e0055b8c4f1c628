"""Anti-affinity presets: scheduling constraints that users state for the lender (spec 004, "Pods offloading")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.kubelet.forge.meta import reflected_labels
from liqod.kubelet.forge.place import Place
from liqod.model.names import ANTI_AFFINITY_LABELS, ANTI_AFFINITY_PRESET

# They differ between pods that ought to be spread (or between revisions of them): a selector must not hold them.
VOLATILE_LABELS: Final = frozenset(
    {"controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"}
    | {"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"}
)


def preset_affinity(
    spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str], place: Place
) -> dict[str, Any] | None:
    """Return the affinity that a pod's preset asks for at the lender, or None.

    ``propagate`` keeps the pod's own anti-affinity terms; ``soft`` and ``hard`` spread pods with the same labels over
    the lender's nodes. Any other value, or no label to select by, means none.
    """
    preset = annotations.get(ANTI_AFFINITY_PRESET, "")
    if preset == "propagate":
        own = (spec.get("affinity") or {}).get("podAntiAffinity")
        return {"podAntiAffinity": own} if own else None
    if preset not in ("soft", "hard"):
        return None
    selected = selector_labels(labels, annotations, place)
    if not selected:
        return None
    term = {"labelSelector": {"matchLabels": selected}, "topologyKey": "kubernetes.io/hostname"}
    if preset == "hard":
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def selector_labels(labels: Mapping[str, str], annotations: Mapping[str, str], place: Place) -> dict[str, str]:
    """Return the labels that pods to be spread have in common: those listed by annotation, else all lasting ones."""
    travelling = reflected_labels(labels, place)
    listed = {key.strip() for key in annotations.get(ANTI_AFFINITY_LABELS, "").split(",") if key.strip()}
    if listed:
        return {key: value for key, value in travelling.items() if key in listed}
    return {key: value for key, value in travelling.items() if key not in VOLATILE_LABELS}
