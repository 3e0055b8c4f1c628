"""ShadowPod -> Pod: what the API server is asked to run for a borrower, and what a later change of the ShadowPod asks
of it.

The spec is the borrower's, word for word, except for what would reach beyond its namespaces: the host's network,
process and IPC namespaces, a node chosen past the scheduler, priorities of this cluster, tokens of its service
accounts. A pod never lands on a virtual node here: what is lent is lent once.

Each pod carries, in one annotation, a digest of the changeable part it was forged from and the names of the labels
and annotations that came from the ShadowPod. A change is therefore seen after any restart, and what this cluster's
own admission webhooks did to the pod is never fought over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from liqod.hosting.admit import read_spec
from liqod.hosting.views import SHADOW_POD_GROUP, SHADOW_POD_KIND, Container, Pod, PodSpec, Toleration
from liqod.model.names import (
    MANAGED_BY_LABEL,
    MANAGED_BY_SHADOWPOD,
    ORIGIN_LABEL,
    SHADOW_POD_LABEL,
    TAINT_KEY,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)
from liqod.model.records import ShadowPod

FORGED_ANNOTATION: Final = "offloading.liqo.io/forged-from"
API_VERSION: Final = SHADOW_POD_GROUP + "v1beta1"
MAX_GRACE: Final = 3600
"""Seconds. A pod may not ask for more time to end: a tenant that is dismissed must be gone at some time."""

_DROPPED: Final = (
    "nodeName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "ephemeralContainers",
)
_FORCED: Final = {"hostNetwork": False, "hostPID": False, "hostIPC": False, "automountServiceAccountToken": False}
_OWN_LABELS: Final = frozenset((MANAGED_BY_LABEL, SHADOW_POD_LABEL))
# Mirror pods (kubernetes.io/config.mirror) pass admission unseen; no borrower may make one. What the borrower noted for
# itself about how it forged the ShadowPod is not for the pod.
_OWN_ANNOTATIONS: Final = ("kubernetes.io/config.", "kubectl.kubernetes.io/", "offloading.liqo.io/forged")
_OFF_VIRTUAL_NODES: Final = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}


class Forged(msgspec.Struct, frozen=True):
    """What a pod was forged from."""

    digest: str = ""
    labels: list[str] = []
    annotations: list[str] = []


def pod(shadow: ShadowPod) -> dict[str, Any]:
    """Return the body of the pod to create; raises ValueError when the opaque spec has not the shape of one."""
    labels, annotations = _labels(shadow), _annotations(shadow)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": shadow.metadata.name,
            "namespace": shadow.metadata.namespace,
            "labels": {**labels, MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD},
            "annotations": {**annotations, FORGED_ANNOTATION: _record(shadow, read_spec(shadow))},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": SHADOW_POD_KIND,
                    "name": shadow.metadata.name,
                    "uid": shadow.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec_of(msgspec.json.decode(shadow.spec.pod)),
    }


def spec_of(wanted: Any) -> dict[str, Any]:
    """Return a pod spec with what is enforced here; forging twice changes nothing more. Raises ValueError for a wrong
    shape.
    """
    spec = {key: value for key, value in _mapping(wanted, "spec").items() if key not in _DROPPED}
    spec |= _FORCED
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int | float) and grace > MAX_GRACE:
        spec["terminationGracePeriodSeconds"] = MAX_GRACE
    tolerations = [t for t in _items(spec.get("tolerations"), "spec.tolerations") if not _is_for_virtual_nodes(t)]
    if "tolerations" in spec:
        spec["tolerations"] = tolerations
    affinity = dict(_mapping(spec.get("affinity"), "spec.affinity"))
    spec["affinity"] = affinity | {
        "nodeAffinity": _off_virtual_nodes(_mapping(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity"))
    }
    return spec


def changes(shadow: ShadowPod, running: Pod, *, spec: bool = True) -> list[dict[str, Any]]:
    """Return the JSON patch that brings a pod to its ShadowPod, empty when it is there already.

    Labels and annotations follow the ShadowPod; of the spec, what Kubernetes lets change in place: images, added
    tolerations, the active deadline. With ``spec=False`` only the metadata follows (for a pod whose spec change was
    refused). Raises ValueError like ``pod``.
    """
    before = forged_from(running)
    wanted = read_spec(shadow)
    record = _record(shadow, wanted)
    if before.digest == _decode_record(record).digest:
        return []
    metadata = running.metadata
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}]
    # Whose pod it is was settled when it was made; a label rewritten later must not move it to another tenant.
    origin = {key: value for key, value in metadata.labels.items() if key == ORIGIN_LABEL}
    patch += _map_changes("/metadata/labels", metadata.labels, {**_labels(shadow), **origin}, before.labels)
    annotations = {**_annotations(shadow), FORGED_ANNOTATION: record}
    patch += _map_changes("/metadata/annotations", metadata.annotations, annotations, before.annotations)
    return patch + (_spec_changes(wanted, running.spec) if spec else [])


def forged_from(running: Pod) -> Forged:
    """Return what a pod says it was forged from; nothing when it does not say so legibly."""
    return _decode_record(running.metadata.annotations.get(FORGED_ANNOTATION, "{}"))


def digest_of(shadow: ShadowPod) -> str:
    """Return the digest of the changeable part of a ShadowPod; raises ValueError like ``pod``."""
    return _decode_record(_record(shadow, read_spec(shadow))).digest


def _labels(shadow: ShadowPod) -> dict[str, str]:
    return {key: value for key, value in shadow.metadata.labels.items() if key not in _OWN_LABELS}


def _annotations(shadow: ShadowPod) -> dict[str, str]:
    return {key: value for key, value in shadow.metadata.annotations.items() if not key.startswith(_OWN_ANNOTATIONS)}


def _record(shadow: ShadowPod, spec: PodSpec) -> str:
    labels, annotations = _labels(shadow), _annotations(shadow)
    images = [(c.name, c.image) for c in (*(spec.containers or ()), *(spec.init_containers or ()))]
    seen = [labels, annotations, images, spec.tolerations or [], spec.active_deadline_seconds]
    digest = hashlib.blake2b(msgspec.json.encode(seen, order="deterministic"), digest_size=12).hexdigest()
    return msgspec.json.encode(Forged(digest, sorted(labels), sorted(annotations))).decode()


def _decode_record(text: str) -> Forged:
    try:
        return msgspec.json.decode(text, type=Forged)
    except msgspec.MsgspecError:
        return Forged()


def _map_changes(
    path: str, present: Mapping[str, str], wanted: Mapping[str, str], ours: Iterable[str]
) -> list[dict[str, Any]]:
    if not present:
        return [{"op": "add", "path": path, "value": dict(wanted)}] if wanted else []
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": f"{path}/{_escape(key)}", "value": wanted[key]}
        for key in sorted(wanted)
        if present.get(key) != wanted[key]
    ]
    patch += [
        {"op": "remove", "path": f"{path}/{_escape(key)}"} for key in ours if key in present and key not in wanted
    ]
    return patch


def _spec_changes(wanted: PodSpec, present: PodSpec) -> list[dict[str, Any]]:
    patch = _image_changes("/spec/containers", wanted.containers, present.containers)
    patch += _image_changes("/spec/initContainers", wanted.init_containers, present.init_containers)
    known = present.tolerations or []
    added = [t for t in wanted.tolerations or () if t not in known and not _is_for_virtual_nodes(t)]
    if added and not known:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": added})
    else:
        patch += [{"op": "add", "path": "/spec/tolerations/-", "value": toleration} for toleration in added]
    deadline = wanted.active_deadline_seconds
    if deadline is not None and deadline != present.active_deadline_seconds:
        patch.append({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": deadline})
    return patch


def _image_changes(path: str, wanted: list[Container] | None, present: list[Container] | None) -> list[dict[str, Any]]:
    images = {container.name: container.image for container in wanted or ()}
    return [
        {"op": "replace", "path": f"{path}/{position}/image", "value": image}
        for position, container in enumerate(present or ())
        if (image := images.get(container.name)) and image != container.image
    ]


def _off_virtual_nodes(affinity: Mapping[str, Any]) -> dict[str, Any]:
    where = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    required = _mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), where)
    terms = []
    for term in _items(required.get("nodeSelectorTerms"), f"{where}.nodeSelectorTerms"):
        expressions = list(_items(_mapping(term, where).get("matchExpressions"), f"{where}.matchExpressions"))
        # An empty term matches no node; an expression added to it would make it match some.
        if (expressions or term.get("matchFields")) and _OFF_VIRTUAL_NODES not in expressions:
            term = {**term, "matchExpressions": [*expressions, _OFF_VIRTUAL_NODES]}
        terms.append(term)
    return {
        **affinity,
        "requiredDuringSchedulingIgnoredDuringExecution": {
            **required,
            "nodeSelectorTerms": terms or [{"matchExpressions": [_OFF_VIRTUAL_NODES]}],
        },
    }


def _is_for_virtual_nodes(toleration: Toleration) -> bool:
    return toleration.get("key") == TAINT_KEY


def _escape(key: str) -> str:
    """Return a key as a JSON pointer's token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not a mapping")
    return value


def _items(value: Any, where: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{where} is not a list of mappings")
    return value
