"""The one view of Kubernetes Pods of this cluster that capacity and the network share, and what a pod requests. Pure.

One view is one watch (the shared informers key their streams on it), and the cache holds every pod that occupies a
node: so it names only the fields that somebody reads.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import msgspec

from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD
from liqod.model.objects import quantity
from liqod.model.objects.interning import Interner
from liqod.model.objects.meta import Object, ObjectMeta, View
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.objects.quantity import Resources

OCCUPYING_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that occupy a node: scheduled, not finished. All users of the watch must use it."""
_OFFLOADED: Final = {MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD}
_ONE_POD: Final = {"pods": Fraction(1)}


class Requirements(View, frozen=True):
    """Requests may be written as numbers in JSON, hence Any; they are rendered to text before parsing."""

    requests: dict[str, Any] = {}


class Container(View, frozen=True):
    """A container, by what it requests; an init container that restarts always is a sidecar."""

    resources: Requirements = Requirements()
    restart_policy: str = ""


class PodSpec(View, frozen=True):
    """Where a pod runs, whether on its node's own network, and what it requests."""

    node_name: str = ""
    host_network: bool = False
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, Any] = {}
    resources: Requirements = Requirements()


class PodAddress(View, frozen=True):
    """One address of a pod."""

    ip: str = ""


class PodStatus(View, frozen=True):
    """Whether a pod is finished, and its addresses, by IP version one at most."""

    phase: str = ""
    pod_ips: list[PodAddress] = msgspec.field(name="podIPs", default=[])


_specs: Final[Interner[PodSpec]] = Interner(msgspec.json.Encoder().encode)


class Pod(Object, frozen=True):
    """A pod, as far as it occupies a node and has addresses.

    It keeps only the identifying metadata, and its spec is interned.
    """

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        meta = self.metadata
        lean = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=_OFFLOADED if meta.labels.get(MANAGED_BY_LABEL) == MANAGED_BY_SHADOWPOD else {},
            deletion_timestamp=meta.deletion_timestamp,
        )
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "spec", _specs(self.spec))

    @property
    def is_offloaded(self) -> bool:
        """Whether it is the pod of a ShadowPod: one of another cluster, which runs here."""
        return bool(self.metadata.labels)


def pod_requests(spec: PodSpec) -> Resources:
    """Return what a pod occupies on its node: max(sum of containers and sidecars, each init step) + overhead + one pod.

    What the pod requests as a whole takes the place of that sum. Source: Kubernetes "Init Containers", section
    "Resource sharing within containers", KEP-753 for sidecars, KEP-2837 for the pod as a whole. Raises ValueError for a
    quantity that the API server would not have admitted.
    """
    running = quantity.add(_requested(container) for container in spec.containers)
    if not spec.init_containers and not spec.overhead and not spec.resources.requests:
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
    # Admission keeps the pod's own requests from being smaller than those of its containers together.
    total = _highest(total, quantity.parse_all(spec.resources.requests))
    return quantity.add([total, quantity.parse_all(spec.overhead), _ONE_POD])


def _requested(container: Container) -> dict[str, Fraction]:
    return quantity.parse_all(container.resources.requests)


def _highest(left: Resources, right: Resources) -> dict[str, Fraction]:
    return {
        name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in dict.fromkeys((*left, *right))
    }


def is_finished(status: PodStatus) -> bool:
    """Return whether a pod has run to its end and occupies nothing any more."""
    return status.phase in FINISHED
