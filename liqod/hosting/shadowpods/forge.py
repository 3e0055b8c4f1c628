"""Forges the Pod of a ShadowPod: the body of the pod to create, and the record of what it was forged from.

The spec is the borrower's, except for what would reach beyond its namespaces: the host's network, process and IPC
namespaces, a node chosen past the scheduler, priorities of this cluster, tokens of its service accounts but those that
are granted, pods and data of others (``pod_restrictions``). A pod is never scheduled to a virtual node here: what is
lent is lent once.

An annotation of the pod has a digest of the mutable part that it was forged from, and the names of the labels and
annotations that came from the ShadowPod. A change is therefore detected after any restart, and what this cluster's own
admission webhooks changed in the pod is not reverted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from liqod.hosting.shadowpods import pod_restrictions
from liqod.hosting.shadowpods.admission import read_spec
from liqod.hosting.shadowpods.validation import items_in, mapping_in
from liqod.hosting.tenants.admission.pod_shape import DEFAULT_ACCOUNT, DROPPED
from liqod.hosting.views import (
    FORGED_ANNOTATION,
    SHADOW_POD_GROUP,
    SHADOW_POD_KIND,
    Container,
    Pod,
    PodSpec,
    Toleration,
)
from liqod.model.digests import long_digest
from liqod.model.names import (
    CLOSED_LABEL,
    ISOLATED_LABEL,
    MANAGED_BY_LABEL,
    MANAGED_BY_SHADOWPOD,
    ORIGIN_LABEL,
    SHADOW_POD_LABEL,
    TAINT_KEY,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)
from liqod.model.objects.meta import from_json
from liqod.model.records.views import ShadowPod

API_VERSION: Final = SHADOW_POD_GROUP + "v1beta1"
MAX_GRACE: Final = 3600
"""Seconds of the longest termination grace period: it bounds how long a dismissed tenant's pods can terminate."""

_FORCED: Final = {"hostNetwork": False, "hostPID": False, "hostIPC": False, "automountServiceAccountToken": False}
_OWN_LABELS: Final = frozenset((MANAGED_BY_LABEL, SHADOW_POD_LABEL, ISOLATED_LABEL, CLOSED_LABEL))
# Mirror pods (kubernetes.io/config.mirror) are static pods of a kubelet: the API server exempts them from much of the
# admission, so no borrower may create one. The borrower's own record of how it forged the ShadowPod is not for the pod.
_OWN_ANNOTATIONS: Final = ("kubernetes.io/config.", "kubectl.kubernetes.io/", "offloading.liqo.io/forged")
_OFF_VIRTUAL_NODES: Final = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}


class Forged(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod was forged from; ``ephemeral`` names the debug containers that must not be added again."""

    digest: str = ""
    labels: list[str] = []
    annotations: list[str] = []
    resources: str = ""
    ephemeral: list[str] = []


def pod(shadow: ShadowPod, priority_class: str = "", accounts: Collection[str] = ()) -> dict[str, Any]:
    """Return the body of the pod to create, of a priority class; raises ValueError for a spec that is not one.

    ``accounts`` are the service accounts that it may run as.
    """
    tenant = shadow.metadata.labels.get(ORIGIN_LABEL, "")
    spec = spec_of(from_json(shadow.spec.pod), tenant, accounts)
    if priority_class:
        spec["priorityClassName"] = priority_class
    labels, annotations = labels_of(shadow), annotations_of(shadow)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": shadow.metadata.name,
            "namespace": shadow.metadata.namespace,
            "labels": {**labels, MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD},
            "annotations": {**annotations, FORGED_ANNOTATION: record_of(shadow, read_spec(shadow))},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": SHADOW_POD_KIND,
                    "name": shadow.metadata.name,
                    "uid": shadow.metadata.uid,
                    # `kubectl drain` refuses to evict a pod without a controller unless it is forced (kubectl,
                    # pkg/drain/filters.go).
                    "controller": True,
                    # True needs the right to update the owner's finalizers (plugin
                    # OwnerReferencesPermissionEnforcement).
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def spec_of(wanted: Any, tenant: str, accounts: Collection[str] = ()) -> dict[str, Any]:
    """Return a pod spec with what is enforced here; forging is idempotent.

    Raises ValueError for a field of the wrong type, and for volumes that a borrower may not have.
    """
    given = mapping_in(wanted, "spec")
    spec = {key: value for key, value in given.items() if key not in DROPPED}
    spec |= _FORCED
    account = account_of(given)
    if account in accounts:
        spec |= {"serviceAccountName": account, "automountServiceAccountToken": True}
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and not isinstance(grace, int | float):
        raise ValueError("spec.terminationGracePeriodSeconds is not a number")
    if grace is not None and grace > MAX_GRACE:
        spec["terminationGracePeriodSeconds"] = MAX_GRACE
    tolerations = [t for t in items_in(spec.get("tolerations"), "spec.tolerations") if not is_for_virtual_nodes(t)]
    if "tolerations" in spec:
        spec["tolerations"] = tolerations
    pod_restrictions.check_volumes(items_in(spec.get("volumes"), "spec.volumes"), tokens=account in accounts)
    affinity = pod_restrictions.pod_affinity(mapping_in(spec.get("affinity"), "spec.affinity"), tenant)
    spec["affinity"] = affinity | {
        "nodeAffinity": pod_restrictions.only_nodes(
            mapping_in(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity"), [_OFF_VIRTUAL_NODES]
        )
    }
    return spec


def account_of(spec: Mapping[str, Any]) -> str:
    """Return the service account of this cluster whose token a pod asks for; empty if it asks for none."""
    if spec.get("automountServiceAccountToken") is not True:
        return ""
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT)


def ephemeral_names(spec: PodSpec) -> list[str]:
    """Return the names of a pod's ephemeral containers (Kubernetes: "Ephemeral Containers")."""
    return [str(one.get("name", "")) for one in spec.ephemeral_containers or ()]


def _resizable(spec: PodSpec) -> list[Container]:
    # Init containers with restartPolicy Always run on beside the others (Kubernetes, "Sidecar Containers"), and only
    # these can be resized (KEP-1287).
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    return [*(spec.containers or ()), *sidecars]


def forged_from(running: Pod) -> Forged:
    """Return the record of what a pod was forged from; an empty one where there is none that can be decoded."""
    return decode_record(running.metadata.annotations.get(FORGED_ANNOTATION, "{}"))


def digest_of(shadow: ShadowPod) -> str:
    """Return the digest of the mutable part of a ShadowPod; raises ValueError like ``pod``."""
    return decode_record(record_of(shadow, read_spec(shadow))).digest


def size_of(shadow: ShadowPod) -> str:
    """Return the digest of the resources that a ShadowPod requests; raises ValueError like ``pod``."""
    return decode_record(record_of(shadow, read_spec(shadow))).resources


def labels_of(shadow: ShadowPod) -> dict[str, str]:
    """Return the labels that the pod gets from its ShadowPod."""
    return {key: value for key, value in shadow.metadata.labels.items() if key not in _OWN_LABELS}


def annotations_of(shadow: ShadowPod) -> dict[str, str]:
    """Return the annotations that the pod gets from its ShadowPod."""
    return {key: value for key, value in shadow.metadata.annotations.items() if not key.startswith(_OWN_ANNOTATIONS)}


def record_of(shadow: ShadowPod, spec: PodSpec, size: str | None = None) -> str:
    """Return the annotation with the record of what a pod is forged from.

    ``size`` is the digest of the resources of a pod that could not be resized to the wanted ones.
    """
    labels, annotations = labels_of(shadow), annotations_of(shadow)
    images = [(c.name, c.image) for c in (*(spec.containers or ()), *(spec.init_containers or ()))]
    asked: list[Any] = [(c.name, c.resources) for c in _resizable(spec)]
    resources = long_digest([*asked, *([spec.resources] if spec.resources else ())], 12) if size is None else size
    ephemeral = sorted(ephemeral_names(spec))
    mutable = [labels, annotations, images, spec.tolerations or [], spec.active_deadline_seconds, resources, ephemeral]
    return msgspec.json.encode(
        Forged(long_digest(mutable, 12), sorted(labels), sorted(annotations), resources, ephemeral)
    ).decode()


def decode_record(text: str) -> Forged:
    """Decode that annotation; an empty record for what cannot be decoded."""
    try:
        return msgspec.json.decode(text, type=Forged)
    except msgspec.MsgspecError:
        return Forged()


def is_for_virtual_nodes(toleration: Toleration) -> bool:
    """Return whether a toleration is for the taint of virtual nodes."""
    return toleration.get("key") == TAINT_KEY
