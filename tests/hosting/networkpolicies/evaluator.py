"""What NetworkPolicies mean, written from the documentation alone; it shares no code with the compiler.

Sources: Kubernetes, "Network Policies" (the two sorts of pod isolation; behavior of ``to`` and ``from`` selectors;
targeting a range of ports); API reference of NetworkPolicy v1 (empty and missing fields, policyTypes) and of
LabelSelector (operators). How an ipBlock matches a pod or node is left open there ("should be cluster-external IPs"),
and plugins differ; ``blocks_match`` says which kind is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Endpoint:
    """One end of a connection as one cluster sees it; without a ``namespace`` it is no pod of that cluster.

    ``address`` is empty where the other end has none that means anything in this cluster.
    """

    address: str
    namespace: str = ""
    labels: Mapping[str, str] = {}
    ports: Mapping[str, tuple[str, int]] = {}
    node: bool = False


@attrs.frozen(kw_only=True)
class Cluster:
    """The policies of a cluster, and the labels of its namespaces."""

    policies: Sequence[Mapping[str, Any]]
    namespaces: Mapping[str, Mapping[str, str]]
    blocks_match: bool = True

    def allows(self, direction: str, pod: Endpoint, other: Endpoint, port: tuple[str, int]) -> bool:
        """Return whether traffic passes the policies for ``pod``; ``direction`` is Ingress or Egress as it sees it."""
        isolating = [
            one["spec"]
            for one in self.policies
            if one["metadata"]["namespace"] == pod.namespace
            and selects(one["spec"].get("podSelector", {}), pod.labels)
            and direction in policy_types(one["spec"])
        ]
        if not isolating:
            return True
        side, end = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
        target = pod if direction == "Ingress" else other
        for spec in isolating:
            own = pod.namespace
            for rule in spec.get(side) or []:
                peers, ports = rule.get(end) or [], rule.get("ports") or []
                if peers and not any(self._is_peer(one, other, own) for one in peers):
                    continue
                if not ports or any(is_port(one, target, port) for one in ports):
                    return True
        return False

    def _is_peer(self, peer: Mapping[str, Any], other: Endpoint, own: str) -> bool:
        if "ipBlock" in peer:
            in_cluster = bool(other.namespace) or other.node
            if not other.address or (in_cluster and not self.blocks_match):
                return False
            block, address = peer["ipBlock"], ip_address(other.address)
            return address in ip_network(block["cidr"]) and not any(
                address in ip_network(one) for one in block.get("except") or []
            )
        if not other.namespace:
            return False
        if "namespaceSelector" in peer:
            if not selects(peer["namespaceSelector"], self.namespaces[other.namespace]):
                return False
        elif other.namespace != own:
            return False
        return selects(peer.get("podSelector") or {}, other.labels)


def policy_types(spec: Mapping[str, Any]) -> list[str]:
    """Return the directions of a policy."""
    given: list[str] = spec.get("policyTypes") or []
    return given or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])


def is_port(port: Mapping[str, Any], target: Endpoint, called: tuple[str, int]) -> bool:
    """Return whether a port of a rule is the one that is called."""
    protocol, number = called
    if port.get("protocol", "TCP") != protocol:
        return False
    wanted = port.get("port")
    if wanted is None:
        return True
    if isinstance(wanted, str):
        return target.ports.get(wanted) == called
    return bool(wanted <= number <= port.get("endPort", wanted))


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects; an empty one selects everything."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in selector.get("matchExpressions") or []:
        has = term["key"] in labels
        among = has and labels[term["key"]] in (term.get("values") or [])
        if not {"In": among, "NotIn": not among, "Exists": has, "DoesNotExist": not has}[term["operator"]]:
            return False
    return True
