"""Pods that stay Terminating because their node is lost: no kubelet confirms their deletion, so they keep their name.

A ReplicaSet creates a replacement under another name. The pod of a ShadowPod has a fixed name, so the old one must be
force-deleted; if its node comes back, the kubelet there stops the containers (source: Kubernetes, "Pod garbage
collection", "Non-graceful node shutdown").
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from liqod.hosting.views import Node, Pod
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import NODES

PATIENCE: Final = 60.0
"""Seconds beyond its grace period that a pod may take to terminate before its node is checked."""

STATEFULSET_POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"
"""The label of pods of a StatefulSet, of which no two may ever run: those wait for an administrator (Kubernetes: "Force
Delete StatefulSet Pods")."""


def overdue_in(pod: Pod, now: datetime) -> float | None:
    """Return in how many seconds a terminating pod is overdue (0: it is); None for one that must not be forced.

    ``now`` is a date, since the API server wrote the other one.
    """
    if not pod.metadata.deleting or STATEFULSET_POD_LABEL in pod.metadata.labels or not pod.spec.node_name:
        return None
    try:
        # metadata.deletionTimestamp is the time at which the grace period ends, not at which the deletion was asked.
        end = datetime.fromisoformat(pod.metadata.deletion_timestamp or "")
        return max(0.0, (end - now).total_seconds() + PATIENCE)
    except (ValueError, TypeError):  # TypeError: a date without a time zone
        return None


async def is_on_lost_node(client: Client, pod: Pod) -> bool:
    """Return whether the node of a pod is not Ready, or does not exist any more."""
    try:
        node = await client.get(NODES, pod.spec.node_name or "", view=Node)
    except NotFound:
        return True
    # Unknown counts as not ready: the node lifecycle controller writes it when a kubelet has been silent.
    return not node.ready
