"""JSON patches (RFC 6902) for the ``resize`` subresource of a running pod, from its changed ShadowPod. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liqod.hosting.shadowpods.admission import read_spec
from liqod.hosting.shadowpods.forge import decode_record, forged_from, record_of
from liqod.hosting.shadowpods.pod_update.patches import same_pod
from liqod.hosting.views import Container, Pod, PodSpec, QuantityText, Requirements
from liqod.model.objects.quantity import parse
from liqod.model.records.views import ShadowPod


def resize(shadow: ShadowPod, running: Pod, limited: PodSpec | None = None) -> list[dict[str, Any]]:
    """Return the JSON patch for the pod's ``resize`` subresource; empty when the ShadowPod wants what the pod was
    forged from.

    Only CPU and memory can be resized in place, of containers, sidecars (KEP-1287) and the pod (KEP-5419). What this
    cluster's admission changed in them stays as long as the borrower does not change them. ``limited`` is the spec with
    the limits that the pod may have, should those be others than the borrower wants. Raises ValueError like ``pod``.
    """
    wanted = read_spec(shadow)
    if forged_from(running).resources == decode_record(record_of(shadow, wanted)).resources:
        return []
    wanted = limited or wanted
    patch = _resource_changes("/spec/containers", wanted.containers, running.spec.containers)
    patch += _resource_changes("/spec/initContainers", wanted.init_containers, running.spec.init_containers)
    patch += _requirement_changes("/spec/resources", wanted.resources, running.spec.resources)
    return [same_pod(running), *patch] if patch else []


def _resource_changes(
    path: str, wanted: list[Container] | None, present: list[Container] | None
) -> list[dict[str, Any]]:
    by_name = {container.name: container for container in wanted or ()}
    patch: list[dict[str, Any]] = []
    for position, container in enumerate(present or ()):
        if (asked := by_name.get(container.name)) is not None:
            patch += _requirement_changes(f"{path}/{position}/resources", asked.resources, container.resources)
    return patch


def _requirement_changes(path: str, wanted: Requirements | None, present: Requirements | None) -> list[dict[str, Any]]:
    if wanted is None:
        return []
    before = present or Requirements()
    parts = [("requests", wanted.requests, before.requests), ("limits", wanted.limits, before.limits)]
    changed = {name: _changed(old or {}, new or {}) for name, new, old in parts}
    if not any(changed.values()):
        return []
    patch: list[dict[str, Any]] = []
    if present is None:
        patch.append({"op": "add", "path": path, "value": {}})
    for name, _, old in parts:
        if not changed[name]:
            continue
        at = f"{path}/{name}"
        if old:
            patch += [{"op": "add", "path": f"{at}/{key}", "value": value} for key, value in changed[name].items()]
        else:
            patch.append({"op": "add", "path": at, "value": changed[name]})
    return patch


def _changed(old: Mapping[str, QuantityText], new: Mapping[str, QuantityText]) -> dict[str, QuantityText]:
    """Return the CPU and memory quantities that differ from the old ones."""
    return {
        key: new[key]
        for key in ("cpu", "memory")
        if key in new and (key not in old or _amount(old[key]) != _amount(new[key]))
    }


def _amount(text: QuantityText) -> object:
    try:
        return parse(str(text))
    except ValueError:
        return text
