"""What capacity needs of nodes and pods, and what a pod requests. Pure.

The views name only the fields used: the caches of them hold every pod of the cluster.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import msgspec

from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects import quantity
from liqod.model.objects.interning import Sharing
from liqod.model.objects.meta import Condition, Object, ObjectMeta, View, find_condition
from liqod.model.objects.quantity import Resources

_ONE_POD: Final = {"pods": Fraction(1)}


class NodeSpec(View, frozen=True):
    """Whether the scheduler may use the node."""

    unschedulable: bool = False


class NodeInfo(View, frozen=True):
    """The versions a node reports."""

    kubelet_version: str = ""


class NodeStatus(View, frozen=True):
    """What a node has, and how it is."""

    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    """A node of this cluster."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def virtual(self) -> bool:
        """A node that stands for another cluster: what it has is not ours to lend."""
        return self.metadata.labels.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE

    @property
    def lendable(self) -> bool:
        """Real, ready, schedulable, and not on its way out."""
        ready = find_condition(self.status.conditions, "Ready")
        return (
            not self.virtual
            and not self.spec.unschedulable
            and not self.metadata.deleting
            and ready is not None
            and ready.status == "True"
        )


class Requirements(View, frozen=True):
    """Requests may be written as numbers in JSON, hence Any; they are rendered to text before parsing."""

    requests: dict[str, Any] = {}


class Container(View, frozen=True):
    """A container, by what it requests; an init container that restarts always is a sidecar."""

    resources: Requirements = Requirements()
    restart_policy: str = ""


class PodSpec(View, frozen=True):
    """Where a pod runs, and what it requests."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, Any] = {}


class PodStatus(View, frozen=True):
    """Whether a pod is finished."""

    phase: str = ""


_specs: Final[Sharing[PodSpec]] = Sharing(msgspec.json.Encoder().encode)


class Pod(Object, frozen=True):
    """A pod, as far as it occupies a node: of its metadata only what tells one from another, and a spec that it shares
    with its like.
    """

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        meta = self.metadata
        lean = ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "spec", _specs(self.spec))


def pod_requests(spec: PodSpec) -> Resources:
    """Return what a pod occupies on its node: max(sum of containers and sidecars, each init step) + overhead + one pod.

    Source: Kubernetes "Init Containers", section "Resource sharing within containers", and KEP-753 for sidecars. Raises
    ValueError for a quantity that the API server would not have admitted.
    """
    running = quantity.add(_requested(container) for container in spec.containers)
    if not spec.init_containers and not spec.overhead:
        # Nearly every pod; this is counted for each pod of the cluster.
        return {**running, "pods": running.get("pods", Fraction(0)) + 1}
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.init_containers:
        own = _requested(container)
        if container.restart_policy == "Always":
            sidecars = quantity.add([sidecars, own])
            step: Resources = sidecars
        else:
            # An ordinary init container runs beside the sidecars that were started before it.
            step = quantity.add([sidecars, own])
        peak = _highest(peak, step)
    total = _highest(quantity.add([running, sidecars]), peak)
    return quantity.add([total, quantity.parse_all(spec.overhead), _ONE_POD])


def _requested(container: Container) -> dict[str, Fraction]:
    return quantity.parse_all(container.resources.requests)


def _highest(left: Resources, right: Resources) -> dict[str, Fraction]:
    return {
        name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in dict.fromkeys((*left, *right))
    }


def is_finished(status: PodStatus) -> bool:
    """Tell whether a pod has run to its end and occupies nothing any more."""
    return status.phase in ("Succeeded", "Failed")
