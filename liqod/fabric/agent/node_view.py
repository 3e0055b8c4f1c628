"""Derives the desired state of a host that is no gateway, from the TunnelEndpoint records alone. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from liqod.fabric.agent.kernel.model import PRIORITY, TABLE, DesiredNodeKernel, Overlay
from liqod.fabric.agent.kernel.vxlan import device_name, overlay_mtu
from liqod.fabric.state.guests import Guests, callable_guests
from liqod.fabric.state.network import Netmap, Vtep, of_four, parse_networks
from liqod.fabric.state.services import callable_services, own_services, service_maps
from liqod.model.ids import ClusterID
from liqod.model.objects.node import Node
from liqod.model.records.network import (
    MAX_GUESTS,
    MAX_NETWORKS,
    MAX_OWN_SERVICES,
    Gateway,
    Network,
    TunnelEndpoint,
    paired,
)


def node_desired(
    tunnel: str,
    local: str,
    uplink: int,
    records: Sequence[TunnelEndpoint],
    *,
    priority: int = PRIORITY,
    has_six: bool = True,
) -> DesiredNodeKernel | None:
    """Return what connects this host's pods with all peers; None while no record names a gateway on another host.

    ``tunnel`` is the name of the gateways' device, ``local`` this host's address, ``uplink`` the MTU of its interface,
    ``priority`` that of the policy rule. Without ``has_six`` the host has no IPv6, and no route of it.
    """
    usable = [record for record in records if _is_usable(record.spec.gateway, local)]
    if not usable:
        return None
    # All records of a cluster name the same gateway; while it moves to another host the newest ones win together.
    gateway = max(usable, key=lambda record: int(record.metadata.resource_version or 0)).spec.gateway
    routed = [record for record in usable if record.spec.gateway == gateway]
    remote = tuple(sorted({one for record in routed for one in parse_networks(record.spec.allowed_ips)}, key=_order))
    remote = remote if has_six else of_four(remote)
    pods = tuple(sorted({one for record in routed for one in parse_networks(record.spec.local.pod_cidrs)}, key=_order))
    overlay = Overlay(
        device=device_name(tunnel),
        vni=gateway.vni,
        port=gateway.port,
        local=local,
        mtu=overlay_mtu(uplink, local),
        vteps=(Vtep(gateway.address, remote),),
        table=TABLE,
        priority=priority,
        path_mtu=min((record.status.path_mtu for record in routed if record.status.path_mtu), default=0),
    )
    return DesiredNodeKernel(overlay, pods, remote, _guests(routed, pods))


def _guests(records: Sequence[TunnelEndpoint], pods: Sequence[Network]) -> tuple[Guests, ...]:
    found: list[Guests] = []
    taken: set[str] = set()
    for record in sorted(records, key=lambda one: one.metadata.name):
        spec = record.spec
        pairs = paired(spec.local.pod_cidrs[:MAX_NETWORKS], spec.local_seen.pod_cidrs[:MAX_NETWORKS])
        local = tuple(Netmap(ours, seen) for ours, seen in pairs)
        # As on the gateway: what another peer is known by here does not count, since a peer's guests alone are led by
        # its own range; and a pod is of one cluster, that of the first record by name that says so.
        used = [*pods, *parse_networks(spec.allowed_ips)]
        addresses = callable_guests(spec.guests[:MAX_GUESTS], local, used) - taken
        taken |= addresses
        if addresses:
            services = callable_services(service_maps(spec.remote.service_cidrs, spec.remote_seen.service_cidrs), used)
            own = own_services(services, spec.own_services[:MAX_OWN_SERVICES])
            found.append(Guests(ClusterID(spec.cluster_id), addresses, local, services, own))
    return tuple(found)


def own_node(nodes: Sequence[Node], name: str, address: str) -> str:
    """Return the name of the Node that is this host: the one with a name, else the one with an address; else none."""
    for node in nodes:
        if node.virtual:
            continue
        if node.metadata.name == name or (not name and address in [one.address for one in node.status.addresses]):
            return node.metadata.name
    return ""


def _is_usable(gateway: Gateway, local: str) -> bool:
    if gateway.address == local or not (0 < gateway.vni < 1 << 24 and 0 < gateway.port < 65536):
        return False
    try:
        return ipaddress.ip_address(gateway.address).version == ipaddress.ip_address(local).version
    except ValueError:
        return False


def _order(network: Network) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen
