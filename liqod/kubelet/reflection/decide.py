"""What to do next about one reflected object: one pure function for all kinds.

Never decide before both caches are complete: absence must mean absence. An object there is ours by its labels (the
cache holds no others); one that is equal to what is wanted is never written again.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from liqod.kubelet.common.context import Place
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.patches import merge_diff
from liqod.kubelet.reflection.forge.reflected import Wanted, Withheld, metadata_patch
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.views import Thing


@frozen
class Create:
    """Create the object; what exists under its name is not taken over."""

    body: dict[str, Any] = field(repr=False)


@frozen
class Patch:
    """Bring the object of a UID up to date by a merge patch."""

    patch: dict[str, Any] = field(repr=False)


@frozen
class Delete:
    """Delete the object that has this UID; ``again`` when it is to be made anew."""

    uid: str
    again: bool = False


@frozen
class Keep:
    """Nothing to do; ``why`` is for people who ask."""

    why: str = ""


@frozen
class Skip:
    """Nothing may be done: the object in the way is not ours."""

    why: str


Decision = Create | Patch | Delete | Keep | Skip


def decide(
    kind: Kind, goal: Wanted | Withheld | None, there: Thing | None, *, name: str, namespace: str, place: Place
) -> Decision:
    """Return the next step for an object, to be called ``name`` in the remote ``namespace``.

    ``goal`` None: there is no such object at home.
    """
    if there is not None and not is_ours(there.metadata, place):
        return Skip(f"an object {name} that is not ours is in the remote namespace {namespace}; it is left alone")
    if there is not None and there.metadata.deleting:
        return Keep("the object at the lender is being deleted")
    if not isinstance(goal, Wanted):
        if there is not None and not kind.lasting:
            return Delete(there.metadata.uid)
        return Keep("there is no such object" if goal is None else goal.why)
    if there is None:
        return Keep("there is nothing in it for the lender yet") if goal.idle else Create(_body(goal, name, namespace))
    return _follow(kind, goal, there)


def _follow(kind: Kind, goal: Wanted, there: Thing) -> Decision:
    if why := kind.objection(there, goal):
        return Skip(why)
    observed = kind.observe(there, goal)
    if kind.is_fixed(observed, goal):
        return Delete(there.metadata.uid, again=True)
    patch = merge_diff(observed, goal.content)
    if metadata := metadata_patch(there.metadata, goal):
        patch["metadata"] = metadata
    if not patch:
        return Keep("it is as it should be")
    patch.setdefault("metadata", {})["uid"] = there.metadata.uid
    return Patch(patch)


def _body(goal: Wanted, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": goal.labels, "annotations": goal.annotations}
    return {"metadata": metadata, **goal.content}
