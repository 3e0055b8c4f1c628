"""Views of the reflected objects, at home and at the lender.

The content of an object stays undecoded JSON, copied from the watch event, until the object is reconciled. ``repr``
never shows content, because some of it is secret.
"""

from __future__ import annotations

from typing import Any

import msgspec

from liqod.model.objects.meta import Object, from_json

_NULL = msgspec.Raw(b"null")


class Reflectable(Object, frozen=True):
    """An object of a kind that is reflected."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metadata.key})"

    def __post_init__(self) -> None:
        # A Raw keeps the buffer it was decoded from alive: copying releases the rest (above all managedFields).
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                msgspec.structs.force_setattr(self, name, value.copy())

    def content(self) -> dict[str, Any]:
        """Return the fields besides the metadata by the API's names, decoded; empty fields are left out."""
        found: dict[str, Any] = {}
        for name, wire in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                value = from_json(value)
            if name != "metadata" and value:
                found[wire] = value
        return found


class ConfigMap(Reflectable, frozen=True):
    """A ConfigMap."""

    data: msgspec.Raw = _NULL
    binary_data: msgspec.Raw = _NULL
    immutable: bool | None = None


class Secret(Reflectable, frozen=True):
    """A Secret."""

    data: msgspec.Raw = _NULL
    type: str = "Opaque"
    immutable: bool | None = None


class WithSpec(Reflectable, frozen=True):
    """A Service, an Ingress, a route, a PersistentVolumeClaim or a ShadowEndpointSlice."""

    spec: msgspec.Raw = _NULL


class EndpointSlice(Reflectable, frozen=True):
    """An EndpointSlice of the home cluster."""

    address_type: str = "IPv4"
    endpoints: msgspec.Raw = _NULL
    ports: msgspec.Raw = _NULL
