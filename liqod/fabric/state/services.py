"""Services of home by their own addresses, called from its pods in another cluster. Pure.

A pod of home calls a Service by the address that it has at home: one that a program has stored, or that
stands in its configuration. In the lender's cluster such an address means nothing, or something else. So for
packets of home's own pods there the lender translates home's network of Services to a range of the same size, which it
knows this peer by, as it does with networks of pods. Home puts the network back before anything of its host sees the
packet, and its kube-proxy does the rest.

Addresses are translated once for a connection (``kernel.rules.nftables``): the lender cannot aim at its own Services
before its kube-proxy, and home has to do its part without connection tracking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liqod.fabric.state.network import ServiceMap, overlaps
from liqod.model.addresses import parse_ips
from liqod.model.records.network import MAX_SERVICE_NETWORKS, Network, NetworkConfig, paired


def service_maps(services: Sequence[str], seen: Sequence[str]) -> tuple[ServiceMap, ...]:
    """Return aligned networks as pairs; none where they do not fit each other."""
    found = paired(services[:MAX_SERVICE_NETWORKS], seen[:MAX_SERVICE_NETWORKS])
    return tuple(ServiceMap(one, two) for one, two in found)


def services_as_agreed(config: NetworkConfig) -> tuple[bool | None, str, str]:
    """Return whether our pods at a peer call our Services by their addresses (None: not known yet), and why."""
    if config.status.phase != "Agreed":
        return None, "Unknown", "the networks are not agreed on yet"
    if not config.spec.local.service_cidrs:
        return (
            False,
            "ServicesNotSeen",
            "this cluster's network of Services is not announced: it is not known, or they are carried out by eBPF",
        )
    if not config.status.ack.service_cidrs:
        return (
            False,
            "NotLedByLender",
            "the lender leads no calls of this cluster's Services: its release has no such function, its Services are "
            "carried out by eBPF, or its service-pools have no room; offloaded pods call Services by name",
        )
    return True, "Tunnel", "offloaded pods call this cluster's Services by their own addresses"


def callable_services(maps: Iterable[ServiceMap], used_here: Iterable[Network]) -> tuple[ServiceMap, ...]:
    """Return the networks of a peer's Services that its pods here can call by their addresses.

    A network that overlaps what is ``used_here`` by other than Services would lead packets of these pods away from it.
    """
    used = list(used_here)
    return tuple(one for one in maps if overlaps(one.services, used) is None)


def own_services(maps: Iterable[ServiceMap], addresses: Iterable[str]) -> frozenset[str]:
    """Return those addresses of Services here that lie in networks of a peer's Services: here they mean ours."""
    networks = [one.services for one in maps]
    parsed = parse_ips(addresses)
    return frozenset(str(address) for address in parsed if any(address in network for network in networks))
