"""Decides which offloaded pods may come home: those that certainly fit on an own node (pure).

What cannot be judged from the pod alone (claims, host ports, required rules about other pods) keeps it where it is:
evicting a pod that is then scheduled elsewhere again would only disturb it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, View
from liqod.model.objects.node import Node, Taint
from liqod.model.objects.node_selector import NodeSelector, selects
from liqod.model.objects.pod import Container, Pod, PodSpec, pod_requests
from liqod.model.objects.quantity import Resources

CONTROLLERS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds that make another pod for an evicted one. A job's pod would begin its work again."""
ATTEMPTS: Final = 5
"""Pods that are tried in one step: of one that a disruption budget protects the next may be free to go."""
_FORBIDDING: Final = ("NoSchedule", "NoExecute")
_DETERRING: Final = (*_FORBIDDING, "PreferNoSchedule")
"""With the last the scheduler ranks other nodes higher, virtual ones too: an evicted pod would go there again."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Port(View, frozen=True):
    """A port of a container."""

    host_port: int = 0


class PortedContainer(Container, frozen=True):
    """A container, by its ports and by what it requests."""

    ports: list[Port] = []


class NodeAffinity(View, frozen=True):
    """The node affinity of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(View, frozen=True):
    """The affinity of a pod; that about other pods is kept as it is."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class OffloadedSpec(PodSpec, frozen=True):
    """What decides where a pod can run."""

    containers: list[PortedContainer] = []  # type: ignore[assignment]  # a list, read only
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[dict[str, Any]] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    scheduling_gates: list[dict[str, Any]] = []


class OffloadedStatus(View, frozen=True):
    """Whether a pod runs."""

    phase: str = ""


class OffloadedPod(Object, frozen=True):
    """A pod on a virtual node, or one that has no node yet."""

    spec: OffloadedSpec = OffloadedSpec()
    status: OffloadedStatus = OffloadedStatus()


@attrs.frozen
class Room:
    """An own node, and what is free on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    free: Resources


@attrs.frozen
class RefusedEviction:
    """An eviction that was refused: how often by now, and until when (in seconds) the pod is passed over."""

    count: int
    until: float


def requested_on(nodes: Iterable[str], pods: Iterable[Pod]) -> dict[str, Resources]:
    """Return what the pods on these nodes request, by node; a node with a pod that cannot be read is left out."""
    found: dict[str, list[Resources]] = {name: [] for name in nodes}
    unreadable = set()
    for pod in pods:
        on = found.get(pod.spec.node_name)
        if on is None:
            continue
        try:
            on.append(quantity.shared(pod_requests(pod.spec)))
        except ValueError:
            unreadable.add(pod.spec.node_name)
    return {name: quantity.add(parts) for name, parts in found.items() if name not in unreadable}


def rooms(nodes: Iterable[Node], requested: Mapping[str, Resources]) -> list[Room]:
    """Return the own nodes that take pods; one whose quantities cannot be read has no room.

    ``requested`` is what the pods on each node request, as of ``requested_on``.
    """
    found = []
    for node in nodes:
        name = node.metadata.name
        if not node.lendable or name not in requested:
            continue
        try:
            allocatable = quantity.parse_all(node.status.allocatable)
        except ValueError:
            continue
        free = quantity.subtract(allocatable, requested[name])
        found.append(Room(name, node.metadata.labels, node.spec.taints, free))
    return sorted(found, key=lambda room: room.name)


def returnable(
    pods: Iterable[OffloadedPod], nodes: Sequence[Room], pending: Iterable[OffloadedPod]
) -> list[OffloadedPod]:
    """Return the pods that fit on own nodes, each by itself, oldest first.

    What ``pending`` pods need, wherever they fit first, counts as taken. Untainted nodes come first for them.
    """
    left = list(nodes)
    for pod in sorted(pending, key=_age):
        needs = _requests(pod)
        if needs is None or pod.metadata.deleting or pod.spec.scheduling_gates:
            continue
        places = (
            index
            for effects in (_DETERRING, _FORBIDDING)
            for index, room in enumerate(left)
            if _fits(pod, needs, room, effects)
        )
        if (index := next(places, None)) is not None:
            left[index] = attrs.evolve(left[index], free=quantity.subtract(left[index].free, needs))
    found = []
    for pod in sorted(pods, key=_age):
        needs = _requests(pod)
        if needs is not None and is_movable(pod) and any(_fits(pod, needs, room) for room in left):
            found.append(pod)
    return found


def attempted(pods: Iterable[OffloadedPod], refused: Mapping[str, RefusedEviction], now: float) -> list[OffloadedPod]:
    """Return which of the pods that may return are tried in this step, in this order; the others wait for a later one.

    ``refused`` has the refusals by UID. Pods that were never refused come first, in their order, then those whose time
    is over, the longest first: so no number of pods that cannot go keeps one that can.
    """
    due = [(refusal.until if (refusal := refused.get(pod.metadata.uid)) else -math.inf, pod) for pod in pods]
    ordered = sorted((one for one in due if one[0] <= now), key=operator.itemgetter(0))
    return [pod for _, pod in ordered[:ATTEMPTS]]


def is_movable(pod: OffloadedPod) -> bool:
    """Return whether a pod has a controller that makes another one, and asks for nothing that cannot be judged."""
    spec = pod.spec
    affinity = spec.affinity or Affinity()
    owned = any(owner.controller and owner.kind in CONTROLLERS for owner in pod.metadata.owner_references)
    rules = (affinity.pod_affinity or {}).get(_REQUIRED) or (affinity.pod_anti_affinity or {}).get(_REQUIRED)
    insists = any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spec.topology_spread_constraints)
    claims = any("persistentVolumeClaim" in one or "ephemeral" in one for one in spec.volumes)
    ports = spec.host_network or any(port.host_port for one in spec.containers for port in one.ports)
    return owned and not (pod.metadata.deleting or rules or insists or claims or ports)


def _requests(pod: OffloadedPod) -> Resources | None:
    try:
        return pod_requests(pod.spec)
    except ValueError:
        return None


def _fits(pod: OffloadedPod, needs: Resources, room: Room, effects: Sequence[str] = _DETERRING) -> bool:
    """Return whether there is room for a pod that tolerates all taints of these effects."""
    spec = pod.spec
    if any(room.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is not None and not selects(required.node_selector_terms or (), room.name, room.labels):
        return False
    tolerated = all(_tolerates(spec.tolerations, taint) for taint in room.taints if taint.effect in effects)
    return tolerated and not quantity.exceeding(needs, room.free)


def _tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """Return whether a taint is tolerated for good.

    Source: k8s.io/api ``Toleration.ToleratesTaint``; an absent operator is Equal, an empty effect or key is every one.
    """
    for one in tolerations:
        if one.get("tolerationSeconds") is not None or one.get("effect") not in (None, "", taint.effect):
            continue
        operator = one.get("operator") or "Equal"
        if operator == "Exists" and one.get("key") in (None, "", taint.key):
            return True
        if operator == "Equal" and one.get("key") == taint.key and (one.get("value") or "") == taint.value:
            return True
    return False


def _age(pod: OffloadedPod) -> tuple[str, str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name
