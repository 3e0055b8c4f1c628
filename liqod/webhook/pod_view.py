"""Reads of a pod under review what admission looks at, and steps over the rest (pure).

A review may come from anybody who reaches the port. To build values of all that a pod may hold takes ten times
longer than to step over it, so only the named fields are decoded, and each only when it has few enough parts.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from liqod.kube.nesting import count_parts
from liqod.model.names import WEBHOOK_PROBE
from liqod.model.objects.meta import View, from_json
from liqod.model.objects.tolerations import EVICT_AFTER, HELD

MAX_PARTS: Final = 1 << 16
"""Objects, lists and items of one field that are decoded: an affinity within the bounds of ``placement`` has fewer."""

_NULL: Final = msgspec.Raw(b"null")
_ANNOTATIONS: Final = (HELD, EVICT_AFTER, WEBHOOK_PROBE)


class TooManyParts(Exception):
    """A field has too many parts to be read; the message is for the user."""


class _Pod(View, frozen=True):
    metadata: msgspec.Raw = _NULL
    spec: msgspec.Raw = _NULL


class _Metadata(View, frozen=True):
    annotations: msgspec.Raw = _NULL


class _Spec(View, frozen=True):
    affinity: msgspec.Raw = _NULL
    node_name: msgspec.Raw = _NULL
    node_selector: msgspec.Raw = _NULL
    runtime_class_name: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL
    topology_spread_constraints: msgspec.Raw = _NULL


_FIELDS: Final = dict(zip(_Spec.__struct_fields__, _Spec.__struct_encode_fields__, strict=True))
_Annotations = msgspec.defstruct(
    "_Annotations",
    [(f"a{place}", msgspec.Raw, msgspec.field(default=_NULL, name=name)) for place, name in enumerate(_ANNOTATIONS)],
    frozen=True,
)


def read_pod(raw: bytes) -> dict[str, Any] | None:
    """Return ``metadata.annotations`` and ``spec`` of a pod, with the fields that admission reads; None for no pod.

    What is not an object where one belongs is left out: the API server refuses such a pod itself. Raises TooManyParts,
    and msgspec.DecodeError, UnicodeDecodeError or RecursionError for what is not JSON.
    """
    if _is_null(raw):
        return None
    outer = msgspec.json.decode(raw, type=_Pod)
    pod: dict[str, Any] = {}
    if _is_object(outer.metadata):
        pod["metadata"] = {}
        annotations = msgspec.json.decode(outer.metadata, type=_Metadata).annotations
        if _is_object(annotations):
            found = msgspec.json.decode(annotations, type=_Annotations)
            read = {name: _value(name, getattr(found, f"a{place}")) for place, name in enumerate(_ANNOTATIONS)}
            pod["metadata"]["annotations"] = {name: value for name, value in read.items() if value is not None}
    if _is_object(outer.spec):
        spec = msgspec.json.decode(outer.spec, type=_Spec)
        read = {name: _value(name, getattr(spec, field)) for field, name in _FIELDS.items()}
        pod["spec"] = {name: value for name, value in read.items() if value is not None}
    return pod


def _value(name: str, raw: msgspec.Raw) -> Any:
    data = bytes(raw)
    parts = count_parts(data)
    if parts > MAX_PARTS:
        raise TooManyParts(f"{name} of the pod has some {parts} parts: more than {MAX_PARTS} are not read; use fewer")
    return from_json(data)


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).startswith(b"{")


def _is_null(raw: bytes) -> bool:
    return bytes(raw).strip() == b"null"
