"""Which nodes of this cluster the pods of tenants may be scheduled to, and so which are lent. Pure.

Source: Kubernetes, "Taints and Tolerations", "Well-Known Labels, Annotations and Taints".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import attrs

from liqod.model.objects.node import Node
from liqod.model.objects.tolerations import TAINTS

CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels of control plane nodes (kubeadm); the second one up to Kubernetes 1.23."""
_REPELLING: Final = ("NoSchedule", "NoExecute")
_PASSING: Final = "node.kubernetes.io/"
"""The domain of the taints that the node lifecycle controller sets for the conditions of a node."""

ControlPlane = Literal["auto", "yes", "no"]


@attrs.frozen
class TenantNodes:
    """Whether tenants may use control plane nodes, and the keys of the taints that their pods may tolerate.

    ``auto``: only where there is no other node to which their pods can be scheduled.
    """

    control_plane: ControlPlane = "auto"
    tolerated: frozenset[str] = frozenset(TAINTS)

    @classmethod
    def of(cls, control_plane: ControlPlane | bool, tolerations: Iterable[str]) -> TenantNodes:
        """Return the rule of the settings; true is "yes", false is "no"."""
        if isinstance(control_plane, bool):
            control_plane = "yes" if control_plane else "no"
        return cls(control_plane, frozenset((*TAINTS, *tolerations)))

    def avoids_control_plane(self, nodes: Iterable[Node]) -> bool:
        """Return whether tenants' pods are kept off control plane nodes, given all nodes of the cluster.

        Another node counts also while it is not ready: the failure of a node does not open the control plane.
        """
        if self.control_plane != "auto":
            return self.control_plane == "no"
        return any(not is_control_plane(node) and self._admits(node) for node in nodes)

    def usable(self, nodes: Iterable[Node]) -> list[Node]:
        """Return those of all nodes of the cluster whose free resources tenants can use now."""
        given = list(nodes)
        avoided = self.avoids_control_plane(given)
        return [
            node for node in given if node.lendable and self._admits(node) and not (avoided and is_control_plane(node))
        ]

    def _admits(self, node: Node) -> bool:
        """Return whether a node takes new pods of tenants when it is ready."""
        return (
            not node.virtual
            and not node.spec.unschedulable
            and not node.metadata.deleting
            and not any(
                taint.effect in _REPELLING and not taint.key.startswith(_PASSING) and taint.key not in self.tolerated
                for taint in node.spec.taints
            )
        )


def is_control_plane(node: Node) -> bool:
    """Return whether a node has a label of the control plane."""
    return any(label in node.metadata.labels for label in CONTROL_PLANE)
