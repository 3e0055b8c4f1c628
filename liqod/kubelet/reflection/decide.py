"""Decides the next step for one reflected object: one pure function for all kinds.

Decide only after both caches have synced: before, a missing object may exist. An object at the lender is ours by its
labels (the cache holds no others); one that equals the desired state is never written.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from liqod.kube.writing.merge_patch import merge_patch
from liqod.kubelet.common.context import ROOT_CA, Context
from liqod.kubelet.common.egress import DENIED
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, metadata_patch
from liqod.kubelet.reflection.kinds import CONFIGMAP, ENDPOINTSLICE, SECRET, Kind
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import Key
from liqod.model.names import SERVICE_NAME_LABEL
from liqod.model.objects.meta import ObjectMeta

CONTENTS: Final = (CONFIGMAP, SECRET)
"""Kinds that pods name: with ``contents`` under [egress] they go only where one does."""


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


def desired_of(kind: Kind, home: Reflectable | None, inputs: ForgeInputs) -> DesiredObject | Withheld | None:
    """Return what is to be at the lender of an object at home; None without the object.

    What may not leave home does not, whatever its annotations say.
    """
    if home is None or home.metadata.deleting:
        return None
    if why := _stays(kind, home.metadata, inputs):
        return Withheld(why, recorded=True, code=DENIED)
    desired = kind.forge(home, inputs)
    if not isinstance(desired, DesiredObject) or kind not in CONTENTS or inputs.named is None:
        return desired
    named = inputs.named(kind.setting, home.metadata.key)
    if named or policy.explicit(home.metadata.annotations) == "":
        return desired
    return Withheld("no pod there names it", kept=named is None)


def _stays(kind: Kind, meta: ObjectMeta, inputs: ForgeInputs) -> str:
    """Return why an object may not leave home; empty if it may."""
    egress = inputs.context.egress.value
    if kind is CONFIGMAP and meta.name == ROOT_CA:
        # What tokens are of use with goes where they go.
        return egress.objection("serviceaccount", meta.namespace, meta.labels)
    why = egress.objection(kind.setting, meta.namespace, meta.labels)
    if why or kind is not ENDPOINTSLICE:
        return why
    # The addresses of a service that stays at home stay there, too.
    service = inputs.home.service(Key(meta.namespace, meta.labels.get(SERVICE_NAME_LABEL, "")))
    return egress.objection("service", meta.namespace, meta.labels if service is None else service.metadata.labels)


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
        if there is not None and not kind.lasting and not (desired is not None and desired.kept):
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
        if desired.idle:
            return Keep("it is to be another one, which cannot be created yet")
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
