"""Single addresses that a peer reaches by our external network: what may be one, and which stands for which. Pure.

Reflection claims addresses of endpoints that are no pods of this cluster: machines outside, hosts of the cluster, pods
at another peer. Each gets an address of the external network, for each peer separately: where it is looked for follows
from the address itself, so that one that was released is not soon somebody else's, and a lost record is made again
as it was. What stands in the record stays until it is known that nobody claims it any more.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from liqod.fabric.model import Exported
from liqod.model.network import Address, Claims, Export, Network, shift

MOST: Final = 1024
"""Addresses that are exported to one peer at most; the record of the peer says as many."""
MOST_PORTS: Final = 128
"""Ports of one address, as many as the record says."""
METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")))
"""What clouds tell and grant their hosts at, besides the link-local addresses; never meant for anybody else."""
_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}


@attrs.frozen
class Grounds:
    """What decides whether an address is exported to a peer.

    ``pods``, ``services`` and ``external`` are this cluster's networks, ``peer`` the pods of the peer itself as they
    read here, ``transit`` the pods of the other peers, ``foreign`` the external networks of all peers.
    """

    pods: tuple[Network, ...]
    services: tuple[Network, ...]
    external: Network
    peer: tuple[Network, ...] = ()
    transit: tuple[Network, ...] = ()
    foreign: tuple[Network, ...] = ()


def objection(text: str, grounds: Grounds) -> str:
    """Return why an address gets none of the external network, as the rest of a sentence; empty: it may."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "is no address"
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return "is no address that another cluster can use"
    if _is_local(address):
        return "has a meaning on its own host or link alone"
    if address in METADATA:
        return "is where a cloud's hosts get their credentials"
    for networks, what in (
        (grounds.pods, "is of this cluster's pods"),
        (grounds.services, "is of a service, not of an endpoint"),
        ((grounds.external,), "stands for another one itself"),
        (grounds.foreign, "stands for something behind a peer itself"),
        (grounds.peer, "is of the peer's own pods"),
    ):
        if _inside(address, networks):
            return what
    if address.version != grounds.external.version:
        return f"is of IPv{address.version}, and network.external-cidr is not"
    return ""


def given_exports(
    grounds: Grounds, held: Sequence[Export], claims: Claims, most: int = MOST
) -> tuple[list[Export], list[str]]:
    """Return what is exported to a peer, by address, and the claimed addresses for which there is no room.

    ``held`` is what the record says. What is not claimed is released once the claims are complete.
    """
    asked = {address: ports for address, ports in _asked(claims).items() if not objection(address, grounds)}
    given: dict[str, Export] = {}
    taken: set[int] = set()
    for one in held:
        at = _offset(one, grounds.external)
        # What is asked for has passed already; the rest only stays while not all is known.
        lasting = one.address in asked or (not claims.complete and not objection(one.address, grounds))
        if lasting and one.address not in given and at and at not in taken:
            before = None if claims.complete else frozenset(one.ports)
            given[one.address] = _export(one.address, one.external, asked.get(one.address), before, grounds)
            taken.add(at)
    room = min(most, _size(grounds.external))
    left = sorted(asked.keys() - given.keys())
    for address in left[: max(0, room - len(given))]:
        at = _first_free(address, taken, _size(grounds.external))
        taken.add(at)
        given[address] = _export(address, str(grounds.external[at]), asked[address], None, grounds)
    return [given[address] for address in sorted(given)], [address for address in left if address not in given]


def exported(exports: Iterable[Export], external: Network, seen: Network | None) -> tuple[Exported, ...]:
    """Return the exports of a record as a peer calls them; nothing while it has no view of our external network."""
    if seen is None:
        return ()
    return tuple(
        Exported(str(shift(external[at], external, seen)), str(ipaddress.ip_address(one.address)), _ports(one.ports))
        for one in exports
        if (at := _offset(one, external))
    )


def _asked(claims: Claims) -> Mapping[str, frozenset[str]]:
    """Return the ports that are claimed, by address; none: all."""
    found: dict[str, set[str]] = {}
    for address, port in claims.wanted:
        found.setdefault(address, set()).add(port)
    return {address: frozenset() if "" in ports else frozenset(ports) for address, ports in found.items()}


def _export(
    address: str, external: str, asked: frozenset[str] | None, before: frozenset[str] | None, grounds: Grounds
) -> Export:
    """Return an export with the ports that are asked for, and those that it had while not all is known."""
    several = [ports for ports in (asked, before) if ports is not None]
    # Pods are reached as a whole, also those at another peer, like those of this cluster.
    whole = any(not ports for ports in several) or _inside(ipaddress.ip_address(address), grounds.transit)
    ports = [] if whole else sorted(frozenset().union(*several))[:MOST_PORTS]
    return Export(address=address, external=external, ports=ports)


def _ports(texts: Sequence[str]) -> frozenset[tuple[str, int]]:
    found = set()
    for text in texts:
        protocol, _, port = text.partition("/")
        if protocol in _PROTOCOLS and port.isdecimal() and 0 < int(port) < 65536:
            found.add((_PROTOCOLS[protocol], int(port)))
    # Ports that cannot be read must not become "everything".
    return frozenset(found) or (frozenset({("tcp", 0)}) if texts else frozenset())


def _first_free(address: str, taken: set[int], size: int) -> int:
    """Return the first free place, counted from 2: the network's own address and the gateway's come before."""
    begin = int.from_bytes(hashlib.sha256(address.encode()).digest()[:8]) % size
    return next(2 + (begin + step) % size for step in range(size) if 2 + (begin + step) % size not in taken)


def _size(external: Network) -> int:
    """Return how many addresses can stand for others: all but the network's, the gateway's and the last one."""
    return min(max(0, external.num_addresses - 3), 1 << 20)


def _offset(one: Export, external: Network) -> int:
    """Return the place of an export in the external network, 0 where it has none or cannot be read."""
    try:
        address, real = ipaddress.ip_address(one.external), ipaddress.ip_address(one.address)
    except ValueError:
        return 0
    at = int(address) - int(external.network_address)
    return at if address.version == external.version == real.version and 2 <= at < 2 + _size(external) else 0


def _is_local(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.version == 4 and (address.is_reserved or int(address) >> 24 == 0))
    )


def _inside(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
