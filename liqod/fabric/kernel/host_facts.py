"""What this cluster and this host are like, as far as the network needs it. Pure: views and what follows from them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from liqod.fabric.kernel.model import End
from liqod.model.names import OVERLAY_ANNOTATION, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object, View
from liqod.model.records.network import Network

SPREAD: Final = {4: 8, 6: 16}
"""How many bits Kubernetes leaves between a cluster's pod network and a node's, unless told otherwise."""
TUNNEL_OVERHEAD: Final = 80
"""Bytes that WireGuard adds to a packet over IPv6, the larger of the two."""
DEFAULT_MTU: Final = 1420
LEAST_MTU: Final = 1280


class NodeAddress(View, frozen=True):
    """One address of a node."""

    type: str = ""
    address: str = ""


class NodeSpec(View, frozen=True):
    """The networks that a node gives its pods addresses from."""

    pod_cidrs: list[str] = msgspec.field(name="podCIDRs", default=[])


class NodeStatus(View, frozen=True):
    """Where a node is."""

    addresses: list[NodeAddress] = []


class Node(Object, frozen=True):
    """A node, as far as the network needs it."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodAddress(View, frozen=True):
    """One address of a pod."""

    ip: str = ""


class PodStatus(View, frozen=True):
    """The addresses of a pod."""

    phase: str = ""
    pod_ips: list[PodAddress] = msgspec.field(name="podIPs", default=[])


class PodSpec(View, frozen=True):
    """Whether a pod has addresses of its own."""

    host_network: bool = False
    node_name: str = ""


class Pod(Object, frozen=True):
    """A pod, by its addresses."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServiceCIDRSpec(View, frozen=True):
    """The networks that services get addresses from."""

    cidrs: list[str] = []


class ServiceCIDR(Object, frozen=True):
    """A network of services (networking.k8s.io/v1)."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()


def parse_all(texts: Iterable[str]) -> list[Network]:
    """Return those texts that are networks."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return found


def pod_networks(nodes: Sequence[Node]) -> list[Network]:
    """Return the networks that hold the pods of all nodes, those of nodes to come included, as far as can be told.

    Nodes have a part each of the cluster's network, and the API does not tell the whole: it is taken to be wider than
    a node's by as many bits as is usual.
    """
    wide = set()
    for network in parse_all(text for node in nodes for text in node.spec.pod_cidrs):
        shortest = 8 if network.version == 4 else 32
        wide.add(network.supernet(new_prefix=max(shortest, network.prefixlen - SPREAD[network.version])))
    four = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv6Network))
    return [*sorted(four), *sorted(six)]


def node_addresses(nodes: Sequence[Node]) -> list[Network]:
    """Return the addresses of the nodes, as networks of one address."""
    return parse_all(
        one.address for node in nodes for one in node.status.addresses if one.type in ("InternalIP", "ExternalIP")
    )


def overlay_ends(nodes: Iterable[Node], own: str) -> tuple[End, ...]:
    """Return the other hosts that said that they are on the overlay, with the networks of their pods."""
    found = {}
    for node in nodes:
        said = node.metadata.annotations.get(OVERLAY_ANNOTATION, "")
        if said and said != own and node.metadata.labels.get(TYPE_LABEL) != VIRTUAL_NODE_TYPE and _is_address(said):
            # What the host itself says to a peer comes from its own address, and the answer goes back the same way.
            found[said] = End(said, (ipaddress.ip_network(said), *parse_all(node.spec.pod_cidrs)))
    return tuple(found[address] for address in sorted(found))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def uplink_mtu(text: str, address: str) -> int:
    """Return the MTU of the interface that has an address, from ``ip -j addr show``; 0 where none has it."""
    for link in json.loads(text or "[]"):
        if any(one.get("local") == address for one in link.get("addr_info", [])):
            return int(link.get("mtu", 0))
    return 0


def host_addresses(text: str, own: Collection[str]) -> frozenset[str]:
    """Return this host's addresses of global scope, from ``ip -j addr show``, without those of ``own`` devices."""
    return frozenset(
        str(one.get("local"))
        for link in json.loads(text or "[]")
        if link.get("ifname") not in own
        for one in link.get("addr_info", [])
        if one.get("scope") == "global"
    )


def tunnel_mtu(configured: int, uplink: int) -> int:
    """Return the MTU of the tunnel's device."""
    if configured:
        return configured
    return max(LEAST_MTU, min(uplink, 9000) - TUNNEL_OVERHEAD) if uplink else DEFAULT_MTU


def pod_addresses(pods: Iterable[Pod], namespaces: Iterable[str]) -> frozenset[str]:
    """Return the addresses of the pods of some namespaces that have any of their own."""
    wanted = set(namespaces)
    return frozenset(
        one.ip
        for pod in pods
        if pod.metadata.namespace in wanted and not pod.spec.host_network
        for one in pod.status.pod_ips
        if one.ip
    )
