"""The offloading patch of a virtual node: what of it a pod contradicts, and how its pods are distinguished (pure).

A patch speaks of the lender's nodes, a pod of those of home. Both may name the same label all the same, such as an
architecture: then no node can be right for both, and the pod waits until one of the two has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liqod.model.digests import short_digest
from liqod.model.names import TYPE_LABEL
from liqod.model.objects.node_selector import NodeSelector, Term, rules_out
from liqod.model.records.views import OffloadingPatch

PATCHED_ANNOTATION: Final = "offloading.liqo.io/patched"
"""On a ShadowPod: the digest of the patch that decided where its pod may run."""

# Two clusters have other nodes: their names do not contradict each other, and at the lender no node is virtual.
_OF_ONE_CLUSTER: Final = frozenset({"kubernetes.io/hostname", TYPE_LABEL})
_OS_LABEL: Final = "kubernetes.io/os"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def placement_digest(patch: OffloadingPatch) -> str:
    """Return the digest of what a patch says that cannot change in an existing pod; empty if it says nothing."""
    fixed = [patch.node_selector, patch.affinity.node_affinity, patch.runtime_class_name]
    return short_digest(fixed) if any(fixed) else ""


def contradiction(spec: Mapping[str, Any], patch: OffloadingPatch) -> str:
    """Return what in a home pod's spec contradicts the patch, as a sentence; empty if nothing does.

    Compared are requirements on the same label: node selectors, required node affinity and the pod's operating system.
    """
    if not patch.node_selector and not patch.affinity.node_affinity:
        return ""
    ours = _shared(spec.get("nodeSelector") or {})
    if system := (spec.get("os") or {}).get("name"):
        ours.setdefault(_OS_LABEL, system)
    theirs = _shared(patch.node_selector)
    for key, value in sorted(ours.items()):
        if (other := theirs.get(key, value)) != value:
            return (
                f"the pod is for nodes with {key}={value}, and spec.offloadingPatch.nodeSelector of its VirtualNode "
                f"asks for {key}={other}; change one of the two"
            )
    if rules_out(_terms((spec.get("affinity") or {}).get("nodeAffinity")), theirs):
        return (
            "the pod's node affinity allows no node that spec.offloadingPatch.nodeSelector of its VirtualNode selects; "
            "change one of the two"
        )
    if rules_out(_terms(patch.affinity.node_affinity), ours):
        return (
            "spec.offloadingPatch.affinity of its VirtualNode allows no node for the pod's nodeSelector or os; change "
            "one of the two"
        )
    return ""


def _shared(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in _OF_ONE_CLUSTER}


def _terms(node_affinity: Mapping[str, Any] | None) -> list[Term]:
    required = (node_affinity or {}).get(_REQUIRED) or {}
    return msgspec.convert(required, NodeSelector).node_selector_terms or []
