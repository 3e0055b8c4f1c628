"""Network facts derived from this cluster's nodes and pods. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from liqod.fabric.state.network import Vtep, overlaps, parse_networks
from liqod.model.names import OVERLAY_ANNOTATION
from liqod.model.objects.meta import Object, View
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod
from liqod.model.records.network import Network

NODE_BITS: Final = {4: 8, 6: 16}
"""How many bits a node's pod network is narrower than the cluster's, by IP version: the defaults of
kube-controller-manager (--node-cidr-mask-size-ipv4 24, -ipv6 64) with a cluster CIDR of the usual size (/16, /48)."""


class ServiceCIDRSpec(View, frozen=True):
    """The networks that services get addresses from."""

    cidrs: list[str] = []


class ServiceCIDR(Object, frozen=True):
    """A network of services (networking.k8s.io/v1)."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()


def pod_networks(nodes: Sequence[Node]) -> list[Network]:
    """Return the networks that hold the pods of all nodes, those of nodes to come included, as far as is known.

    Each node has a part of the cluster's network, which the API does not show as a whole: it is assumed to be wider
    than a node's by the default number of bits.
    """
    wide = set()
    for network in parse_networks(text for node in nodes for text in node.spec.pod_cidrs):
        shortest = 8 if network.version == 4 else 32
        wide.add(network.supernet(new_prefix=max(shortest, network.prefixlen - NODE_BITS[network.version])))
    four = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv6Network))
    return [*sorted(four), *sorted(six)]


def node_addresses(nodes: Sequence[Node]) -> list[Network]:
    """Return the addresses of the nodes, as networks of one address."""
    return parse_networks(
        one.address for node in nodes for one in node.status.addresses if one.type in ("InternalIP", "ExternalIP")
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
        if announced and announced != own and not node.virtual and _is_address(announced):
            # The host's own address too: replies to packets of the host itself have to go back over the overlay.
            found[announced] = Vtep(announced, (ipaddress.ip_network(announced), *parse_networks(node.spec.pod_cidrs)))
    return tuple(found[address] for address in sorted(found))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
