"""Forges the Node object of a lender, its status from the lender's offer, and its lease (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from liqod.kube.writing.merge_patch import merge_patch
from liqod.kubelet.common.naming import label_value
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.views import Node, Taint
from liqod.model.names import (
    FIELD_MANAGER,
    HOSTNAME_ADDRESS,
    INTERNAL_ADDRESS,
    MANAGED_BY_LABEL,
    PROVIDER,
    REMOTE_CLUSTER_LABEL,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)
from liqod.model.objects.meta import to_dict
from liqod.model.objects.quantity import is_extended
from liqod.model.records.offer import RECLAIMED, RECLAIMED_BY, Offer
from liqod.model.records.views import NodeTaint
from liqod.model.timestamps import rfc3339

APPLIED_LABELS: Final = "offloading.liqo.io/applied-labels"
"""Annotation that lists the extra labels, so that a label removed from the offer is removed from the node."""

APPLIED_TAINTS: Final = "offloading.liqo.io/applied-taints"
"""Annotation that lists the record's taints, as ``key:effect``, so that one removed there is removed from the node."""

APPLIED_RESOURCES: Final = "offloading.liqo.io/applied-resources"
"""Annotation that lists the extended resources of the offer, so that one removed from it is removed from the node.

Those that others have added to the node's capacity stay: Kubernetes, "Advertise Extended Resources for a Node".
"""

PLATFORM: Final = frozenset(("kubernetes.io/arch", "kubernetes.io/os"))
"""Labels with a default that a lender may offer otherwise: the architecture and the system of its nodes."""
LEASE_NAMESPACE: Final = "kube-node-lease"
RENEWED: Final = 1 / 4
"""Fraction of the lease duration after which the lease is renewed and a silent lender is probed. Source: kubelet
(nodeLeaseRenewIntervalFraction = 0.25, pkg/kubelet/kubelet.go)."""
_OWN_TAINT: Final = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


@frozen
class NodeFacts:
    """The inputs of a Node. ``offer`` None: unknown, so that labels and resources of the node are kept.

    ``port`` is the port of the node's API at its address; 0 while it is not served. ``network`` None: liqod manages no
    network between the clusters. ``address_type``: InternalIP, or Hostname for a node that shows its address by that
    type alone; empty: not known, so that the node keeps what it shows.
    """

    name: str
    cluster_id: str
    address: str
    readiness: Readiness
    offer: Offer | None
    home_version: str = ""
    port: int = 0
    labels: Mapping[str, str] = {}
    taints: Sequence[NodeTaint] = ()
    network: Readiness | None = None
    address_type: str = INTERNAL_ADDRESS


def is_foreign(node: Node, cluster_id: str) -> bool:
    """Return whether a node of this name does not represent this lender; such a node is never changed."""
    return node.metadata.labels.get(REMOTE_CLUSTER_LABEL) != cluster_id


def base_labels(name: str, cluster_id: str) -> dict[str, str]:
    """Return the labels of every virtual node; an offer or a record overrides those of PLATFORM only."""
    return {
        TYPE_LABEL: VIRTUAL_NODE_TYPE,
        REMOTE_CLUSTER_LABEL: cluster_id,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        "type": "virtual-kubelet",
        "kubernetes.io/role": "agent",
        "kubernetes.io/hostname": label_value(name),
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        # Azure's cloud provider takes a node with this label for none of its machines, and does not delete it when it
        # is not ready (cloud-provider-azure, IsNodeUnmanaged).
        "kubernetes.azure.com/managed": "false",
    }


def provider_id(facts: NodeFacts) -> str:
    """Return the node's ``spec.providerID``, which names a provider that no cloud controller manages.

    A controller that finds no machine for a node that is not ready deletes it (k8s.io/cloud-provider,
    controllers/nodelifecycle); one that cannot read its providerID leaves it alone.
    """
    return f"{PROVIDER}://{facts.cluster_id}/{facts.name}"


def node_addresses(status: Mapping[str, Any], facts: NodeFacts) -> list[dict[str, str]]:
    """Return the addresses of a node: its own by the wanted type, and its name where that does not stand in the way."""
    name = {"type": HOSTNAME_ADDRESS, "address": facts.name}
    if not facts.address:
        return [name]
    if facts.address_type == HOSTNAME_ADDRESS:
        # The API server takes the first address of a type, so there is no name beside it.
        return [{"type": HOSTNAME_ADDRESS, "address": facts.address}]
    if facts.address_type == INTERNAL_ADDRESS:
        return [{"type": INTERNAL_ADDRESS, "address": facts.address}, name]
    return list(status.get("addresses") or [name])


def extra_labels(facts: NodeFacts) -> dict[str, str]:
    """Return the labels of the offer and the VirtualNode record (which takes precedence)."""
    offered = facts.offer.labels if facts.offer is not None else {}
    # When a lender takes its offer back is a condition of the node.
    fixed = (base_labels(facts.name, facts.cluster_id).keys() - PLATFORM) | {RECLAIMED_BY}
    return {key: value for key, value in {**offered, **facts.labels}.items() if key not in fixed}


def forge_node(facts: NodeFacts) -> dict[str, Any]:
    """Return the node to create: without resources, and tainted so that only tolerating pods are scheduled."""
    extra = extra_labels(facts)
    annotations = {APPLIED_LABELS: ",".join(sorted(extra))}
    if facts.taints:
        annotations[APPLIED_TAINTS] = _listed(facts.taints)
    if offered := _extended(facts):
        annotations[APPLIED_RESOURCES] = ",".join(sorted(offered))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "labels": {**base_labels(facts.name, facts.cluster_id), **extra},
            "annotations": annotations,
        },
        "spec": {
            "taints": [_OWN_TAINT, *(to_dict(taint) for taint in facts.taints)],
            "providerID": provider_id(facts),
        },
    }


def _extended(facts: NodeFacts) -> set[str]:
    return {name for name in facts.offer.resources if is_extended(name)} if facts.offer is not None else set()


def applied_resources(node: Node) -> frozenset[str]:
    """Return the extended resources of a node that are, or were, the offer's."""
    return frozenset(name for name in node.metadata.annotations.get(APPLIED_RESOURCES, "").split(",") if name)


def _listed(taints: Sequence[NodeTaint]) -> str:
    return ",".join(sorted(f"{taint.key}:{taint.effect}" for taint in taints))


def taints_of(node: Node, facts: NodeFacts) -> list[dict[str, Any]] | None:
    """Return the taints that a node should have, with those of others; None if it has them."""
    applied = set(node.metadata.annotations.get(APPLIED_TAINTS, "").split(","))
    wanted = {f"{taint.key}:{taint.effect}": taint.value for taint in facts.taints}

    def stays(taint: Taint) -> bool:
        name = f"{taint.key}:{taint.effect}"
        if taint.key == TAINT_KEY:
            return taint.effect == TAINT_EFFECT
        return wanted[name] == taint.value if name in wanted else name not in applied

    kept = [taint for taint in node.spec.taints if stays(taint)]
    present = {f"{taint.key}:{taint.effect}" for taint in kept}
    missing = [to_dict(taint) for taint in facts.taints if f"{taint.key}:{taint.effect}" not in present]
    if f"{TAINT_KEY}:{TAINT_EFFECT}" not in present:
        missing.append(_OWN_TAINT)
    if not missing and len(kept) == len(node.spec.taints):
        return None
    return [*(to_dict(taint) for taint in kept), *missing]


def node_patch(node: Node, facts: NodeFacts) -> dict[str, Any]:
    """Return the merge patch for labels, taints, providerID and our annotations of an existing node; empty if none."""
    patch: dict[str, Any] = {}
    labels: dict[str, str | None] = {}
    extra = dict(extra_labels(facts)) if facts.offer is not None else _applied(node)
    wanted = {**base_labels(facts.name, facts.cluster_id), **extra}
    labels.update({key: value for key, value in wanted.items() if node.metadata.labels.get(key) != value})
    labels.update({key: None for key in _applied(node) if key not in wanted})
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    # Until the status no longer shows it, one that was offered is no other's.
    shown = applied_resources(node) & (node.status.get("capacity") or {}).keys()
    applied = {
        APPLIED_LABELS: ",".join(sorted(extra)),
        APPLIED_TAINTS: _listed(facts.taints),
        APPLIED_RESOURCES: ",".join(sorted(_extended(facts) | shown)),
    }
    for annotation, listed in applied.items():
        if node.metadata.annotations.get(annotation, "") != listed:
            metadata.setdefault("annotations", {})[annotation] = listed or None
    if (taints := taints_of(node, facts)) is not None:
        # A merge patch replaces the whole list (RFC 7396): with resourceVersion a concurrent change of the taints, as
        # by the node lifecycle controller, makes it fail with 409.
        metadata["resourceVersion"] = node.metadata.resource_version
        patch["spec"] = {"taints": taints}
    if not node.spec.provider_id:
        # It can be set once, and never be changed (Kubernetes, ValidateNodeUpdate).
        patch.setdefault("spec", {})["providerID"] = provider_id(facts)
    if metadata:
        patch["metadata"] = metadata
    return patch


def _applied(node: Node) -> dict[str, str]:
    keys = [key for key in node.metadata.annotations.get(APPLIED_LABELS, "").split(",") if key]
    return {key: node.metadata.labels[key] for key in keys if key in node.metadata.labels}


def status_patch(
    status: Mapping[str, Any], facts: NodeFacts, now: str, applied: Collection[str] = ()
) -> dict[str, Any]:
    """Return the merge patch from a node's status to the desired one; empty if nothing differs.

    Resources that are no longer in the offer are removed (as nulls). Conditions of other writers are kept, and extended
    resources of theirs in the capacity, which a kubelet shows as allocatable, too; ``applied`` are those that were the
    offer's.
    """
    wanted = dict(status)
    if facts.offer is not None:
        others = {
            name: amount
            for name, amount in (status.get("capacity") or {}).items()
            if is_extended(name) and name not in applied
        }
        wanted["capacity"] = {**others, **facts.offer.resources}
        wanted["allocatable"] = {**others, **facts.offer.resources}
    version = (facts.offer.kubernetes_version if facts.offer is not None else "") or facts.home_version
    info = dict(status.get("nodeInfo") or {})
    info.update(_node_info(version or str(info.get("kubeletVersion") or ""), info, facts))
    wanted["nodeInfo"] = info
    wanted["addresses"] = node_addresses(status, facts)
    if facts.port:
        wanted["daemonEndpoints"] = {"kubeletEndpoint": {"Port": facts.port}}
    wanted["conditions"] = conditions(
        status.get("conditions") or [], facts.readiness, now, facts.network, reclaimed=_reclaimed(facts.offer)
    )
    patch = merge_patch(status, wanted)
    return {"status": patch} if patch else {}


def _reclaimed(offer: Offer | None) -> str | None:
    """Return that the lender takes its offer back, as a sentence; empty: it does not; None: not known."""
    if offer is None:
        return None
    if (by := offer.reclaimed_by) is None:
        return ""
    return (
        f"the lender takes back what it lent: nothing new runs there, and from {rfc3339(by)} on it evicts the pods "
        "that do; their controllers make others elsewhere"
    )


_OF_NETWORK: Final = ("NetworkReady", "NetworkDown")


def conditions(
    old: list[dict[str, Any]],
    readiness: Readiness,
    now: str,
    network: Readiness | None = None,
    *,
    reclaimed: str | None = None,
) -> list[dict[str, Any]]:
    """Return the node's conditions, with NetworkUnavailable if a network is managed and its status is known.

    Without a managed network our NetworkUnavailable is removed: the taint that it causes would keep the scheduler from
    the node. While the node is not ready, a status Unknown is kept: the node lifecycle controller writes it when the
    lease expires, and both would overwrite each other. ``reclaimed`` as ``_reclaimed`` returns it.
    """
    wanted = [_condition("Ready", readiness.ready, readiness.reason, readiness.message)]
    for kind in _PRESSURES:
        reason = "RemoteClusterHasNo" + kind
        wanted.append(_condition(kind, False, reason, "the lender's offer is what can be used here"))
    if network is not None and network.known:
        wanted.append(_condition("NetworkUnavailable", not network.ready, network.reason, network.message))
    if reclaimed:
        wanted.append(_condition(RECLAIMED, True, RECLAIMED, reclaimed))
    kept = {condition.get("type"): condition for condition in old}
    if reclaimed == "":
        kept.pop(RECLAIMED, None)
    if network is None and kept.get("NetworkUnavailable", {}).get("reason") in _OF_NETWORK:
        del kept["NetworkUnavailable"]
    result = []
    for condition in wanted:
        before = kept.pop(condition["type"], None)
        if before is not None and _is_unchanged(before, condition, readiness):
            result.append(before)
            continue
        since = now
        if before is not None and before.get("status") == condition["status"]:
            since = before.get("lastTransitionTime") or now
        result.append({**condition, "lastHeartbeatTime": now, "lastTransitionTime": since})
    return [*result, *kept.values()]


def _is_unchanged(before: Mapping[str, Any], condition: Mapping[str, Any], readiness: Readiness) -> bool:
    if not readiness.ready and before.get("status") == "Unknown":
        return True
    return all(before.get(key) == condition[key] for key in ("status", "reason", "message"))


def _condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _platform(known: Mapping[str, Any], facts: NodeFacts) -> tuple[str, str]:
    """Return architecture and operating system, as the labels of the node have them."""
    if facts.offer is None:
        return str(known.get("architecture") or "amd64"), str(known.get("operatingSystem") or "linux")
    labels = {**facts.offer.labels, **facts.labels}
    return labels.get("kubernetes.io/arch", "amd64"), labels.get("kubernetes.io/os", "linux")


def _node_info(version: str, known: Mapping[str, Any], facts: NodeFacts) -> dict[str, str]:
    arch, system = _platform(known, facts)
    # All fields of NodeSystemInfo are required; those without a meaning for a whole cluster are empty.
    empty = dict.fromkeys(
        ("bootID", "containerRuntimeVersion", "kernelVersion", "machineID", "osImage", "systemUUID"), ""
    )
    # kubeProxyVersion is deprecated, and still required by the type (core/v1, NodeSystemInfo).
    own = {"architecture": arch, "operatingSystem": system, "kubeletVersion": version, "kubeProxyVersion": ""}
    return {**empty, **{key: str(value) for key, value in known.items()}, **own}


def forge_lease(name: str, duration: int, now: str, uid: str) -> dict[str, Any]:
    """Return the node's lease; the garbage collector deletes it with its owner, the node.

    By the label an admission policy knows it from those of real nodes, which the daemon's account may not write.
    """
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        # The node lifecycle controller looks for a node's heartbeat in the Lease of the node's name in this namespace.
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "labels": {TYPE_LABEL: VIRTUAL_NODE_TYPE},
            "ownerReferences": [owner],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": now},
    }
