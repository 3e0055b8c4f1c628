"""The desired state of a reflected object and its metadata, common to all kinds.

Users add and remove labels and annotations at home, and others at the lender add their own. So each reflected object
lists in one annotation the keys that came from home: only those are removed when they are gone at home.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from attrs import Factory, evolve, frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership, reflected_annotations, reflected_labels
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.classes import Classes
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.portable_metadata import (
    ANNOTATION_DOMAINS,
    LABEL_DOMAINS,
    MAX_ANNOTATIONS_SIZE,
    few,
    portable,
)

KEYS_ANNOTATION: Final = "offloading.liqo.io/reflected-keys"
_USERS_SIZE: Final = MAX_ANNOTATIONS_SIZE // 4
"""Characters of annotations beside the list of keys, which may be 128 of 317 characters."""


class ReflectedKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of labels and annotations that came from home."""

    labels: list[str] = []
    annotations: list[str] = []


@frozen
class DesiredObject:
    """The desired object at the lender.

    ``incomplete``: a part is not known yet; forge it again later. ``idle``: the object is updated if it exists, but not
    created. ``exports``: single addresses that the lender's pods must reach for it, with ports
    (``model.records.network.ExportRequests``). ``objections``: the parts that are permanently left out, and why.
    ``classes``: those from which its class was chosen; None for what has no class.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    content: dict[str, Any]
    idle: bool = False
    incomplete: bool = False
    exports: frozenset[tuple[str, str]] = frozenset()
    objections: tuple[str, ...] = ()
    classes: Classes | None = None

    def __repr__(self) -> str:
        return f"DesiredObject({sorted(self.content)})"


@frozen
class Withheld:
    """The object is not reflected, for the reason ``why``; ``recorded``: as an event with this reason code, too.

    ``kept``: whether it is to be reflected is not known yet, so that what is at the lender stays there.
    """

    why: str
    recorded: bool = False
    code: str = "NotReflected"
    kept: bool = False


class HomeObjects(Protocol):
    """The objects of the home cluster that forging reads besides the reflected one."""

    def service(self, key: Key) -> Object | None:
        """Return a service; None if there is none."""
        ...

    def is_at_lender(self, node: str) -> bool:
        """Return whether a node is a virtual node of the lender, which knows the pods on it itself."""
        ...

    def holds(self, volume: str) -> bool:
        """Return whether the lender holds the data of a volume."""
        ...

    def storage_classes(self) -> Classes:
        """Return the storage classes for claims at the lender."""
        ...

    def ingress_classes(self, namespace: str) -> Classes:
        """Return the classes for ingresses of a namespace at the lender."""
        ...

    def load_balancer_classes(self, namespace: str) -> Classes:
        """Return the classes for services of a namespace with a load balancer at the lender."""
        ...

    def gateways(self) -> tuple[str, ...] | None:
        """Return the gateways that the lender offers to routes, in its order; None while its offer is not known."""
        ...


class NoHomeObjects:
    """Null object: there are no services, no other virtual nodes, no volumes and no classes."""

    def service(self, key: Key) -> None:
        """Return None."""

    def is_at_lender(self, node: str) -> bool:
        """Return False."""
        return False

    def holds(self, volume: str) -> bool:
        """Return False."""
        return False

    def storage_classes(self) -> Classes:
        """Return no class."""
        return Classes()

    def ingress_classes(self, namespace: str) -> Classes:
        """Return no class."""
        return Classes()

    def load_balancer_classes(self, namespace: str) -> Classes:
        """Return no class."""
        return Classes()

    def gateways(self) -> tuple[str, ...] | None:
        """Return no gateway."""
        return ()


@frozen
class ForgeInputs:
    """The inputs of forging besides the object; ``complete``: all caches behind ``home`` have synced.

    ``has_services``: services are among what ``home`` knows, so that one which it does not know is not there yet.
    ``named`` says, by the setting of the kind and the key, whether a pod at the lender names a config map or secret
    (None while that is not known); None: they go whether one does or not.
    """

    context: Context
    listing: policy.Listing = "DenyList"
    home: HomeObjects = Factory(NoHomeObjects)
    complete: bool = True
    has_services: bool = False
    named: Callable[[str, Key], bool | None] | None = None

    def objection(self, annotations: Mapping[str, str]) -> str:
        """Return why an object with these annotations is not reflected; empty if it is."""
        return policy.objection(annotations, self.listing)


def wanted(
    home: ObjectMeta,
    content: dict[str, Any],
    context: Context,
    *,
    labels: Mapping[str, str] | None = None,
    left_out: frozenset[str] = frozenset(),
    idle: bool = False,
    incomplete: bool = False,
    exports: frozenset[tuple[str, str]] = frozenset(),
    objections: tuple[str, ...] = (),
) -> DesiredObject:
    """Return the desired object: with ``labels`` besides the user's, and without the annotations in ``left_out``."""
    users = reflected_labels(home.labels, context)
    noted = {
        key: value for key, value in reflected_annotations(home.annotations, context).items() if key not in left_out
    }
    annotations = dict(noted)
    if users or noted:
        keys = ReflectedKeys(labels=sorted(users), annotations=sorted(noted))
        annotations[KEYS_ANNOTATION] = msgspec.json.encode(keys).decode()
    return DesiredObject(
        labels={**users, **(labels or {}), **ownership(context)},
        annotations=annotations,
        content=content,
        idle=idle,
        incomplete=incomplete,
        exports=exports,
        objections=objections,
    )


def with_class(desired: DesiredObject, classes: Classes, field: str) -> DesiredObject:
    """Return the desired object with its class in a field of its spec; it waits for an offer that is not known."""
    spec = {**desired.content["spec"], field: classes.first} if classes.first else desired.content["spec"]
    unknown, why = classes.offered is None, classes.objection
    return evolve(
        desired,
        content={**desired.content, "spec": spec},
        idle=desired.idle or unknown or bool(why),
        incomplete=desired.incomplete or unknown,
        objections=(*desired.objections, why) if why else desired.objections,
        classes=classes,
    )


def portable_only(desired: DesiredObject) -> DesiredObject:
    """Return the desired object with the labels and annotations only that every lender grants, and takes so many of."""
    labels = few(portable(desired.labels, LABEL_DOMAINS), _USERS_SIZE)
    annotations = portable(desired.annotations, ANNOTATION_DOMAINS)
    text = annotations.get(KEYS_ANNOTATION)
    # The list gets as long as the keys that are left.
    annotations = few({**annotations, KEYS_ANNOTATION: ""} if text else annotations, _USERS_SIZE)
    if text:
        keys = msgspec.json.decode(text, type=ReflectedKeys)
        kept = ReflectedKeys(
            labels=[key for key in keys.labels if key in labels],
            annotations=[key for key in keys.annotations if key in annotations],
        )
        annotations[KEYS_ANNOTATION] = msgspec.json.encode(kept).decode()
    return evolve(desired, labels=labels, annotations=annotations)


def keys_of(there: ObjectMeta) -> ReflectedKeys:
    """Return the keys of an object at the lender that came from home; none if the annotation cannot be decoded."""
    try:
        return msgspec.json.decode(there.annotations.get(KEYS_ANNOTATION, "{}"), type=ReflectedKeys)
    except msgspec.MsgspecError:
        return ReflectedKeys()


def metadata_patch(there: ObjectMeta, desired: DesiredObject) -> dict[str, Any]:
    """Return the merge patch of the metadata; keys that others added at the lender are kept."""
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
