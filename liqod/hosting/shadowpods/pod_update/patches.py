"""JSON patches (RFC 6902) from a changed ShadowPod to its running pod, of the fields that are mutable in a pod.

Each compares the ShadowPod with the record of what the pod was forged from, not with the pod itself, so that changes by
this cluster's own admission are not reverted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from liqod.hosting.shadowpods.admission import check_containers, read_spec
from liqod.hosting.shadowpods.forge import (
    annotations_of,
    decode_record,
    ephemeral_names,
    forged_from,
    is_for_virtual_nodes,
    labels_of,
    record_of,
)
from liqod.hosting.views import FORGED_ANNOTATION, Container, Pod, PodSpec
from liqod.model.names import HOME_SPEC_ANNOTATION, ORIGIN_LABEL
from liqod.model.objects.tolerations import bare
from liqod.model.records.views import MAX_POD_BYTES, ShadowPod


def changes(shadow: ShadowPod, running: Pod, *, spec: bool = True, resized: bool = True) -> list[dict[str, Any]]:
    """Return the JSON patch that brings a pod to its ShadowPod, empty when it is there already.

    Labels and annotations follow the ShadowPod; of the spec what ValidatePodUpdate of Kubernetes lets change: images,
    added tolerations and their seconds, the active deadline (``sizes.resize`` and ``debugging`` are for the rest). With
    ``spec=False`` only the metadata follows (for a pod whose spec change was refused); with ``resized=False`` the pod
    keeps the record of its old size, so that the new one stays wanted. In both cases it keeps the digest of the spec
    that it has, by which the borrower knows. Raises ValueError like ``pod``, and where tolerations that are
    added have no room in the pod.
    """
    before = forged_from(running)
    wanted = read_spec(shadow)
    record = record_of(shadow, wanted, None if resized else before.resources)
    if before.digest == decode_record(record).digest:
        return []
    metadata = running.metadata
    patch = [same_pod(running)]
    # The tenant was determined at the creation; a changed label must not charge the pod to another one.
    origin = {key: value for key, value in metadata.labels.items() if key == ORIGIN_LABEL}
    patch += _map_changes("/metadata/labels", metadata.labels, {**labels_of(shadow), **origin}, before.labels)
    annotations = {**annotations_of(shadow), FORGED_ANNOTATION: record}
    if not (spec and resized):
        annotations.pop(HOME_SPEC_ANNOTATION, None)
        if known := metadata.annotations.get(HOME_SPEC_ANNOTATION):
            annotations[HOME_SPEC_ANNOTATION] = known
    patch += _map_changes("/metadata/annotations", metadata.annotations, annotations, before.annotations)
    return patch + (_spec_changes(wanted, running.spec) if spec else [])


def debugging(shadow: ShadowPod, running: Pod) -> list[dict[str, Any]]:
    """Return the JSON patch for the pod's ``ephemeralcontainers`` subresource; empty when there are no new ones.

    A pod that is created again does not get the ephemeral containers of the previous one: they were started once, for
    debugging that pod. Raises ValueError like ``pod``, and where those that the pod has leave no room for more.
    """
    wanted = read_spec(shadow)
    known = {*forged_from(running).ephemeral, *ephemeral_names(running.spec)}
    added = [one for one in wanted.ephemeral_containers or () if str(one.get("name", "")) not in known]
    if not added:
        return []
    check_containers(running.spec, len(added))
    _check_size(running.spec, added)
    path = "/spec/ephemeralContainers"
    if not running.spec.ephemeral_containers:
        return [same_pod(running), {"op": "add", "path": path, "value": added}]
    return [same_pod(running), *({"op": "add", "path": f"{path}/-", "value": one} for one in added)]


def same_pod(running: Pod) -> dict[str, Any]:
    """Return the operation that fails the whole patch, with 422, for another pod of the same name."""
    return {"op": "test", "path": "/metadata/uid", "value": running.metadata.uid}


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
    new = [t for t in wanted.tolerations or () if t not in known and not is_for_virtual_nodes(t)]
    without_seconds = [bare(t) for t in known]
    added = [t for t in new if bare(t) not in without_seconds]
    patch += [
        {"op": "replace", "path": f"/spec/tolerations/{without_seconds.index(bare(t))}", "value": t}
        for t in new
        if bare(t) in without_seconds
    ]
    if added:
        _check_size(present, added)
    if added and not known:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": added})
    else:
        patch += [{"op": "add", "path": "/spec/tolerations/-", "value": toleration} for toleration in added]
    deadline = wanted.active_deadline_seconds
    if deadline is not None and deadline != present.active_deadline_seconds:
        patch.append({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": deadline})
    return patch


def _check_size(present: PodSpec, added: Sequence[Mapping[str, Any]]) -> None:
    """Check that a pod does not grow without end by what is added and cannot be removed; raises ValueError."""
    size = sum(len(msgspec.json.encode(part)) for part in (present, added))
    if size > MAX_POD_BYTES:
        raise ValueError(f"with what was added before it has {size} bytes, more than the {MAX_POD_BYTES} allowed")


def _image_changes(path: str, wanted: list[Container] | None, present: list[Container] | None) -> list[dict[str, Any]]:
    images = {container.name: container.image for container in wanted or ()}
    return [
        {"op": "replace", "path": f"{path}/{position}/image", "value": image}
        for position, container in enumerate(present or ())
        if (image := images.get(container.name)) and image != container.image
    ]


def _escape(key: str) -> str:
    """Return a key as a JSON pointer's token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
