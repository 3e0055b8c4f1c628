"""NetworkPolicies as they are in this cluster and as they are written, by a digest of what they say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liqod.hosting.networkpolicies.compiler import CLOSED, FLOOR, LONG_PREFIX, PREFIX
from liqod.hosting.tenants.bounds import NAME
from liqod.model.digests import long_digest
from liqod.model.objects.meta import Object, from_json


class NetworkPolicy(Object, frozen=True):
    """A NetworkPolicy of this cluster; its ``spec`` is kept as a digest, since it may be a megabyte."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        text = bytes(self.spec)
        digest = self.digest if text.startswith(b'"') else digest_of(from_json(text))
        msgspec.structs.force_setattr(self, "spec", msgspec.Raw(f'"{digest}"'.encode()))

    @property
    def digest(self) -> str:
        """The digest of the spec."""
        return bytes(self.spec).decode().strip('"')


def is_ours(name: str) -> bool:
    """Return whether a policy in a tenant's namespace is liqod's by its name."""
    return name in (NAME, FLOOR, CLOSED) or name.startswith((PREFIX, LONG_PREFIX))


def is_of_home(name: str) -> bool:
    """Return whether a policy is there since home's policies were known once."""
    return name != NAME and is_ours(name)


def in_turn(name: str) -> tuple[bool, bool, str]:
    """Return the sort key by which policies are written, as the compiler has them; removed in the reverse order."""
    return name != FLOOR, name == NAME, name


def spec_of(policy: Mapping[str, Any]) -> Any:
    """Return a policy's spec without what is absent, as an API server returns it."""
    return _present(policy["spec"])


def digest_of(spec: Any) -> str:
    """Return the digest of a spec; those that mean the same to the API server have the same one."""
    return long_digest(_present(spec))


def _present(value: Any) -> Any:
    """Return a value without fields that are null or an empty list, which the API server leaves out (omitempty)."""
    if isinstance(value, Mapping):
        return {key: _present(one) for key, one in value.items() if one is not None and one != []}
    return [_present(one) for one in value] if isinstance(value, list | tuple) else value
