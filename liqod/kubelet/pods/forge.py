"""Forges the ShadowPod at the lender from a home pod (spec 004, "Pods offloading").

The spec is copied except for the fields that refer to the home cluster (scheduling, service account) and those that
give access to the lender's hosts (host namespaces).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import FORGED_ANNOTATION, remote_annotations, remote_labels
from liqod.kubelet.node.tolerations import original_tolerations
from liqod.kubelet.pods.affinity import preset_affinity, spread_constraints
from liqod.kubelet.pods.offloading_patch import PATCHED_ANNOTATION, placement_digest
from liqod.kubelet.tokens.projection import forge_access
from liqod.model.digests import short_digest
from liqod.model.names import (
    HOME_SPEC_ANNOTATION,
    NETWORK_POLICIES_ANNOTATION,
    NETWORK_POLICIES_SENT,
    RUNTIME_CLASS,
    TAINT_KEY,
)
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.quantity import is_extended
from liqod.model.records.name_service import DOMAIN_ANNOTATION

REMOTE_RUNTIME_CLASS: Final = "liqo.io/remote-runtime-class-name"

REMOVED: Final = frozenset(
    {
        # Nodes, schedulers and priority classes are those of home; the lender schedules by its own.
        "affinity",
        "nodeSelector",
        "schedulerName",
        # Admission refuses a priority other than that of the PriorityClass (plugin Priority), and classes are the
        # lender's.
        "priority",
        "priorityClassName",
        "preemptionPolicy",
        "nodeName",
        # Admission refuses an overhead other than that of the RuntimeClass (plugin RuntimeClass), which is the
        # lender's.
        "overhead",
        # The pod was scheduled at home already, onto the virtual node.
        "schedulingGates",
        # ResourceClaims are objects of home, with devices of its nodes.
        "resourceClaims",
        "runtimeClassName",
        "workloadRef",
        "schedulingGroup",
    }
)
HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")
_CONTAINERS: Final = ("containers", "initContainers")
_SPREAD: Final = "topologySpreadConstraints"
_AS_FQDN: Final = "setHostnameAsFQDN"
_LONGEST_HOSTNAME: Final = 64
_DOMAIN: Final = ".svc.cluster.local"


def forge_spec(meta: ObjectMeta, spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the pod spec for the lender; the argument is not modified."""
    kept = {key: value for key, value in spec.items() if key not in REMOVED}
    forged = forge_access(meta, kept, context)
    for kind in _CONTAINERS:
        if forged.get(kind):
            forged[kind] = [_container(container, spec, context.offered.value) for container in forged[kind]]
    if forged.get("volumes"):
        forged["volumes"] = [_volume(volume, meta.name, context) for volume in forged["volumes"]]
    patch = context.patch.value
    tolerations = forge_tolerations(meta, spec)
    tolerations += [toleration for toleration in patch.tolerations if toleration not in tolerations]
    if tolerations:
        forged["tolerations"] = tolerations
    else:
        forged.pop("tolerations", None)
    affinity = preset_affinity(spec, meta.labels, meta.annotations, context) or {}
    if patch.affinity.node_affinity:
        affinity["nodeAffinity"] = patch.affinity.node_affinity
    if affinity:
        forged["affinity"] = affinity
    if patch.node_selector:
        forged["nodeSelector"] = patch.node_selector
    if forged.get(_SPREAD):
        forged[_SPREAD] = spread_constraints(forged[_SPREAD], meta.annotations)
    if runtime_class := _runtime_class(meta, spec, patch.runtime_class_name):
        forged["runtimeClassName"] = runtime_class
    # In the node's Linux namespaces a pod would see the lender's processes and its network.
    for namespace in HOST_NAMESPACES:
        forged[namespace] = False
    return forged


def forge_tolerations(meta: ObjectMeta, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the original tolerations without the one for virtual nodes.

    Tolerations that liqod extended to prevent eviction are returned as the user wrote them.
    """
    tolerations = original_tolerations(spec.get("tolerations") or [], meta.annotations)
    return [toleration for toleration in tolerations if toleration.get("key") != TAINT_KEY]


def _runtime_class(meta: ObjectMeta, spec: Mapping[str, Any], patched: str) -> str:
    """Return the runtime class at the lender: the annotation's, else the pod's own, else that of the patch."""
    own = spec.get("runtimeClassName") or ""
    chosen = meta.annotations.get(REMOTE_RUNTIME_CLASS) or (patched if own in ("", RUNTIME_CLASS) else own)
    return "" if chosen == RUNTIME_CLASS else chosen


def _volume(volume: dict[str, Any], pod: str, context: Context) -> dict[str, Any]:
    """Return a volume; a generic ephemeral one whose claim is reflected refers to that claim.

    Copied as it is, it would make the lender create a claim of the same name as the reflected one.
    """
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
    if not template or not context.services.follows((template.get("spec") or {}).get("storageClassName") or ""):
        return volume
    # Source: Kubernetes, "Ephemeral Volumes", PersistentVolumeClaim naming.
    rest = {key: value for key, value in volume.items() if key != "ephemeral"}
    return {**rest, "persistentVolumeClaim": {"claimName": f"{pod}-{volume.get('name', '')}"}}


def _container(container: dict[str, Any], spec: Mapping[str, Any], offered: Collection[str] | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    resources = container.get("resources") or {}
    lent = {key: _offered(value, offered) for key, value in resources.items() if key != "claims"}
    if lent != resources:
        changes["resources"] = lent
    ports = container.get("ports")
    if spec.get("hostNetwork") and ports:
        # With hostNetwork the API server defaults hostPort to containerPort (pkg/apis/core/v1/defaults.go,
        # defaultHostNetworkPorts); at the lender that would reserve ports of its nodes.
        changes["ports"] = [{key: value for key, value in port.items() if key != "hostPort"} for port in ports]
    return {**container, **changes} if changes else container


def _offered(amounts: Mapping[str, Any], offered: Collection[str] | None) -> dict[str, Any]:
    """Return amounts without those of extended resources that the lender does not offer.

    Home has given its virtual node such a resource and counts it; no node of the lender has it. A kubelet ignores those
    that its node does not have as well (pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources).
    """
    return {name: one for name, one in amounts.items() if offered is None or name in offered or not is_extended(name)}


def forge_shadow(meta: ObjectMeta, spec: Mapping[str, Any], namespace: str, context: Context) -> dict[str, Any]:
    """Return the ShadowPod of a home pod, to be created in the remote namespace."""
    labels, annotations = _metadata(meta, spec, context)
    if patched := placement_digest(context.patch.value):
        annotations[PATCHED_ANNOTATION] = patched
    forged = forge_spec(meta, spec, context)
    if forged.get(_AS_FQDN) and not _fits_as_hostname(meta.name, spec, namespace):
        del forged[_AS_FQDN]
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "ShadowPod",
        "metadata": {"name": meta.name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {"pod": forged},
    }


def _fits_as_hostname(name: str, spec: Mapping[str, Any], namespace: str) -> bool:
    """Return whether a pod's FQDN at the lender can be the hostname of its containers.

    The Linux kernel allows 64 characters, and no kubelet starts a pod with setHostnameAsFQDN and a longer name; names
    of remote namespaces are long. Source: kubelet, pkg/kubelet/util/util.go, GetNodenameForKernel.
    """
    subdomain = spec.get("subdomain")
    whole = f"{spec.get('hostname') or name[:63]}.{subdomain}.{namespace}{_DOMAIN}" if subdomain else ""
    return len(whole) <= _LONGEST_HOSTNAME


def digest_of(meta: ObjectMeta, spec: Mapping[str, Any], context: Context) -> str:
    """Return the digest (16 hex digits) of the fields whose changes at home are applied to an existing ShadowPod."""
    labels, annotations = remote_labels(meta.labels, context), remote_annotations(meta.annotations, meta.uid, context)
    return _digest_of_all(labels, annotations, _mutable(meta, spec), context)


def digest_in(patch: Mapping[str, Any]) -> str:
    """Return the digest that a patch of a ShadowPod brings; empty for one that only adds a note to it."""
    return str(patch["metadata"]["annotations"].get(FORGED_ANNOTATION) or "")


def digest_of_spec(meta: ObjectMeta, spec: Mapping[str, Any]) -> str:
    """Return the digest of the fields of a spec that can change while the pod exists."""
    return short_digest(_mutable(meta, spec))


def forge_patch(meta: ObjectMeta, spec: Mapping[str, Any], shadow: ObjectMeta, context: Context) -> dict[str, Any]:
    """Return the merge patch that updates an existing ShadowPod; its UID is the precondition.

    Sent are the fields that Kubernetes lets change in an existing pod, within whole containers, and what these need
    beside them should the lender create the pod once more.
    """
    labels, annotations = _metadata(meta, spec, context)
    if PATCHED_ANNOTATION in shadow.annotations:
        # Where a pod may run and in what runtime never changes: it is what the ShadowPod was created with.
        annotations[PATCHED_ANNOTATION] = shadow.annotations[PATCHED_ANNOTATION]
    whole = forge_spec(meta, spec, context)
    pod: dict[str, Any] = {kind: whole[kind] for kind in (*_CONTAINERS, "ephemeralContainers") if whole.get(kind)}
    pod["tolerations"] = whole.get("tolerations")
    pod["activeDeadlineSeconds"] = whole.get("activeDeadlineSeconds")
    if whole.get("resources"):
        pod["resources"] = whole["resources"]
    # The containers' environment and these belong together.
    pod["hostAliases"] = whole.get("hostAliases")
    return {
        "metadata": {
            "uid": shadow.uid,
            "labels": _changes(shadow.labels, labels),
            "annotations": _changes(shadow.annotations, annotations),
        },
        "spec": {"pod": pod},
    }


def _metadata(meta: ObjectMeta, spec: Mapping[str, Any], context: Context) -> tuple[dict[str, str], dict[str, str]]:
    labels = remote_labels(meta.labels, context)
    annotations = remote_annotations(meta.annotations, meta.uid, context)
    mutable = _mutable(meta, spec)
    annotations[FORGED_ANNOTATION] = _digest_of_all(labels, annotations, mutable, context)
    annotations[HOME_SPEC_ANNOTATION] = short_digest(mutable)
    # Not in the digest: it is for pods that are created, and of those that run nothing changes by it.
    annotations[DOMAIN_ANNOTATION] = context.domain
    if context.policies.value.get(meta.namespace):
        annotations[NETWORK_POLICIES_ANNOTATION] = NETWORK_POLICIES_SENT
    return labels, annotations


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {key: value for key, value in new.items() if old.get(key) != value}
    # In a merge patch null removes a key (RFC 7396).
    changes.update({key: None for key in old if key not in new})
    return changes


def _mutable(meta: ObjectMeta, spec: Mapping[str, Any]) -> list[Any]:
    containers = [
        [(c.get("name"), c.get("image"), _resizable(c.get("resources") or {})) for c in spec.get(kind) or []]
        for kind in _CONTAINERS
    ]
    ephemeral = [c.get("name") for c in spec.get("ephemeralContainers") or []]
    tolerations, deadline = forge_tolerations(meta, spec), spec.get("activeDeadlineSeconds")
    mutable = [containers, ephemeral, tolerations, deadline]
    # Resources of the pod as a whole can be resized like those of containers (KEP-5419); most pods have none.
    return [*mutable, _resizable(spec["resources"])] if spec.get("resources") else mutable


def _digest_of_all(
    labels: Mapping[str, str], annotations: Mapping[str, str], mutable: list[Any], context: Context
) -> str:
    # Of the patch only tolerations can be added to a pod that exists; most patches have none.
    tolerations = context.patch.value.tolerations
    return short_digest([labels, annotations, *mutable, *([{"patch": tolerations}] if tolerations else [])])


def _resizable(resources: Mapping[str, Any]) -> list[Any]:
    return [resources.get("requests"), resources.get("limits")]
