"""Checks what a peer announces about its network. Pure; nothing that fails here ever reaches the kernel."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from liqod.fabric.state.network import ServiceMap, overlaps
from liqod.model.host_port import split_address
from liqod.model.records.network import (
    MAX_ENDPOINTS,
    MAX_NETWORKS,
    MAX_SERVICE_NETWORKS,
    Network,
    Subnets,
    TunnelSide,
)
from liqod.model.records.offer import Refusal
from liqod.model.special_networks import RESERVED, UNUSABLE

SMALLEST_MTU: Final = 1280
LARGEST_MTU: Final = 65535
WIDEST: Final = {4: 8, 6: 32}
"""The shortest prefix that a network may have, by IP version."""
NARROWEST: Final = {4: 30, 6: 126}
"""The longest one of an external network: its first address is the gateway's, and has to lie inside."""
MOST_EXPORTS: Final = 1024
"""Addresses that are exported to one peer at most; the schema of the record has the same bound."""
MOST_PORTS: Final = 128
"""Ports of one address; the schema of the record has the same bound."""


@attrs.frozen
class RemoteNetwork:
    """A peer's side after it was checked; ``endpoints`` are (address, port), best first."""

    pods: tuple[Network, ...]
    external: Network | None
    endpoints: tuple[tuple[str, int], ...]
    public_key: str
    mtu: int
    next_key: str = ""
    six: Network | None = None


@attrs.frozen
class PeerView:
    """How a peer sees our networks: ``pods`` aligned with ours, ``external`` and ``six`` where it sees them at all.

    ``services`` are those of our networks of Services that it knows, with the ranges that it has for them.
    """

    pods: tuple[Network, ...]
    external: Network | None
    six: Network | None = None
    services: tuple[ServiceMap, ...] = ()


def check_side(side: TunnelSide, own_key: str, other_keys: Collection[str]) -> RemoteNetwork:
    """Return what a peer announced, parsed; raises Refusal. ``other_keys`` are those of the other peers."""
    if not side.pod_cidrs:
        raise Refusal("NoPodNetwork", "the peer named no pod network")
    if len(side.pod_cidrs) > MAX_NETWORKS or len(side.endpoints) > MAX_ENDPOINTS:
        raise Refusal("TooMany", f"more than {MAX_NETWORKS} networks or {MAX_ENDPOINTS} endpoints")
    pods = tuple(network(text, "a pod network of the peer") for text in side.pod_cidrs)
    external = external_network(side.external_cidr, "the external network of the peer") if side.external_cidr else None
    six = external_six(side.external_six, external) if side.external_six else None
    disjoint([*pods, *(one for one in (external, six) if one is not None)])
    _check_key(side.public_key, own_key, other_keys)
    if not SMALLEST_MTU <= side.mtu <= LARGEST_MTU:
        raise Refusal("BadMTU", f"the peer names an MTU of {side.mtu}; {SMALLEST_MTU} to {LARGEST_MTU} are possible")
    endpoints = tuple(endpoint_of(text) for text in side.endpoints)
    if side.next_key:
        _check_key(side.next_key, own_key, other_keys)
    return RemoteNetwork(pods, external, endpoints, side.public_key, side.mtu, side.next_key, six)


def check_ack(
    ack: Subnets, pods: Sequence[Network], externals: Sequence[Network | None], services: Sequence[Network] = ()
) -> PeerView:
    """Return how a peer sees our networks, parsed and aligned with them; raises Refusal.

    ``externals`` are our external network, and the one of IPv6 beside it. A peer need not know our ``services``.
    """
    if ack.reason:
        raise Refusal("RefusedByPeer", f"the peer cannot use our network: {ack.message or ack.reason}")
    if len(ack.pod_cidrs) != len(pods):
        raise Refusal(
            "BadAnswer", f"the peer answered with {len(ack.pod_cidrs)} networks for our {len(pods)} pod networks"
        )
    seen = [network(text, "the peer's view of our pods") for text in ack.pod_cidrs]
    what = "the peer's view of our external network"
    external, six = (network(text, what) if text else None for text in (ack.external_cidr, ack.external_six))
    both = [*zip(pods, seen, strict=True), *zip(externals, (external, six), strict=True)]
    for ours, theirs in both:
        if ours is None or theirs is None:
            continue
        if ours.version != theirs.version or ours.prefixlen != theirs.prefixlen:
            raise Refusal("BadAnswer", f"the peer sees our {ours} as {theirs}, which is not of the same size")
    disjoint([*seen, *(one for one in (external, six) if one is not None)])
    known = [*seen, *(one for one in (external, six) if one is not None)]
    return PeerView(tuple(seen), external, six, _services_as_seen(ack, services, known))


def _services_as_seen(ack: Subnets, services: Sequence[Network], others: Sequence[Network]) -> tuple[ServiceMap, ...]:
    """Return how a peer sees our networks of Services; none of them where one of its ranges is not sound."""
    if not ack.service_cidrs or len(ack.service_cidrs) != len(services):
        return ()
    try:
        ranges = [service_range(text, "the peer's range for our Services") for text in ack.service_cidrs]
        disjoint([*ranges, *others])
    except Refusal:
        return ()
    pairs = list(zip(services, ranges, strict=True))
    if any(one.version != two.version or one.prefixlen != two.prefixlen for one, two in pairs):
        return ()
    return tuple(ServiceMap(one, two) for one, two in pairs)


def usable_services(side: TunnelSide) -> tuple[Network, ...]:
    """Return a peer's networks of Services, parsed; none of them where one cannot be used.

    A tunnel does not depend on them: what is not sound is no reason to refuse it.
    """
    if len(side.service_cidrs) > MAX_SERVICE_NETWORKS:
        return ()
    try:
        found = [network(text, "a network of the peer's Services") for text in side.service_cidrs]
        texts = (*side.pod_cidrs, side.external_cidr, side.external_six)
        disjoint([*found, *(network(text, "a network of the peer") for text in texts if text)])
    except Refusal:
        return ()
    return tuple(found)


def service_range(text: str, what: str) -> Network:
    """Parse a range that stands for a network of Services; raises Refusal.

    No packet with such an address leaves the tunnel, so it may be one that no network has.
    """
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        return network(text, what)
    if isinstance(found, ipaddress.IPv4Network) and found.subnet_of(RESERVED) and found.prefixlen >= WIDEST[4]:
        return found
    return network(text, what)


def network(text: str, what: str) -> Network:
    """Parse a network that pods may have; raises Refusal. ``what`` is its role, for the message."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        raise Refusal("BadCIDR", f"{what}, {text[:50]!r}, is not a network such as 10.1.0.0/16") from None
    if "%" in text:
        raise Refusal("BadCIDR", f"{what}, {text[:50]!r}, names a link of the peer's host")
    if found.prefixlen < WIDEST[found.version]:
        raise Refusal("CIDRTooWide", f"{what}, {found}, is wider than /{WIDEST[found.version]}")
    if inside := overlaps(found, UNUSABLE[found.version]):
        raise Refusal("CIDRForbidden", f"{what}, {found}, holds addresses that no pod may have, those of {inside}")
    return found


def external_network(text: str, what: str) -> Network:
    """Parse an external network, which has room for the gateway's address; raises Refusal."""
    found = network(text, what)
    if found.prefixlen > NARROWEST[found.version]:
        raise Refusal("CIDRTooNarrow", f"{what}, {found}, is narrower than /{NARROWEST[found.version]}")
    return found


def external_six(text: str, external: Network | None) -> Network:
    """Parse the external network of IPv6 beside one of IPv4; raises Refusal."""
    found = external_network(text, "the external network of IPv6")
    if found.version != 6 or (external is not None and external.version == 6):
        raise Refusal("BadCIDR", f"the external network {found} is not of IPv6, or not the only one of that")
    return found


def disjoint(networks: Sequence[Network]) -> None:
    """Raise Refusal when networks overlap each other."""
    for index, one in enumerate(networks):
        if two := overlaps(one, networks[index + 1 :]):
            raise Refusal("CIDROverlap", f"the peer's networks {one} and {two} overlap")


def is_key(text: str) -> bool:
    """Return whether a text is a WireGuard public key: 32 bytes, not all zero, in canonical base64."""
    if len(text) != 44:
        return False
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(raw) == 32 and any(raw) and base64.b64encode(raw).decode() == text


def _check_key(key: str, own: str, others: Collection[str]) -> None:
    if not is_key(key):
        raise Refusal("BadKey", "the peer's tunnel key is not a WireGuard public key")
    if key == own:
        raise Refusal("KeyInUse", "the peer's tunnel key is our own")
    if key in others:
        raise Refusal("KeyInUse", "the peer's tunnel key is that of another peer")


def endpoint_of(text: str) -> tuple[str, int]:
    """Parse a tunnel endpoint, such as 192.0.2.7:5871 or [2001:db8::7]:5871; raises Refusal."""
    try:
        host, port = split_address(text)
        address = ipaddress.ip_address(host)
    except ValueError:
        raise Refusal("BadEndpoint", f"the tunnel endpoint {text[:60]!r} is not address:port") from None
    if "%" in host or overlaps(ipaddress.ip_network(address), UNUSABLE[address.version]):
        raise Refusal("BadEndpoint", f"the tunnel endpoint {address} cannot be reached from another host")
    return str(address), port
