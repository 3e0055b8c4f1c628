"""Network facts derived from this cluster's nodes and pods. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from liqod.fabric.state.network import Vtep, overlaps, parse_networks
from liqod.model.addresses import is_ip, parse_ip
from liqod.model.names import OVERLAY_ANNOTATION
from liqod.model.objects.meta import find_condition
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod
from liqod.model.records.network import Network


def node_addresses(nodes: Sequence[Node]) -> list[Network]:
    """Return the addresses of the nodes, as networks of one address."""
    return parse_networks(
        one.address for node in nodes for one in node.status.addresses if one.type in ("InternalIP", "ExternalIP")
    )


def is_lost(address: str, nodes: Iterable[Node]) -> bool:
    """Return whether the host with an address is a node whose kubelet is silent (Kubernetes: node status, Ready)."""
    return any(
        one.type == "InternalIP" and one.address == address
        for node in nodes
        if not node.virtual and (ready := find_condition(node.status.conditions, "Ready")) and ready.status == "Unknown"
        for one in node.status.addresses
    )


def api_server_addresses(*urls: str) -> list[Network]:
    """Return the addresses in URLs of API servers, as networks of one address; URLs with a host name have none."""
    hosts = []
    for url in urls:
        try:
            hosts.append(urlsplit(url).hostname or "")
        except ValueError:
            continue
    return [one for one in parse_networks(filter(None, hosts)) if not one.is_loopback]


def find_vteps(nodes: Iterable[Node], own: str) -> tuple[Vtep, ...]:
    """Return the other hosts that announced that they are on the overlay, with the networks of their pods."""
    found = {}
    for node in nodes:
        announced = node.metadata.annotations.get(OVERLAY_ANNOTATION, "")
        if announced and announced != own and not node.virtual and is_ip(announced):
            # The host's own address too: replies to packets of the host itself have to go back over the overlay.
            found[announced] = Vtep(announced, (ipaddress.ip_network(announced), *parse_networks(node.spec.pod_cidrs)))
    return tuple(found[address] for address in sorted(found))


def pod_addresses(pods: Iterable[Pod], namespaces: Iterable[str], *, offloaded: bool = False) -> frozenset[str]:
    """Return the addresses of the pods of some namespaces that have any of their own; ``offloaded``: to us alone."""
    wanted = set(namespaces)
    return frozenset(
        address
        for pod in pods
        if pod.metadata.namespace in wanted and not pod.spec.host_network and (pod.is_offloaded or not offloaded)
        for one in pod.status.pod_ips
        if (address := _canonical(one.ip))
    )


def addresses_inside(pods: Iterable[Pod], networks: Sequence[Network]) -> frozenset[str]:
    """Return the addresses of running pods that lie in some networks."""
    found = set()
    for pod in pods:
        for one in pod.status.pod_ips:
            if (text := _canonical(one.ip)) and overlaps(ipaddress.ip_network(text), networks):
                found.add(text)
    return frozenset(found)


def _canonical(text: str) -> str:
    """Return an address as the kernel shows it (RFC 5952), to be compared with that; empty where it is none."""
    return str(parse_ip(text) or "")
