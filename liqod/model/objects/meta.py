"""Typed views of what every Kubernetes object has: metadata, owner references, conditions.

Views are msgspec structs that name only the fields liqod uses, so that decoding a watch event skips the rest
(managedFields above all) and a cache of thousands of objects stays small.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from liqod.model.ids import Key
from liqod.model.objects.interning import Interner

MAX_MESSAGE: Final = 1024
"""Most characters of a message in a condition, a status or an event (events.k8s.io/v1, NoteLengthLimit)."""


_labels: Final[Interner[dict[str, str]]] = Interner(msgspec.json.Encoder().encode)


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of every view: immutable, camelCase on the wire, unknown fields skipped.

    Decoded values hold no cycles, so ``gc=False`` excludes them from garbage collection: with ten thousand objects in a
    cache a full collection would block the reactor for tens of milliseconds.
    """


class OwnerReference(View, frozen=True):
    """An entry of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(View, frozen=True):
    """The part of ``metadata`` that liqod reads.

    Pods of one owner have the same labels, namespace and, mostly, time of creation: equal ones are kept once.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        if self.labels:
            force(self, "labels", _labels(self.labels))
        force(self, "namespace", sys.intern(self.namespace))
        if self.creation_timestamp is not None:
            force(self, "creation_timestamp", sys.intern(self.creation_timestamp))

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Object(View, frozen=True):
    """Any object, seen by its metadata alone."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key


def reference_to(api_version: str, kind: str, meta: ObjectMeta) -> dict[str, str]:
    """Return the ``involvedObject`` reference of an event."""
    return {"apiVersion": api_version, "kind": kind, "name": meta.name, "namespace": meta.namespace, "uid": meta.uid}


def eviction_of(meta: ObjectMeta) -> dict[str, Any]:
    """Return the Eviction body of a pod; the UID precondition spares a successor of the same name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        # The eviction of a pod that was replaced meanwhile answers 409 instead of evicting its successor.
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    }


def controller_of(owned: Object) -> OwnerReference | None:
    """Return the owner reference of an object's controller, or None."""
    return next((owner for owner in owned.metadata.owner_references if owner.controller), None)


def is_of_daemon_set(pod: Object) -> bool:
    """Return whether a pod is a DaemonSet's, which makes another one at once: it ignores unschedulable nodes."""
    owner = controller_of(pod)
    return owner is not None and owner.kind == "DaemonSet"


class Condition(View, frozen=True):
    """A condition as Kubernetes' API conventions define it; ``status`` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


def is_newer(one: ObjectMeta, other: ObjectMeta) -> bool:
    """Return whether a state of an object is known to be newer than another one of the same kind and server.

    Source: Kubernetes API conventions since 1.35 (KEP-5504): resource versions of one kind compare as numbers. Other
    versions are opaque, and the result is False.
    """
    left, right = one.resource_version, other.resource_version
    return _is_number(left) and _is_number(right) and int(left) > int(right)


def _is_number(version: str) -> bool:
    return len(version) <= 20 and version.isascii() and version.isdigit()


def find_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Return whether a condition of a type is there and True."""
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"


def set_condition(conditions: Sequence[Condition], new: Condition, now: str) -> list[Condition]:
    """Return the conditions with one replaced or added.

    The transition time moves to ``now`` (RFC 3339) only when the status changes; an equal condition leaves the list
    equal, so that comparing before and after tells whether anything must be written. The message is cut to
    ``MAX_MESSAGE`` characters.
    """
    old = find_condition(conditions, new.type)
    since = old.last_transition_time if old is not None and old.status == new.status else now
    stamped = msgspec.structs.replace(new, message=new.message[:MAX_MESSAGE], last_transition_time=since)
    if old is None:
        return [*conditions, stamped]
    return [stamped if condition.type == new.type else condition for condition in conditions]


def to_dict(value: Any) -> Any:
    """Return a view as plain JSON values (dicts, lists, strings), ready for a request body."""
    return msgspec.to_builtins(value)


def number(text: str) -> float:
    """Return a number that JSON has; raises ValueError for one out of range.

    As ``float_hook`` of a decoder it takes half a microsecond. Left to itself msgspec takes ten for each ``1e308``: a
    third of a second for the largest pod.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("Number out of range")
    return value


_untyped: Final = msgspec.json.Decoder(float_hook=number)


def from_json(data: bytes | msgspec.Raw) -> Any:
    """Return what JSON of somebody else says as plain values; raises msgspec.MsgspecError, RecursionError."""
    return _untyped.decode(data)


def label_selector(labels: Mapping[str, str]) -> str:
    """Render an equality selector, sorted by key."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))
