"""Reads what a borrower sends of home's policies: specs and facts for the compiler. Pure.

It comes from a peer: an address that is none is left out, which closes, and a record that cannot be read isolates
every pod.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from liqod.hosting.networkpolicies.facts import HomeFacts, KnownNamespace, PodElsewhere, StandIn
from liqod.hosting.tenants.bounds import DNS_PORTS, KnownNetworks, dns_peers
from liqod.model.addresses import parse_ips
from liqod.model.records.home_policies import (
    MAX_ADDRESSES,
    MAX_BYTES,
    MAX_KINDS,
    MAX_MAPPED,
    MAX_NAMESPACES,
    MAX_SERVERS,
    MAX_WITHHELD,
    HomePoliciesSpec,
    PodKind,
)
from liqod.model.records.network import AddressMap, Network, Subnets, TunnelEndpointSpec, paired

UNREADABLE: Final = ""
"""The name, which is none, of the policy that stands for a record that cannot be read: the compiler isolates all."""
_DNS_NUMBERS: Final = (53, 5353)


@attrs.frozen(kw_only=True)
class TenantContext:
    """What this cluster itself knows of a tenant.

    ``home`` is the namespace there, ``here`` the tenant's namespaces by their names there, ``tunnel`` what was agreed
    with it (None: no tunnel). ``direct`` has, by lender, how its pods there read here that are reached without home.
    """

    home: str
    here: Mapping[str, str] = {}
    tunnel: TunnelEndpointSpec | None = None
    around: KnownNetworks = attrs.field(factory=KnownNetworks)
    direct: Mapping[str, AddressMap] = {}


@attrs.frozen
class Sent:
    """What the compiler takes of a record; ``withheld`` are the labels that pods here do not have as at home."""

    specs: Mapping[str, Any]
    facts: HomeFacts
    withheld: frozenset[str] = frozenset()


def read(text: bytes, seen: TenantContext) -> Sent:
    """Return what a record says, its ``spec`` as JSON. Never raises."""
    try:
        if len(text) > MAX_BYTES:
            raise ValueError("too large")
        spec = msgspec.json.decode(text, type=HomePoliciesSpec)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Sent({UNREADABLE: None}, HomeFacts(namespace=seen.home))
    tunnel = seen.tunnel
    return Sent(
        {one.name: one.spec for one in spec.policies},
        HomeFacts(
            namespace=seen.home,
            namespaces=_namespaces(spec, seen),
            pods=tuple(_pods(spec.pods, seen.direct)),
            addresses=_addresses(spec, seen),
            here=() if tunnel is None else tuple(after for _, after in _paired(tunnel.local, tunnel.local_seen)),
            stand_ins=tuple(_stand_ins(spec, seen)),
        ),
        frozenset(spec.withheld[:MAX_WITHHELD]),
    )


def _namespaces(spec: HomePoliciesSpec, seen: TenantContext) -> tuple[KnownNamespace, ...]:
    labels = {one.name: one.labels for one in spec.namespaces[:MAX_NAMESPACES]}
    return tuple(KnownNamespace(name, found, seen.here.get(name, "")) for name, found in labels.items())


def _pods(kinds: Sequence[PodKind], direct: Mapping[str, AddressMap]) -> Iterator[PodElsewhere]:
    left = MAX_ADDRESSES
    for one in kinds[:MAX_KINDS]:
        ports = tuple((port.name, port.protocol, port.port) for port in one.ports)
        # A pod at another lender is seen by both addresses: directly, and as home shows it.
        shown = one.addresses[:left]
        ways = one.direct[: left - len(shown)]
        left -= len(shown) + len(ways)
        straight = [direct[by.lender].seen(by.address) for by in ways if by.lender in direct]
        for address in parse_ips([*shown, *straight]):
            yield PodElsewhere(namespace=one.namespace, labels=one.labels, addresses=(address,), ports=ports)


def _addresses(spec: HomePoliciesSpec, seen: TenantContext) -> AddressMap:
    pairs: list[tuple[Network, Network]] = []
    for one in spec.addresses[:MAX_MAPPED]:
        found = list(parse_ips((one.home, one.here)))
        if len(found) == 2 and found[0].version == found[1].version:
            pairs.append((ipaddress.ip_network(found[0]), ipaddress.ip_network(found[1])))
    # As the first pair that has an address translates it, single ones come before the networks that they may be in.
    tunnel = seen.tunnel
    return AddressMap((*pairs, *(() if tunnel is None else _paired(tunnel.remote, tunnel.remote_seen))))


def _paired(before: Subnets, after: Subnets) -> tuple[tuple[Network, Network], ...]:
    return paired(before.pod_cidrs, after.pod_cidrs)


def _stand_ins(spec: HomePoliciesSpec, seen: TenantContext) -> Iterator[StandIn]:
    """Yield what stands here for home's name servers: those of this cluster, and the tenant's own port of names."""
    for one in spec.name_servers[:MAX_SERVERS]:
        ports = tuple((port.name, port.protocol, port.port) for port in one.ports)
        pod = PodElsewhere(
            namespace=one.namespace,
            labels=one.labels,
            addresses=tuple(parse_ips(one.addresses[:MAX_SERVERS])),
            ports=ports,
        )
        for number in _DNS_NUMBERS:
            yield StandIn(pod, number, dns_peers(), tuple(DNS_PORTS))
            for address, port in seen.around.name_servers:
                block = {"ipBlock": {"cidr": f"{address}/{128 if ':' in address else 32}"}}
                yield StandIn(pod, number, (block,), (port,))
