"""Creates or updates one object with the fewest requests: reads it, then creates it or patches the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.manifests import covers
from liqod.kube.resources import Resource
from liqod.kube.writing.merge_patch import merge_patch
from liqod.model.digests import short_digest

Outcome = Literal["", "created", "changed"]
"""What became of an object: nothing where it was as it should be."""
APPLIED_ANNOTATION: Final = "liqo.io/applied"
"""The digest of the fields that were last written, on objects to which the API server adds defaults.

What is there and not wanted is a default, or a leftover of an earlier release or setting: only this tells which.
"""


async def ensure(
    client: Client,
    resource: Resource,
    body: Mapping[str, Any],
    fixed: Sequence[str] = (),
    *,
    defaulted: bool = False,
) -> Outcome:
    """Create or update an object with the labels and top-level fields of ``body``; return whether it was, and how.

    Fields of others (labels, annotations) are kept. A difference in one of the ``fixed`` fields, which are immutable
    (roleRef of a binding), replaces the object. ``defaulted``: the API server adds fields inside of those of ``body``,
    which are no difference. Raises KubeError.
    """
    if defaulted:
        body = marked(body)
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
    present = await _read(client, resource, name, namespace)
    if present is None:
        try:
            await client.create(resource, body, namespace, view=None)
        except AlreadyExists:
            present = await client.get(resource, name, namespace)
        else:
            return "created"
    if any(present.get(field) != body.get(field) for field in fixed):
        # Validation rejects an update of an immutable field (422): delete and create. The UID spares a successor.
        await client.delete(resource, name, namespace, uid=present["metadata"]["uid"])
        await client.create(resource, body, namespace, view=None)
        return "changed"
    patch = difference(present, body, defaulted=defaulted)
    if patch:
        await client.patch(resource, name, patch, namespace, kind="merge", view=None)
    return "changed" if patch else ""


def difference(present: Mapping[str, Any], wanted: Mapping[str, Any], *, defaulted: bool = False) -> dict[str, Any]:
    """Return the merge patch of the labels and top-level fields that differ from ``wanted``; empty if none do.

    It removes what ``wanted`` has not from the fields that differ: the API server sets its defaults again.
    """
    meta = present["metadata"]
    digest = wanted["metadata"].get("annotations", {}).get(APPLIED_ANNOTATION) if defaulted else None
    # Without the annotation an object is an earlier release's, which wrote none: what it has more counts as defaults.
    leftovers = digest is not None and (meta.get("annotations") or {}).get(APPLIED_ANNOTATION, digest) != digest
    patch: dict[str, Any] = {}
    for field, value in _fields(wanted).items():
        there = present.get(field)
        if defaulted and not leftovers and covers(there, value):
            continue
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(there, value):
                patch[field] = inner
        elif there != value:
            patch[field] = value
    known = meta.get("labels") or {}
    labels = {key: value for key, value in wanted["metadata"].get("labels", {}).items() if known.get(key) != value}
    changed: dict[str, Any] = {"labels": labels} if labels else {}
    if digest is not None and (patch or leftovers):
        changed["annotations"] = {APPLIED_ANNOTATION: digest}
    return {**patch, "metadata": changed} if changed else patch


def marked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the digest of its fields as an annotation."""
    meta = body["metadata"]
    annotations = {**meta.get("annotations", {}), APPLIED_ANNOTATION: short_digest(_fields(body))}
    return {**body, "metadata": {**meta, "annotations": annotations}}


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level fields that are the writer's."""
    return {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata", "status")}


async def _read(client: Client, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None
