"""Views of pods and nodes: the few fields that hosting decides from, so that a cache of thousands of them is small.

The same view of a pod spec decodes the opaque pod in a ShadowPod, which is a borrower's input: fields may be null, and
a value of the wrong type fails the decoding instead of reaching a decision.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from liqod.model.ids import Key
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD
from liqod.model.objects.interning import Interner
from liqod.model.objects.meta import Object, ObjectMeta, OwnerReference, View, controller_of
from liqod.model.objects.pod_completion import FINISHED

SHADOW_POD_KIND = "ShadowPod"
SHADOW_POD_GROUP = "offloading.liqo.io/"
FORGED_ANNOTATION: Final = "offloading.liqo.io/forged-from"
"""The annotation of a pod with the record of what it was forged from; no borrower can write it, or the pod's labels."""

QuantityText = str | int | float
Toleration = dict[str, Any]


class Requirements(View, frozen=True):
    """Requests and limits of a container, or of a pod as a whole."""

    requests: dict[str, QuantityText] | None = None
    limits: dict[str, QuantityText] | None = None


class Container(View, frozen=True):
    """The part of a container that decisions are made from: its requests, and what may change while it runs."""

    name: str = ""
    image: str | None = None
    restart_policy: str | None = None
    resources: Requirements | None = None


class PodSpec(View, frozen=True):
    """The part of a pod spec that decisions are made from."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[dict[str, Any]] | None = None
    resources: Requirements | None = None
    overhead: dict[str, QuantityText] | None = None
    tolerations: list[Toleration] | None = None
    active_deadline_seconds: int | None = None
    restart_policy: str | None = None
    node_name: str | None = None


class PodCondition(View, frozen=True):
    """A condition of a pod or a node, without its timestamps."""

    type: str = ""
    status: str = ""


class ContainerStatus(View, frozen=True):
    """What a node holds for a container: what its kubelet has allocated, and what is in force (KEP-1287)."""

    name: str = ""
    allocated_resources: dict[str, QuantityText] | None = None
    resources: Requirements | None = None


class PodStatus(View, frozen=True):
    """The phase of a pod, why it finished, and what its node holds for it (as a whole: KEP-5419)."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: dict[str, QuantityText] | None = None
    resources: Requirements | None = None


_encode: Final = msgspec.json.Encoder().encode
_specs: Final[Interner[PodSpec]] = Interner(_encode)
_statuses: Final[Interner[PodStatus]] = Interner(_encode)


class Pod(Object, frozen=True):
    """A pod, with the fields that hosting decides from. Pods of one owner have equal specs, which are interned."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "spec", _specs(self.spec))
        msgspec.structs.force_setattr(self, "status", _statuses(self.status))

    @property
    def finished(self) -> bool:
        return self.status.phase in FINISHED


class NodeStatus(View, frozen=True):
    """The conditions of a node, written by its kubelet or, while that is silent, by the node lifecycle controller."""

    conditions: list[PodCondition] = []


class Node(Object, frozen=True):
    """A node of this cluster."""

    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class _Name(ObjectMeta, frozen=True, rename=lambda field: f"({field})"):
    """Metadata of which name and version are read, and nothing that may be long: no object has fields of such names."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class Counted(View, frozen=True):
    """An object whose size alone counts: nothing that a tenant wrote in it is kept."""

    metadata: _Name = _Name()


def is_managed(pod: Object) -> bool:
    """Return whether a pod was created from a ShadowPod: it has the label, and a ShadowPod controls it, or nothing
    does and it has the record of what it was forged from.

    The garbage collector takes the owner off what an owner leaves that is deleted with ``propagationPolicy=Orphan``.
    """
    if pod.metadata.labels.get(MANAGED_BY_LABEL) != MANAGED_BY_SHADOWPOD:
        return False
    owner = controller_of(pod)
    if owner is None:
        return FORGED_ANNOTATION in pod.metadata.annotations
    return owner.kind == SHADOW_POD_KIND and owner.api_version.startswith(SHADOW_POD_GROUP)


def order_of_creation(thing: Object) -> tuple[str, Key]:
    """Return the sort key that puts the oldest object first, then by name: creationTimestamp has whole seconds."""
    return (thing.metadata.creation_timestamp or "", thing.key)
