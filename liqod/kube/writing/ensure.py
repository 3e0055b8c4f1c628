"""Creates or updates one object with the fewest requests: reads it, then creates it or patches the difference."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import Resource


async def ensure(
    client: Client,
    resource: Resource,
    body: Mapping[str, Any],
    fixed: Sequence[str] = (),
    *,
    same: Callable[[Any, Any], bool] = operator.eq,
) -> bool:
    """Create or update an object with the labels and top-level fields of ``body``; return whether it was written.

    Fields of others (labels, annotations) are kept. A difference in one of the ``fixed`` fields, which are immutable
    (roleRef of a binding), replaces the object. ``same`` compares a present field with the wanted one. Raises
    KubeError.
    """
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
    present = await _read(client, resource, name, namespace)
    if present is None:
        try:
            await client.create(resource, body, namespace, view=None)
        except AlreadyExists:
            present = await client.get(resource, name, namespace)
        else:
            return True
    if any(present.get(field) != body.get(field) for field in fixed):
        # Validation rejects an update of an immutable field (422): delete and create. The UID spares a successor.
        await client.delete(resource, name, namespace, uid=present["metadata"]["uid"])
        await client.create(resource, body, namespace, view=None)
        return True
    patch = difference(present, body, same)
    if patch:
        await client.patch(resource, name, patch, namespace, kind="merge", view=None)
    return bool(patch)


def difference(
    present: Mapping[str, Any], wanted: Mapping[str, Any], same: Callable[[Any, Any], bool] = operator.eq
) -> dict[str, Any]:
    """Return the merge patch of the labels and top-level fields that differ from ``wanted``; empty if none do."""
    patch: dict[str, Any] = {
        field: value
        for field, value in wanted.items()
        if field not in ("apiVersion", "kind", "metadata", "status") and not same(present.get(field), value)
    }
    known = present["metadata"].get("labels") or {}
    labels = {key: value for key, value in wanted["metadata"].get("labels", {}).items() if known.get(key) != value}
    if labels:
        patch["metadata"] = {"labels": labels}
    return patch


async def _read(client: Client, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None
