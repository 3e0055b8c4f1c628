"""What the bounds open, rule by rule, and what is left of home's rules in it. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from liqod.hosting.networkpolicies.blocks import Block, Blocks, block_of
from liqod.hosting.networkpolicies.home_view import Everybody, Here, Named
from liqod.hosting.networkpolicies.ports import Range, RulePorts, common, merged
from liqod.model.names import REMOTE_CLUSTER_LABEL

Raw = str
"""A NetworkPolicyPeer as JSON, with sorted keys."""
Target = Raw | Here | Block
"""Whom a rule names in the end."""


@attrs.frozen
class OpenedRule:
    """A rule of the bounds: its peers as they are, the blocks among them, and whether the tenant's own pods are.

    ``ports`` None: all traffic. ``blocks`` None: all addresses.
    """

    ports: frozenset[Range] | None
    peers: tuple[Raw, ...]
    blocks: Blocks | None
    tenant: bool

    @classmethod
    def of(cls, rule: Mapping[str, Any], tenant: str) -> OpenedRule:
        """Return a NetworkPolicyEgressRule of ``tenants.bounds``; its ports are numbers."""
        ports = rule.get("ports")
        ranges = merged((one["protocol"], one["port"], one["port"]) for one in ports) if ports else None
        blocks = []
        for peer in rule["to"]:
            if "ipBlock" in peer:
                block = peer["ipBlock"]
                excepts = map(ipaddress.ip_network, block.get("except", ()))
                blocks.append(block_of(ipaddress.ip_network(block["cidr"]), excepts))
        return cls(
            ranges,
            tuple(raw(one) for one in rule["to"]),
            Blocks(one for one in blocks if one is not None),
            {"namespaceSelector": {"matchLabels": {REMOTE_CLUSTER_LABEL: tenant}}} in rule["to"],
        )

    def meet(self, ports: RulePorts, named: Named) -> Iterator[tuple[RulePorts, Target]]:
        """Yield whom both this rule and one of home's name, at the ports that both allow.

        Where only some ports are open, a name is of none of them: its number differs by pod.
        """
        left = RulePorts(common(ports.ranges, self.ports), ports.names if self.ports is None else frozenset())
        if not left:
            return
        if isinstance(named, Everybody):
            yield from ((left, one) for one in self.peers)
        elif isinstance(named, Here):
            if self.tenant:
                yield left, named
        elif self.blocks is None:
            yield left, named
        else:
            yield from ((left, one) for one in self.blocks.meet(named))


def raw(peer: Mapping[str, Any]) -> Raw:
    """Return a NetworkPolicyPeer as a text; equal ones have equal texts."""
    return json.dumps(peer, sort_keys=True)


_EVERYBODY: Final[tuple[Mapping[str, Any], ...]] = (
    {"namespaceSelector": {}},
    *({"ipBlock": {"cidr": one}} for one in ("0.0.0.0/0", "::/0")),
)
EVERYTHING: Final = OpenedRule(None, tuple(raw(one) for one in _EVERYBODY), None, True)
"""Bounds that leave everything open."""
