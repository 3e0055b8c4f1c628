"""Pods that cannot end because their node is lost: nobody there confirms their deletion, and so they keep their name.

Elsewhere the owner makes another pod under another name meanwhile. The pod of a ShadowPod has one name, so the first
must go from the API; should its node come back, the kubelet there ends what is left of it (source: Kubernetes, "Pod
garbage collection", "Non-graceful node shutdown").
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from liqod.hosting.views import Node, Pod
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import NODES

PATIENCE: Final = 60.0
"""Seconds beyond its grace that a pod may take to end before its node is looked at."""

UNIQUE: Final = "statefulset.kubernetes.io/pod-name"
"""The label of pods of a StatefulSet, of which no two may ever run: those wait for an administrator."""


def time_left(pod: Pod, now: float) -> float | None:
    """Return in how many seconds a pod that is being deleted is overdue (0: it is); None if that means nothing."""
    if not pod.metadata.deleting or UNIQUE in pod.metadata.labels or not pod.spec.node_name:
        return None
    try:
        # The timestamp is that of the end of the grace.
        end = datetime.fromisoformat(pod.metadata.deletion_timestamp or "").timestamp()
    except ValueError:
        return None
    return max(0.0, end + PATIENCE - now)


async def is_on_lost_node(client: Client, pod: Pod) -> bool:
    """Tell whether the node of a pod is not Ready, or gone."""
    try:
        node = await client.get(NODES, pod.spec.node_name or "", view=Node)
    except NotFound:
        return True
    return not node.ready
