"""Decides the next step for one reflected object: one pure function for all kinds.

Decide only after both caches have synced: before, a missing object may exist. An object at the lender is ours by its
labels (the cache holds no others); one that equals the desired state is never written.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from liqod.kube.writing.merge_patch import merge_patch
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.reflection.forge.reflected import DesiredObject, Withheld, metadata_patch
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.views import Reflectable


@frozen
class Create:
    """Create the object; an existing object of that name is not adopted."""

    body: dict[str, Any] = field(repr=False)


@frozen
class Patch:
    """Update the object by a merge patch (RFC 7396) with its UID as precondition."""

    patch: dict[str, Any] = field(repr=False)


@frozen
class Delete:
    """Delete the object that has this UID; ``again``: it is created again after that."""

    uid: str
    again: bool = False


@frozen
class Keep:
    """Do nothing; ``why`` explains it in diagnostics."""

    why: str = ""


@frozen
class Skip:
    """Do nothing, because an object that is not ours has the name."""

    why: str


Decision = Create | Patch | Delete | Keep | Skip


def decide(
    kind: Kind,
    desired: DesiredObject | Withheld | None,
    there: Reflectable | None,
    *,
    name: str,
    namespace: str,
    context: Context,
) -> Decision:
    """Return the next step for the object ``name`` in the remote ``namespace``.

    ``desired`` None: there is no such object at home. ``there``: the object at the lender, None if there is none.
    """
    if there is not None and not is_ours(there.metadata, context):
        return Skip(f"an object {name} that is not ours is in the remote namespace {namespace}; it is left alone")
    if there is not None and there.metadata.deleting:
        return Keep("the object at the lender is being deleted")
    if not isinstance(desired, DesiredObject):
        if there is not None and not kind.lasting:
            return Delete(there.metadata.uid)
        return Keep("there is no such object" if desired is None else desired.why)
    if there is None:
        return (
            Keep("there is nothing in it for the lender yet")
            if desired.idle
            else Create(_body(desired, name, namespace))
        )
    return _follow(kind, desired, there)


def _follow(kind: Kind, desired: DesiredObject, there: Reflectable) -> Decision:
    if why := kind.objection(there, desired):
        return Skip(why)
    observed = kind.observe(there, desired)
    if kind.is_fixed(observed, desired):
        return Delete(there.metadata.uid, again=True)
    # A merge patch replaces lists whole (RFC 7396). Of a Service's ports the API server puts back the node ports that
    # it allocated (pkg/registry/core/service/storage, patchAllocatedValues).
    patch = merge_patch(observed, desired.content)
    if metadata := metadata_patch(there.metadata, desired):
        patch["metadata"] = metadata
    if not patch:
        return Keep("it is as it should be")
    # The API server answers 409 to a patch whose metadata.uid is not the object's.
    patch.setdefault("metadata", {})["uid"] = there.metadata.uid
    return Patch(patch)


def _body(desired: DesiredObject, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": desired.labels, "annotations": desired.annotations}
    return {"metadata": metadata, **desired.content}
