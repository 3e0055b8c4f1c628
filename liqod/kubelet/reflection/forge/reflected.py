"""What all reflected objects have in common: what is wanted at the lender, and the metadata of it.

Labels and annotations of users come and go, and others at the lender add their own. So each reflected object notes,
in one annotation, the keys that came from home: what is gone at home can be told from what was never ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership, reflected_annotations, reflected_labels
from liqod.model.objects.meta import Object, ObjectMeta

KEYS_ANNOTATION: Final = "offloading.liqo.io/reflected-keys"


class Keys(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of labels and annotations that came from home."""

    labels: list[str] = []
    annotations: list[str] = []


@frozen
class Desired:
    """What the lender should have. ``incomplete``: something is not known yet, look again.

    ``idle`` content is kept up to date where it exists and not worth being made. ``claims`` are the single addresses
    that the lender's pods have to reach for it, with what they call there (``model.network.Claims``), and
    ``objections`` say what of the object is left out for good.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    content: dict[str, Any]
    idle: bool = False
    incomplete: bool = False
    claims: frozenset[tuple[str, str]] = frozenset()
    objections: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Wanted({sorted(self.content)})"


@frozen
class Withheld:
    """The object is not reflected, for this reason; ``told``: its owner could not know, and is told."""

    why: str
    told: bool = False


@frozen
class ForgeInputs:
    """What forging looks at besides the object: who lends, the namespace there, and what else is known at home.

    ``is_there`` tells whether a node of the home cluster stands for the lender; ``objection`` why an object with some
    annotations is not reflected by what is set for the kind. ``holds`` tells whether the data of a volume is at the
    lender, ``storage_class`` the class of storage there. ``complete``: all of this is known.
    """

    context: Context
    objection: Callable[[Mapping[str, str]], str]
    service: Callable[[str], Object | None] = lambda name: None
    is_there: Callable[[str], bool] = lambda node: False
    holds: Callable[[str], bool] = lambda volume: False
    storage_class: Callable[[], str] = lambda: ""
    complete: bool = True


def wanted(
    home: ObjectMeta,
    content: dict[str, Any],
    context: Context,
    *,
    labels: Mapping[str, str] | None = None,
    left_out: frozenset[str] = frozenset(),
    idle: bool = False,
    incomplete: bool = False,
    claims: frozenset[tuple[str, str]] = frozenset(),
    objections: tuple[str, ...] = (),
) -> Desired:
    """Return what the lender should have of an object: ``labels`` besides the user's, annotations not ``left_out``."""
    users = reflected_labels(home.labels, context)
    noted = {
        key: value for key, value in reflected_annotations(home.annotations, context).items() if key not in left_out
    }
    annotations = dict(noted)
    if users or noted:
        keys = Keys(labels=sorted(users), annotations=sorted(noted))
        annotations[KEYS_ANNOTATION] = msgspec.json.encode(keys).decode()
    return Desired(
        labels={**users, **(labels or {}), **ownership(context)},
        annotations=annotations,
        content=content,
        idle=idle,
        incomplete=incomplete,
        claims=claims,
        objections=objections,
    )


def keys_of(there: ObjectMeta) -> Keys:
    """Return the keys that an object at the lender was given from home; none where the note cannot be read."""
    try:
        return msgspec.json.decode(there.annotations.get(KEYS_ANNOTATION, "{}"), type=Keys)
    except msgspec.MsgspecError:
        return Keys()


def metadata_patch(there: ObjectMeta, desired: Desired) -> dict[str, Any]:
    """Return what of the metadata must change, as a merge patch; what others added there stays."""
    known = keys_of(there)
    patch: dict[str, Any] = {}
    labels = _changes(there.labels, desired.labels, known.labels)
    annotations = _changes(there.annotations, desired.annotations, [*known.annotations, KEYS_ANNOTATION])
    if labels:
        patch["labels"] = labels
    if annotations:
        patch["annotations"] = annotations
    return patch


def _changes(old: Mapping[str, str], new: Mapping[str, str], given: list[str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {key: value for key, value in new.items() if old.get(key) != value}
    changes.update({key: None for key in given if key in old and key not in new})
    return changes
