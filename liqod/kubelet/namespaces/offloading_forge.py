"""Forges the status of a NamespaceOffloading: the selected clusters, and the state of the namespace in each (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from liqod.kubelet.common.naming import choose_remote
from liqod.kubelet.namespaces.plan import READY, REFUSED, RELEASING
from liqod.kubelet.namespaces.selection import Excluded, UnknownNode, select
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import MAX_MESSAGE, Condition, set_condition
from liqod.model.records.offloading import (
    BOTH,
    LOCAL,
    NAME,
    NamespaceOffloading,
    NamespaceOffloadingStatus,
    policy_of,
)
from liqod.model.records.spillover import MAX_WEIGHT, MIN_WEIGHT, NONE
from liqod.model.records.views import MappingStatus

REQUIRED: Final = "OffloadingRequired"
IS_READY: Final = "Ready"
SPILLOVER: Final = "Spillover"
_STATUSES: Final = ("True", "Unknown", "False")


@frozen
class MappedLender:
    """One node of a lender (``labels`` None: it does not exist), the mapping of the namespace there and its state.

    A lender has one for each of its virtual nodes, all with the same mapping. ``taken``: our local namespaces by their
    remote names there.
    """

    cluster_id: str
    node: str
    labels: Mapping[str, str] | None
    entry: str | None = None
    mapping: MappingStatus | None = None
    taken: Mapping[str, str] = {}


def forge_status(
    offloading: NamespaceOffloading, *, enabled: bool, lenders: Sequence[MappedLender], home: ClusterID, now: str
) -> NamespaceOffloadingStatus:
    """Return the status; unchanged conditions keep their times. ``now`` is RFC 3339."""
    namespace, spec = offloading.metadata.namespace, offloading.spec
    if offloading.metadata.name != NAME:
        message = f"it has no effect: the NamespaceOffloading of a namespace is the one named {NAME}"
        return NamespaceOffloadingStatus(
            observed_generation=offloading.metadata.generation, offloading_phase="Ignored", message=message
        )
    policy = policy_of(namespace, offloading)
    before = offloading.status.remote_namespaces_conditions
    conditions_of: dict[str, list[Condition]] = {}
    for cluster_id in sorted({lender.cluster_id for lender in lenders}):
        conditions = list(before.get(cluster_id, ()))
        nodes = [lender for lender in lenders if lender.cluster_id == cluster_id]
        for condition in _of_cluster(offloading, enabled, nodes, home):
            conditions = set_condition(conditions, condition, now)
        conditions_of[cluster_id] = conditions
    phase, message = _summary(offloading, enabled, conditions_of)
    name = policy.remote_name or choose_remote(namespace, home, {}) or ""
    return NamespaceOffloadingStatus(
        observed_generation=offloading.metadata.generation,
        offloading_phase=phase,
        remote_namespace_name="" if spec.pod_offloading_strategy == LOCAL else name,
        message=message[:MAX_MESSAGE],
        conditions=_spillover(offloading, lenders, now),
        remote_namespaces_conditions=conditions_of,
    )


def _spillover(offloading: NamespaceOffloading, lenders: Sequence[MappedLender], now: str) -> list[Condition]:
    """Return the condition about the field ``spillover``; none without that field."""
    wanted = offloading.spec.spillover
    if wanted is None:
        return []
    strategy = offloading.spec.pod_offloading_strategy
    bad = next((peer for peer in wanted.peers if not peer.valid), None)
    unknown = [
        str(peer)
        for peer in wanted.peers
        if not any(peer.matches(lender.cluster_id, lender.labels) for lender in lenders)
    ]
    status, reason = "True", wanted.mode
    if wanted.mode == NONE:
        status, message = "False", "no nodes are preferred"
    elif strategy != BOTH:
        status, reason = "False", "StrategyContradicts"
        message = (
            f"it has no effect: podOffloadingStrategy is {strategy}, so there is nothing to prefer; set it to {BOTH}, "
            "or remove spillover"
        )
    elif bad is not None:
        reason = "PeerInvalid"
        message = (
            f"own nodes come first; the weight {bad.weight} of {bad} is ignored: a peer is named by cluster or by "
            f"matchLabels, and has a weight from {MIN_WEIGHT} to {MAX_WEIGHT}"
        )
    elif unknown:
        reason = "PeerUnknown"
        message = (
            f"own nodes come first; no virtual node is {'; '.join(unknown)}: compare with the labels of the virtual "
            "nodes, unless that peering is still to come"
        )
    else:
        message = "new pods prefer own nodes, then other clusters by weight"
    return set_condition(
        [one for one in offloading.status.conditions if one.type == SPILLOVER],
        _condition(SPILLOVER, status, reason, message),
        now,
    )


def _of_cluster(
    offloading: NamespaceOffloading, enabled: bool, nodes: Iterable[MappedLender], home: ClusterID
) -> tuple[Condition, Condition]:
    """Return the conditions of a cluster: of a node that is selected, else of one of which that is not known."""
    found = [_conditions(offloading, enabled, one, home) for one in sorted(nodes, key=lambda one: one.node)]
    return min(found, key=lambda conditions: _STATUSES.index(conditions[0].status))


def _conditions(
    offloading: NamespaceOffloading, enabled: bool, lender: MappedLender, home: ClusterID
) -> tuple[Condition, Condition]:
    namespace = offloading.metadata.namespace
    selection = select(namespace, enabled=enabled, offloading=offloading, node=lender.node, labels=lender.labels)
    if isinstance(selection, UnknownNode):
        message = f"the node {lender.node} is not there; what is there stays as it is"
        return _condition(REQUIRED, "Unknown", "NodeMissing", message), _state(lender)
    if isinstance(selection, Excluded):
        required = _condition(REQUIRED, "False", "ClusterNotSelected", f"the node {lender.node} is not selected")
        if lender.entry is None:
            return required, _condition(IS_READY, "False", "ClusterNotSelected", "nothing of the namespace is there")
        message = f"pods leave {lender.entry}; when none is left the namespace is given back"
        return required, _condition(IS_READY, "False", "Draining", message)
    required = _condition(REQUIRED, "True", "ClusterSelected", f"the node {lender.node} is selected")
    if lender.entry is None and choose_remote(namespace, home, lender.taken, selection.remote_name) is None:
        other = lender.taken[selection.remote_name]
        message = f"the namespace {selection.remote_name} there stands for {other} of this cluster"
        return required, _condition(IS_READY, "False", "RemoteNameInUse", message)
    return required, _state(lender)


def _state(lender: MappedLender) -> Condition:
    if lender.entry is None:
        return _condition(
            IS_READY, "Unknown", "NoPodYet", "the namespace is asked for when its first pod is scheduled there"
        )
    mapping = lender.mapping or MappingStatus()
    match mapping.phase:
        case phase if phase == READY:
            return _condition(IS_READY, "True", "NamespaceCreated", f"it is {lender.entry} there")
        case phase if phase == REFUSED:
            return _condition(IS_READY, "False", mapping.reason or "Refused", mapping.message)
        case phase if phase == RELEASING:
            return _condition(IS_READY, "False", "Draining", mapping.message or f"{lender.entry} is given back")
    return _condition(
        IS_READY, "False", mapping.reason or "NamespacePending", mapping.message or f"{lender.entry} is asked for"
    )


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _summary(
    offloading: NamespaceOffloading, enabled: bool, conditions_of: Mapping[str, list[Condition]]
) -> tuple[str, str]:
    """Return phase and message that summarize all clusters."""
    if not enabled:
        return "NotEnabled", "it has no effect: label the namespace liqo.io/enabled=true"
    pairs = {cluster: {one.type: one for one in conditions} for cluster, conditions in conditions_of.items()}
    required = {cluster: of for cluster, of in pairs.items() if of[REQUIRED].status != "False"}
    if not required:
        if offloading.spec.pod_offloading_strategy == LOCAL:
            return "NoClusterSelected", "podOffloadingStrategy is Local: pods stay in this cluster"
        if not conditions_of:
            return "NoClusterSelected", "there is no virtual node yet"
        return "NoClusterSelected", "clusterSelector selects none of the virtual nodes"
    waiting = {cluster: of[IS_READY] for cluster, of in required.items() if of[IS_READY].status == "False"}
    failed = {cluster: one for cluster, one in waiting.items() if one.reason not in ("NamespacePending", "Draining")}
    served = sum(of[IS_READY].status == "True" for of in required.values())
    if failed:
        cluster, one = min(failed.items())
        phase = "AllFailed" if len(failed) == len(required) else "SomeFailed"
        return phase, f"{cluster}: {one.reason}: {one.message}"
    if waiting:
        cluster, one = min(waiting.items())
        return "InProgress", f"{cluster}: {one.message}"
    chosen = f"{len(required)} of {len(conditions_of)} clusters selected"
    if not served:
        return "Ready", f"{chosen}; the namespace is made there with the first pod"
    return "Ready", f"{chosen}, offloaded to {served}"
