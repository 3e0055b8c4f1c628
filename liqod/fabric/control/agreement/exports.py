"""Exported addresses, which a peer reaches by our external network: which are allowed, and their assignment. Pure.

Reflection asks for addresses of endpoints that are no pods of this cluster: machines outside, hosts of the cluster,
pods at another peer. Each gets an address of the external network, for each peer separately. The search for a free one
starts at a hash of the requested address, so that a released one is not assigned to another soon, and a lost record is
made again as it was. What is in the record stays until it is known that nobody asks for it any more.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from liqod.fabric.state.network import ExportedAddress
from liqod.fabric.state.validation import MOST_EXPORTS, MOST_PORTS
from liqod.model.addresses import Address, parse_ip
from liqod.model.host_port import parse_port
from liqod.model.records.network import Export, ExportRequests, Network, shift
from liqod.model.special_networks import special

_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}


@attrs.frozen
class ExportPolicy:
    """What decides whether an address is exported to a peer.

    ``pods``, ``services`` and ``externals`` (by IP version one at most) are this cluster's networks, ``peer`` the pods
    of the peer itself as they read here, ``transit`` the pods of the other peers, ``foreign`` the external networks of
    all peers. Where it is ``closed``, an address is exported at ports that are named, never as a whole.
    """

    pods: tuple[Network, ...]
    services: tuple[Network, ...]
    externals: tuple[Network, ...]
    peer: tuple[Network, ...] = ()
    transit: tuple[Network, ...] = ()
    foreign: tuple[Network, ...] = ()
    closed: bool = False

    def external_for(self, address: Address) -> Network | None:
        """Return the external network for an address: that of its IP version."""
        return next((one for one in self.externals if one.version == address.version), None)


def export_refusal(text: str, policy: ExportPolicy, *, whole: bool = False) -> str:
    """Return why an address is not exported, as the rest of a sentence; empty where it may be.

    ``whole``: no port is named there, all of them would be open.
    """
    address = parse_ip(text)
    if address is None:
        return "is no address"
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return "is no address that another cluster can use"
    if said := special(address):
        return said
    for networks, what in (
        (policy.pods, "is of this cluster's pods"),
        (policy.services, "is of a service, not of an endpoint"),
        (policy.externals, "stands for another one itself"),
        (policy.foreign, "stands for something behind a peer itself"),
        (policy.peer, "is of the peer's own pods"),
    ):
        if _inside(address, networks):
            return what
    if policy.external_for(address) is None:
        return f"is of IPv{address.version}, and neither network.external-cidr nor external-cidr-6 is for this peer"
    if whole and policy.closed and not _inside(address, policy.transit):
        return "is no pod, and its slice names no port: all of it would be open to the peer; name the ports"
    return ""


def assign_exports(
    policy: ExportPolicy, held: Sequence[Export], requests: ExportRequests, most: int = MOST_EXPORTS
) -> tuple[list[Export], list[str]]:
    """Return what is exported to a peer, by address, and the requested addresses for which none is free.

    ``held`` are the exports in the record. Those that nobody asks for are released once the requests are complete.
    """
    requested = {
        address: ports
        for address, ports in _requested_ports(requests, policy).items()
        if not export_refusal(address, policy, whole=not ports)
    }
    given: dict[str, Export] = {}
    taken: dict[Network, set[int]] = {external: set() for external in policy.externals}
    for one in held:
        external = next((network for network in policy.externals if _offset(one, network)), None)
        if external is None or one.address in given or (at := _offset(one, external)) in taken[external]:
            continue
        # What was open as a whole under the policy `open` must not stay so under `closed`.
        refused = export_refusal(one.address, policy, whole=not one.ports)
        # What is requested was checked above; the rest stays only while not all requests are known.
        if one.address in requested or (not requests.complete and not refused):
            before = None if requests.complete or refused else frozenset(one.ports)
            given[one.address] = _export(one.address, one.external, requested.get(one.address), before, policy)
            taken[external].add(at)
    left = sorted(requested.keys() - given.keys())
    for address in left:
        external = policy.external_for(ipaddress.ip_address(address))
        if external is None or len(given) >= most or len(taken[external]) >= _size(external):
            continue
        at = _first_free(address, taken[external], _size(external))
        taken[external].add(at)
        given[address] = _export(address, str(external[at]), requested[address], None, policy)
    return [given[address] for address in sorted(given)], [address for address in left if address not in given]


def exports_as_seen(exports: Iterable[Export], external: Network, seen: Network | None) -> tuple[ExportedAddress, ...]:
    """Return the exports of a record by the addresses that the peer calls; nothing while it sees no network."""
    if seen is None:
        return ()
    return tuple(
        ExportedAddress(
            str(shift(external[at], external, seen)), str(ipaddress.ip_address(one.address)), _ports(one.ports)
        )
        for one in exports
        if (at := _offset(one, external))
    )


def unnamed(requests: ExportRequests) -> frozenset[str]:
    """Return the addresses for which no request names a port."""
    named = {address for address, port in requests.wanted if port}
    return frozenset(address for address, _ in requests.wanted if address not in named)


def _requested_ports(requests: ExportRequests, policy: ExportPolicy) -> Mapping[str, frozenset[str]]:
    """Return the ports that are requested, by address; none: all.

    Under the policy `closed` only named ports are opened, also where another request names none.
    """
    found: dict[str, set[str]] = {}
    for address, port in requests.wanted:
        found.setdefault(address, set()).add(port)
    return {
        address: frozenset() if "" in ports and not policy.closed else frozenset(ports - {""})
        for address, ports in found.items()
    }


def _export(
    address: str, external: str, requested: frozenset[str] | None, before: frozenset[str] | None, policy: ExportPolicy
) -> Export:
    """Return an export with the requested ports, and those that it had while not all requests are known."""
    several = [ports for ports in (requested, before) if ports is not None]
    # Pods are reached as a whole, also those at another peer, like those of this cluster.
    whole = any(not ports for ports in several) or _inside(ipaddress.ip_address(address), policy.transit)
    ports = [] if whole else sorted(frozenset().union(*several))[:MOST_PORTS]
    return Export(address=address, external=external, ports=ports)


def _ports(texts: Sequence[str]) -> frozenset[tuple[str, int]]:
    found = set()
    for text in texts:
        protocol, _, port = text.partition("/")
        if protocol in _PROTOCOLS and (number := parse_port(port)):
            found.add((_PROTOCOLS[protocol], number))
    # An empty set means all ports: ports that cannot be parsed must not become that.
    return frozenset(found) or (frozenset({("tcp", 0)}) if texts else frozenset())


def _first_free(address: str, taken: set[int], size: int) -> int:
    """Return the first free offset from 2 on: 0 is the network's own address, 1 the gateway's."""
    begin = int.from_bytes(hashlib.sha256(address.encode()).digest()[:8]) % size
    return next(2 + (begin + step) % size for step in range(size) if 2 + (begin + step) % size not in taken)


def _size(external: Network) -> int:
    """Return how many addresses can be assigned: all but the network's, the gateway's and the last one."""
    return min(max(0, external.num_addresses - 3), 1 << 20)


def _offset(one: Export, external: Network) -> int:
    """Return the offset of an export in the external network, 0 where it has none or cannot be parsed."""
    address, real = parse_ip(one.external), parse_ip(one.address)
    if address is None or real is None:
        return 0
    at = int(address) - int(external.network_address)
    return at if address.version == external.version == real.version and 2 <= at < 2 + _size(external) else 0


def _inside(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
