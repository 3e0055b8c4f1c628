"""Pods that stay Terminating because their node is lost: no kubelet confirms their deletion, so they keep their name.

A ReplicaSet creates a replacement under another name. The pod of a ShadowPod has a fixed name, so the old one must be
force-deleted; if its node comes back, the kubelet there stops the containers (source: Kubernetes, "Pod garbage
collection", "Non-graceful node shutdown").
"""

from __future__ import annotations

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


def may_be_forced(pod: Pod) -> bool:
    """Return whether a pod is terminating, and may be deleted with force when its node is lost."""
    return pod.metadata.deleting and STATEFULSET_POD_LABEL not in pod.metadata.labels and bool(pod.spec.node_name)


async def is_on_lost_node(client: Client, pod: Pod) -> bool:
    """Return whether the node of a pod is not Ready, or does not exist any more."""
    try:
        node = await client.get(NODES, pod.spec.node_name or "", view=Node)
    except NotFound:
        return True
    # Unknown counts as not ready: the node lifecycle controller writes it when a kubelet has been silent.
    return not node.ready
