"""NetworkPolicies as a borrower sends them, and as they are compiled once they were checked. Pure.

They come from a peer: a field that is not named here is refused, since it may narrow a rule.

Source: Kubernetes API reference, NetworkPolicy v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import msgspec

from liqod.hosting.networkpolicies.blocks import Block
from liqod.hosting.networkpolicies.ports import RulePorts
from liqod.model.objects.label_selector import LabelRequirement
from liqod.model.objects.meta import View

Terms = frozenset[LabelRequirement]
"""The terms of a label selector, which all hold; none: everything."""


class Part(View, frozen=True, forbid_unknown_fields=True):
    """A part of a policy's spec."""


class Expression(Part, frozen=True):
    """A term of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class LabelSelector(Part, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class IPBlock(Part, frozen=True):
    """A network and its exceptions."""

    cidr: str
    excepts: list[str] | None = msgspec.field(name="except", default=None)


class PolicyPeer(Part, frozen=True):
    """An entry of ``from`` or ``to``."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


class PolicyPort(Part, frozen=True):
    """An entry of ``ports``."""

    protocol: Literal["TCP", "UDP", "SCTP"] | None = None
    port: int | str | None = None
    end_port: int | None = None


class PolicyIngressRule(Part, frozen=True):
    """An entry of ``ingress``."""

    ports: list[PolicyPort] | None = None
    peers: list[PolicyPeer] | None = msgspec.field(name="from", default=None)


class PolicyEgressRule(Part, frozen=True):
    """An entry of ``egress``."""

    ports: list[PolicyPort] | None = None
    peers: list[PolicyPeer] | None = msgspec.field(name="to", default=None)


class PolicySpec(Part, frozen=True):
    """The spec of a NetworkPolicy; its selector and each rule are decoded alone, since one may be refused alone."""

    pod_selector: Any = None
    policy_types: list[Literal["Ingress", "Egress"]] | None = None
    ingress: list[Any] | None = None
    egress: list[Any] | None = None


@attrs.frozen
class CheckedPeer:
    """Whom a rule names: a ``block``, or pods by their labels in namespaces (None: the policy's own)."""

    field: str
    namespaces: Terms | None = None
    pods: Terms = frozenset()
    block: Block | None = None


@attrs.frozen
class CheckedRule:
    """What a policy allows in one direction; no ``peers``: everybody."""

    field: str
    peers: tuple[CheckedPeer, ...]
    ports: RulePorts


@attrs.frozen
class CheckedPolicy:
    """A checked policy: the pods it isolates, and its rules for each direction (None: it does not isolate there)."""

    name: str
    pods: Terms
    ingress: tuple[CheckedRule, ...] | None
    egress: tuple[CheckedRule, ...] | None


@attrs.frozen
class ClosedField:
    """What is closed here though home may allow it: the policy (empty: all of the namespace), its field, and why.

    ``reason`` is one word, ``message`` says what to do.
    """

    policy: str
    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        parts = (f"NetworkPolicy {self.policy}" if self.policy else "", self.field, self.message)
        return ": ".join(one for one in parts if one)


class UnsupportedField(Exception):
    """A field cannot be said here; arguments as in ``ClosedField``."""

    def __init__(self, field: str, reason: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.reason = reason
        self.message = message

    def of(self, policy: str) -> ClosedField:
        """Return it as the refusal of a policy."""
        return ClosedField(policy, self.field, self.reason, self.message)


def matches(terms: Terms, labels: Mapping[str, str]) -> bool:
    """Return whether labels fulfil a selector."""
    return all(one.matches(labels) for one in terms)
