"""What reflection sees of the objects it watches, at home and at the lender alike.

What an object holds stays the bytes that came, cut out of the watch line, and is decoded when it is that object's turn.
None of it ever shows in ``repr``: some of it is secret.
"""

from __future__ import annotations

from typing import Any

import msgspec

from liqod.model.objects.meta import Object

_NULL = msgspec.Raw(b"null")


class Reflectable(Object, frozen=True):
    """An object of a kind that is reflected."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metadata.key})"

    def __post_init__(self) -> None:
        # A Raw refers to the buffer it was decoded from: copying lets go of the rest (managedFields above all).
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                msgspec.structs.force_setattr(self, name, value.copy())

    def content(self) -> dict[str, Any]:
        """Return what the object holds besides its metadata, by the API's names; without what is empty."""
        found: dict[str, Any] = {}
        for name, wire in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                value = msgspec.json.decode(value)
            if name != "metadata" and value:
                found[wire] = value
        return found


class ConfigMap(Reflectable, frozen=True):
    """A config map."""

    data: msgspec.Raw = _NULL
    binary_data: msgspec.Raw = _NULL
    immutable: bool | None = None


class Secret(Reflectable, frozen=True):
    """A secret."""

    data: msgspec.Raw = _NULL
    type: str = "Opaque"
    immutable: bool | None = None


class WithSpec(Reflectable, frozen=True):
    """A service, an ingress or a ShadowEndpointSlice."""

    spec: msgspec.Raw = _NULL


class EndpointSlice(Reflectable, frozen=True):
    """An endpoint slice of the home cluster."""

    address_type: str = "IPv4"
    endpoints: msgspec.Raw = _NULL
    ports: msgspec.Raw = _NULL
