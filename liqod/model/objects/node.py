"""The one view of Kubernetes Nodes that all features share, so that there is one watch of them. Pure.

The shared informers key their streams on the view: a second view of the same kind would be a second stream of every
node's status, and the kubelet writes that every few seconds.
"""

from __future__ import annotations

import msgspec

from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Condition, Object, View, find_condition


class Taint(View, frozen=True):
    """What keeps pods off a node unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(View, frozen=True):
    """Whether the scheduler may use a node and for which pods, its pod networks, and which machine it is."""

    unschedulable: bool = False
    taints: list[Taint] = []
    pod_cidrs: list[str] = msgspec.field(name="podCIDRs", default=[])
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeAddress(View, frozen=True):
    """One address of a node; ``type`` is InternalIP, ExternalIP, Hostname ..."""

    type: str = ""
    address: str = ""


class NodeInfo(View, frozen=True):
    """What a kubelet says of its host."""

    kubelet_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class NodeStatus(View, frozen=True):
    """A node's resources, conditions, addresses and software."""

    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []
    addresses: list[NodeAddress] = []
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    """A node of this cluster."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def virtual(self) -> bool:
        """Whether the node represents another cluster; its resources are not ours to lend."""
        return self.metadata.labels.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE

    @property
    def lendable(self) -> bool:
        """Real, ready, schedulable, and not being deleted."""
        ready = find_condition(self.status.conditions, "Ready")
        return (
            not self.virtual
            and not self.spec.unschedulable
            and not self.metadata.deleting
            and ready is not None
            and ready.status == "True"
        )
