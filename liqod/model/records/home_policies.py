"""Home's NetworkPolicies of one namespace, and what it takes to read them elsewhere, as a record at the lender. Pure.

A borrower writes one record in each namespace that was granted to it; the lender makes policies of its own out of it.
Nothing in it is more than its rules name: pods that no rule selects stay unknown to the lender, and so do labels that
no selector asks for.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from liqod.model.digests import long_digest
from liqod.model.objects.meta import Object, View, from_json

NAME: Final = "home"
"""The name of the record; there is one in a namespace."""
MAX_POLICIES: Final = 101
"""Policies at most; the schema has the same bound. One more than are read, so that more are seen to be too many."""
MAX_NAMESPACES: Final = 4096
"""Namespaces of home at most; the schema has the same bound."""
MAX_KINDS: Final = 4096
"""Kinds of pods (of one namespace, with the same labels and ports) at most; the schema has the same bound."""
MAX_ADDRESSES: Final = 16384
"""Addresses of pods at most, all kinds together; the schema has the same bound for one."""
MAX_SERVERS: Final = 8
"""Kinds of name servers at most; the schema has the same bound."""
MAX_MAPPED: Final = 1024
"""Single addresses of home at most that are others at the lender; the schema has the same bound."""
MAX_WITHHELD: Final = 256
"""Keys of labels at most that pods do not take along; the schema has the same bound."""
MAX_BYTES: Final = 1_000_000
"""The largest spec that is read, in bytes; an object of the API has room for half as much again."""


class HomePolicy(View, frozen=True):
    """One policy; ``spec`` is a NetworkPolicySpec as home has it."""

    name: str = ""
    spec: Any = None


class HomeNamespace(View, frozen=True):
    """A namespace of home that a rule names, with the labels that rules ask for."""

    name: str = ""
    labels: dict[str, str] = {}


class NamedPort(View, frozen=True):
    """A port of a container that has a name."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class DirectAddress(View, frozen=True):
    """A pod at another lender by that lender's own address, which a lender translates that is connected with it."""

    lender: str = ""
    address: str = ""


class PodKind(View, frozen=True):
    """Pods of home that run elsewhere than at this lender, alike for all rules; addresses as they are seen there.

    ``direct`` are those at lenders with which this one is connected directly.
    """

    namespace: str = ""
    labels: dict[str, str] = {}
    ports: list[NamedPort] = []
    addresses: list[str] = []
    direct: list[DirectAddress] = []


class MappedAddress(View, frozen=True):
    """A single address of home, and the one by which the lender reaches it."""

    home: str = ""
    here: str = ""


class HomePoliciesSpec(View, frozen=True):
    """What home's policies of a namespace say, and whom they name.

    ``name_servers`` are those of home's own pods, ``addresses`` what is exported to the lender beside pods, and
    ``withheld`` the labels that pods do not take along.
    """

    policies: list[HomePolicy] = []
    namespaces: list[HomeNamespace] = []
    pods: list[PodKind] = []
    name_servers: list[PodKind] = []
    addresses: list[MappedAddress] = []
    withheld: list[str] = []


class ShadowNetworkPolicySet(Object, frozen=True):
    """On the lender: home's NetworkPolicies of a borrower's namespace; hosting makes NetworkPolicies of them.

    ``spec`` is a digest in a cache: a thousand of a tenant's records would be a gigabyte.
    """

    spec: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        text = bytes(self.spec)
        kept = text if len(text) == _DIGEST_LENGTH and text.startswith(b'"') else f'"{_digest(text)}"'.encode()
        msgspec.structs.force_setattr(self, "spec", msgspec.Raw(kept))

    @property
    def digest(self) -> str:
        """The digest of the spec as the API server writes it."""
        return bytes(self.spec).decode().strip('"')


class WholePolicySet(Object, frozen=True):
    """The same record with its spec, undecoded: it comes from a peer."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


def digest_of(spec: Any) -> str:
    """Return a digest that is the same for equal specs, however they are written; of a Raw of what it holds.

    Empty for one that is nested too deeply to be read.
    """
    try:
        value = from_json(spec) if isinstance(spec, msgspec.Raw) else spec
        return long_digest(value)
    except RecursionError:  # it comes from a peer, and is no record of ours
        return ""


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=_DIGEST_SIZE).hexdigest()


_DIGEST_SIZE: Final = 16
_DIGEST_LENGTH: Final = 2 * _DIGEST_SIZE + 2
