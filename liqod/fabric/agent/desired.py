"""Derives the desired network of a gateway's host from the records alone, and refuses what must not be done. Pure.

The records are the input of a process with rights over the host's network, and what may write them is not trusted with
these rights. What a record says is parsed and checked again, whatever process wrote it: networks of a peer come
out of the pools of this host's own settings and overlap nothing that the host needs, exported addresses lead to none
that has a meaning on this host alone, and nothing becomes text for a program before it was parsed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from liqod.fabric.state.guests import callable_guests
from liqod.fabric.state.network import (
    DesiredNetwork,
    DirectLink,
    ExportedAddress,
    Link,
    Netmap,
    PathKey,
    ProbeTargets,
    ServiceMap,
    Vtep,
    contains,
    first_of,
    overlaps,
    parse_networks,
    probed_gateway,
)
from liqod.fabric.state.services import callable_services, own_services, service_maps
from liqod.fabric.state.validation import (
    LARGEST_MTU,
    MOST_EXPORTS,
    MOST_PORTS,
    SMALLEST_MTU,
    check_ack,
    disjoint,
    endpoint_of,
    external_network,
    external_six,
    is_key,
    network,
    service_range,
)
from liqod.model.addresses import Address, parse_ip
from liqod.model.host_port import join_address, parse_port
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    MAX_DIRECT,
    MAX_GUESTS,
    MAX_HOSTS,
    MAX_NETWORKS,
    MAX_OWN_SERVICES,
    MAX_PODS,
    MAX_SERVICE_NETWORKS,
    Network,
    NetworkGatewaySpec,
    SeenExport,
    TunnelEndpoint,
)
from liqod.model.records.offer import Refusal
from liqod.model.special_networks import UNUSABLE, special

PROTOCOLS: Final = frozenset({"tcp", "udp", "sctp"})


@attrs.frozen(kw_only=True)
class RecordLimits:
    """What records may say on this host, by its own settings and by what it needs.

    A peer's networks lie inside ``given`` (the pools and the accepted networks), ranges for its Services inside
    ``service_pools``, and overlap nothing of ``needed``: next hops, name servers, addresses of this host and of the API
    server. ``own_services`` are those of them that are addresses of Services, as a pod has the API server's: a network
    of this cluster's Services may hold them. ``externals`` hold this host's own addresses on the tunnels, ``keys`` are
    its own public ones. Where it is ``closed``, no record opens a tunnel to all pods.
    """

    given: tuple[Network, ...]
    needed: tuple[Network, ...]
    externals: tuple[Network, ...]
    keys: frozenset[str]
    closed: bool
    service_pools: tuple[Network, ...] = ()
    own_services: tuple[Network, ...] = ()


@attrs.frozen
class Derived:
    """The desired network, and why records are left out of it, by name."""

    network: DesiredNetwork
    refused: dict[str, Refusal]


def desired_network(
    gateway: NetworkGatewaySpec, records: Sequence[TunnelEndpoint], limits: RecordLimits, mtu: int
) -> Derived:
    """Return the network that records describe, as far as the limits allow it; ``mtu`` is the tunnel device's.

    The first of two records, by name, that want the same key or overlapping networks has it; a key that one has now is
    not another's next one.
    """
    links: list[Link] = []
    found: dict[str, Link] = {}
    refused: dict[str, Refusal] = {}
    gateways: dict[str, str] = {}
    pods: dict[PathKey, str] = {}
    guests: set[str] = set()
    addresses = _own_addresses(gateway, limits)
    ordered = sorted(records, key=lambda one: one.metadata.name)
    for record in ordered:
        try:
            found[record.metadata.name] = link_of(record, limits, mtu)
        except Refusal as refusal:
            refused[record.metadata.name] = refusal
    in_use = {link.public_key: link.peer for link in found.values()}
    for record in ordered:
        name = record.metadata.name
        if (link := found.get(name)) is None:
            continue
        try:
            if (holder := in_use.get(link.next_key)) is not None:
                raise Refusal("KeyInUse", f"the next tunnel key is that of {holder}")
            for other in links:
                _check_apart(link, other)
        except Refusal as refusal:
            refused[name] = refusal
            continue
        # A pod is of one cluster: traffic of a peer's pods is translated by that peer's choice alone.
        links.append(attrs.evolve(link, guests=link.guests - guests))
        guests |= link.guests
        seen = record.spec.remote_seen
        externals = parse_networks(filter(None, (seen.external_cidr, seen.external_six)))
        if addresses and (probed := probed_gateway(externals, addresses[0])):
            gateways[name] = probed
        for text in record.spec.probe_pods[:2]:
            address = _address(text)
            if address is not None and overlaps(ipaddress.ip_network(address), link.remote):
                pods[name, address.version] = str(address)
    return Derived(
        DesiredNetwork(
            mtu=mtu,
            addresses=addresses,
            links=tuple(links),
            vteps=_vteps(gateway, limits),
            probes=ProbeTargets(gateways, pods),
        ),
        refused,
    )


def link_of(record: TunnelEndpoint, limits: RecordLimits, mtu: int) -> Link:
    """Return the link that a record describes; raises Refusal where the limits forbid it, or it says nothing sound."""
    spec = record.spec
    if not spec.detailed:
        raise Refusal("NotDetailed", "control has not written what a network agent needs; is its role all?")
    if spec.cluster_id != record.metadata.name:
        raise Refusal("BadRecord", "the record is named otherwise than its peer")
    _check_keys(spec.public_key, spec.next_key, limits)
    peer_services = _peer_services(record, limits)
    remote = (*_remote(record, limits), *(one.seen for one in peer_services))
    disjoint(remote)
    ours, external, six = _ours(record, limits)
    services = _services(record, limits)
    if overlap := next(
        (one for one in remote if overlaps(one, [*ours, *(one for one in (external, six) if one is not None)])), None
    ):
        raise Refusal("CIDRForbidden", f"the peer's network {overlap} overlaps this cluster's own")
    view = check_ack(spec.local_seen, ours, (external, six), services)
    endpoint = ""
    if spec.endpoint:
        host, port = endpoint_of(spec.endpoint)
        if inside := overlaps(ipaddress.ip_network(host), remote):
            raise Refusal("BadEndpoint", f"the tunnel endpoint {host} lies inside the peer's own network {inside}")
        endpoint = join_address(host, port)
    if not SMALLEST_MTU <= spec.mtu <= LARGEST_MTU:
        raise Refusal("BadMTU", f"an MTU of {spec.mtu} is not between {SMALLEST_MTU} and {LARGEST_MTU}")
    measured = record.status.path_mtu
    least = min(mtu, spec.mtu)
    local = tuple(Netmap(one, seen) for one, seen in zip(ours, view.pods, strict=True))
    used = [*ours, *remote, *limits.needed, *limits.externals]
    return Link(
        peer=ClusterID(spec.cluster_id),
        public_key=spec.public_key,
        endpoint=endpoint,
        remote=remote,
        local=local,
        gateway=Netmap(first_of(external), first_of(view.external)) if external and view.external else None,
        mtu=min(least, measured) if measured >= SMALLEST_MTU else least,
        pods=_allowed(spec.allowed_pods, ours) if spec.closed or limits.closed else None,
        next_key=spec.next_key if spec.next_key != spec.public_key else "",
        external=Netmap(external, view.external) if external and view.external else None,
        exports=_exports(spec.exports, [one for one in (view.external, view.six) if one is not None], limits),
        six=Netmap(six, view.six) if six and view.six else None,
        guests=callable_guests(spec.guests[:MAX_GUESTS], local, used),
        services=view.services,
        peer_services=callable_services(peer_services, used),
        own_services=own_services(peer_services, spec.own_services[:MAX_OWN_SERVICES]),
        offloaded=_allowed(spec.offloaded, remote),
        direct=_direct(record, remote, ours),
    )


def _direct(record: TunnelEndpoint, remote: Sequence[Network], ours: Sequence[Network]) -> tuple[DirectLink, ...]:
    """Return the homes whose pods use the tunnel: their networks there are the peer's, their pods here are ours."""
    found: dict[str, DirectLink] = {}
    if len(record.spec.direct) > MAX_DIRECT:
        raise Refusal("TooMany", f"more than {MAX_DIRECT} homes would use the tunnel, whose pods would meet")
    for one in record.spec.direct:
        if one.home == record.metadata.name or len(one.networks) > MAX_NETWORKS:
            raise Refusal("BadRecord", f"{one.home[:63]!r} has no direct connection with that peer")
        networks = tuple(network(text, "a network of a home's pods at the peer") for text in one.networks)
        for wanted in networks:
            if not any(contains(wide, wanted) for wide in remote):
                raise Refusal("CIDRForbidden", f"the network {wanted} of {one.home[:63]!r} is none of the peer's")
        found[one.home] = DirectLink(ClusterID(one.home), networks, _allowed(one.pods[:MAX_GUESTS], ours))
    return tuple(found.values())


def _peer_services(record: TunnelEndpoint, limits: RecordLimits) -> tuple[ServiceMap, ...]:
    named, seen = record.spec.remote.service_cidrs, record.spec.remote_seen.service_cidrs
    for text in named[:MAX_SERVICE_NETWORKS]:
        network(text, "a network of the peer's Services")
    for text in seen[:MAX_SERVICE_NETWORKS]:
        one = service_range(text, "the range for the peer's Services")
        if not any(contains(wide, one) for wide in limits.service_pools):
            raise Refusal("CIDRForbidden", f"the range {one} is not in network.service-pools of this host")
        if needed := overlaps(one, limits.needed):
            raise Refusal("CIDRForbidden", f"the range {one} holds {needed}, which this host needs")
    return service_maps(named, seen)


def _services(record: TunnelEndpoint, limits: RecordLimits) -> list[Network]:
    found = [
        network(text, "a network of this cluster's Services")
        for text in record.spec.local.service_cidrs[:MAX_SERVICE_NETWORKS]
    ]
    elsewhere = [one for one in limits.needed if one not in limits.own_services]
    for one in found:
        if needed := overlaps(one, elsewhere):
            raise Refusal("CIDRForbidden", f"the network of Services {one} holds {needed}, which this host needs")
    return found


def _check_keys(public_key: str, next_key: str, limits: RecordLimits) -> None:
    if not is_key(public_key) or (next_key and not is_key(next_key)):
        raise Refusal("BadKey", "the peer's tunnel key is not a WireGuard public key")
    if limits.keys & {public_key, next_key}:
        raise Refusal("KeyInUse", "the peer's tunnel key is our own")


def _check_apart(one: Link, two: Link) -> None:
    if {one.public_key, one.next_key} & {key for key in (two.public_key, two.next_key) if key}:
        raise Refusal("KeyInUse", f"the tunnel key is that of {two.peer}")
    for network_ in one.remote:
        if overlaps(network_, two.remote):
            raise Refusal("CIDROverlap", f"the network {network_} overlaps one of {two.peer}")


def _remote(record: TunnelEndpoint, limits: RecordLimits) -> tuple[Network, ...]:
    seen = record.spec.remote_seen
    if not seen.pod_cidrs or len(seen.pod_cidrs) > MAX_NETWORKS:
        raise Refusal("NoPodNetwork", f"a peer has from 1 to {MAX_NETWORKS} networks of pods")
    found = [network(text, "a network of the peer") for text in seen.pod_cidrs]
    if seen.external_cidr:
        found.append(external_network(seen.external_cidr, "the external network of the peer"))
    if seen.external_six:
        found.append(external_six(seen.external_six, None))
    disjoint(found)
    for one in found:
        if not any(contains(wide, one) for wide in limits.given):
            raise Refusal(
                "CIDRForbidden",
                f"the peer's network {one} is in neither network.pools nor network.accept of this host",
            )
        if needed := overlaps(one, limits.needed):
            raise Refusal("CIDRForbidden", f"the peer's network {one} holds {needed}, which this host needs")
    return tuple(found)


def _ours(record: TunnelEndpoint, limits: RecordLimits) -> tuple[list[Network], Network | None, Network | None]:
    local = record.spec.local
    if not local.pod_cidrs or len(local.pod_cidrs) > MAX_NETWORKS:
        raise Refusal("NoPodNetwork", f"a cluster has from 1 to {MAX_NETWORKS} networks of pods")
    pods = [network(text, "a network of this cluster's pods") for text in local.pod_cidrs]
    what = "this cluster's external network"
    external = external_network(local.external_cidr, what) if local.external_cidr else None
    six = external_six(local.external_six, external) if local.external_six else None
    for one in (external, six):
        if one is not None and one not in limits.externals:
            raise Refusal("CIDRForbidden", f"{what} {one} is not the one in this host's settings")
    return pods, external, six


def _allowed(texts: Iterable[str], ours: Sequence[Network]) -> frozenset[str]:
    found = set()
    for text in list(texts)[:MAX_PODS]:
        address = _address(text)
        if address is not None and overlaps(ipaddress.ip_network(address), ours):
            found.add(str(address))
    return frozenset(found)


def _exports(
    exports: Sequence[SeenExport], seen: Sequence[Network], limits: RecordLimits
) -> tuple[ExportedAddress, ...]:
    if len(exports) > MOST_EXPORTS:
        raise Refusal("TooMany", f"more than {MOST_EXPORTS} exported addresses")
    found: dict[str, ExportedAddress] = {}
    for one in exports:
        address, real = _address(one.address), _address(one.target)
        if address is None or real is None or address.version != real.version:
            raise Refusal("BadExport", f"{one.address[:50]!r} for {one.target[:50]!r} is no pair of addresses")
        if not overlaps(ipaddress.ip_network(address), seen):
            raise Refusal("BadExport", f"the address {address} is not of the external network that the peer sees")
        if special(real):
            raise Refusal("BadExport", f"the address {real} must not be exported")
        if len(one.ports) > MOST_PORTS:
            raise Refusal("TooMany", f"more than {MOST_PORTS} ports of {address}")
        ports = frozenset(_port(text) for text in one.ports)
        if limits.closed and not ports and not any(real in wide for wide in limits.given):
            raise Refusal("BadExport", f"all of {real} would be open: under the closed policy ports are named")
        found[str(address)] = ExportedAddress(str(address), str(real), ports)
    return tuple(found[address] for address in sorted(found))


def _port(text: str) -> tuple[str, int]:
    protocol, _, number = text.partition("/")
    port = parse_port(number)
    if protocol.lower() not in PROTOCOLS or not port:
        raise Refusal("BadExport", f"{text[:20]!r} is no port from 1 to 65535, such as TCP/80")
    return protocol.lower(), port


def _own_addresses(gateway: NetworkGatewaySpec, limits: RecordLimits) -> tuple[Network, ...]:
    found: dict[int, Network] = {}
    for one in parse_networks(gateway.addresses[:2]):
        if one.num_addresses == 1 and overlaps(one, limits.externals):
            found.setdefault(one.version, one)
    return tuple(found[version] for version in sorted(found))


def _vteps(gateway: NetworkGatewaySpec, limits: RecordLimits) -> tuple[Vtep, ...]:
    """Return the hosts on the overlay; a network that this host needs itself is never routed to one of them."""
    found: dict[str, Vtep] = {}
    for host in gateway.hosts[:MAX_HOSTS]:
        address = _address(host.address)
        if address is None or overlaps(ipaddress.ip_network(address), (*limits.needed, *UNUSABLE[address.version])):
            continue
        networks = [one for one in parse_networks(host.networks[:MAX_NETWORKS]) if not overlaps(one, limits.needed)]
        sound = [one for one in networks if not overlaps(one, UNUSABLE[one.version])]
        found[str(address)] = Vtep(str(address), tuple(sound))
    return tuple(found[text] for text in sorted(found))


def _address(text: str) -> Address | None:
    address = parse_ip(text)
    return None if isinstance(address, ipaddress.IPv6Address) and address.scope_id else address
