"""What is announced to a peer, which networks it is assigned, and when both clusters agree. Pure.

Each side announces its networks and how it sees the other's. Nothing is installed before both are known and valid; what
was assigned is in the record before anything relies on it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

import attrs

from liqod.fabric.control.agreement.exports import exports_as_seen
from liqod.fabric.control.agreement.ipam import allocate
from liqod.fabric.state.network import Link, Netmap, contains, first_of, overlaps
from liqod.fabric.state.services import service_maps
from liqod.fabric.state.validation import (
    RemoteNetwork,
    check_ack,
    check_side,
    external_network,
    external_six,
    network,
    usable_services,
)
from liqod.model.host_port import join_address, split_address
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    MAX_SERVICE_NETWORKS,
    NO_TUNNEL_HERE,
    Network,
    NetworkConfig,
    Subnets,
    TunnelSide,
)
from liqod.model.records.offer import Refusal


@attrs.frozen
class LocalNetwork:
    """This cluster's side. ``reserved`` are its ``services``, its nodes and what the settings keep free.

    ``six`` is the external network of IPv6, where ``external`` is of IPv4 and pods have both. What is inside
    ``accepted`` is taken from peers as they name it. Ranges for peers' Services come out of ``service_pools``.
    ``leads_services``: this cluster's packets to Services can be translated before and after its kube-proxy.
    """

    pods: tuple[Network, ...]
    external: Network
    reserved: tuple[Network, ...]
    pools: tuple[Network, ...]
    endpoints: tuple[str, ...]
    public_key: str
    mtu: int
    next_key: str = ""
    services: tuple[Network, ...] = ()
    six: Network | None = None
    accepted: tuple[Network, ...] = ()
    service_pools: tuple[Network, ...] = ()
    leads_services: bool = True

    @property
    def side(self) -> TunnelSide:
        """The parameters that are sent to peers (the message ``Network``)."""
        return TunnelSide(
            pod_cidrs=[str(one) for one in self.pods],
            external_cidr=str(self.external),
            endpoints=list(self.endpoints),
            public_key=self.public_key,
            mtu=self.mtu,
            next_key=self.next_key,
            external_six=str(self.six) if self.six is not None else "",
            service_cidrs=[str(one) for one in self.announced_services],
        )

    @property
    def announced_services(self) -> tuple[Network, ...]:
        """The networks of Services that are sent to peers, for our pods there."""
        return self.services[:MAX_SERVICE_NETWORKS] if self.leads_services else ()

    def besides_services(self, networks: Iterable[Network]) -> list[Network]:
        """Return all that is used here, and other ``networks`` of the host, but for Services."""
        used = (*self.pods, *self.externals, *self.reserved, *networks)
        return [one for one in used if not any(contains(services, one) for services in self.services)]

    @property
    def externals(self) -> tuple[Network, ...]:
        """The networks of single addresses, by IP version one at most."""
        return (self.external,) if self.six is None else (self.external, self.six)

    @property
    def gateway(self) -> Network:
        """The first address of the external network: it stands for this host, and for all that is no pod."""
        return first_of(self.external)


def assigned(subnets: Subnets) -> list[Network]:
    """Return the networks that a peer was assigned, pods first, Services last; nothing where one cannot be parsed."""
    texts = (*subnets.pod_cidrs, subnets.external_cidr, subnets.external_six, *subnets.service_cidrs)
    try:
        return [ipaddress.ip_network(text) for text in texts if text]
    except ValueError:
        return []


def allocation(
    own: LocalNetwork, config: NetworkConfig, others: Iterable[Subnets], avoided: Sequence[Network]
) -> Subnets:
    """Return how we see the peer: the networks it has as long as they fit, else new ones, or the reason why not.

    ``others`` is what the other peers have, ``avoided`` the networks of the host's routes and the endpoints of all
    tunnels.
    """
    side = config.status.remote
    if side == TunnelSide():
        return config.spec.remap
    try:
        # Keys are checked by `agree`; an invalid one is no reason against addresses.
        wanted = [network(text, "a pod network of the peer") for text in side.pod_cidrs]
        if side.external_cidr:
            wanted.append(external_network(side.external_cidr, "the external network of the peer"))
        if side.external_six:
            wanted.append(external_six(side.external_six, None))
        taken = [*own.pods, *own.externals, *own.reserved, *(one for other in others for one in assigned(other))]
        held = _held(side, config.spec.remap)
        services = usable_services(side) if own.leads_services else ()
        found = allocate(
            wanted,
            held,
            taken,
            # An address of a Service at home must not be one by which a pod of home is known here.
            [*avoided, *endpoint_networks(side.endpoints), *services],
            own.pools,
            accepted=own.accepted,
            # Both sides choose at the same time, mostly from the same pools. An address by which the peer knows one of
            # its pods here must not be one by which we know a pod of the peer: so one side begins at the end.
            from_end=own.public_key > side.public_key,
        )
    except Refusal as refusal:
        return Subnets(reason=refusal.reason, message=refusal.message)
    texts = [str(one) for one in found]
    pods, more = texts[: len(side.pod_cidrs)], texts[len(side.pod_cidrs) :]
    return Subnets(
        pod_cidrs=pods,
        external_cidr=more.pop(0) if side.external_cidr else "",
        external_six=more.pop(0) if side.external_six else "",
        service_cidrs=_service_ranges(own, services, config.spec.remap, [*taken, *found], avoided),
    )


def _service_ranges(
    own: LocalNetwork, services: Sequence[Network], remap: Subnets, taken: Sequence[Network], avoided: Sequence[Network]
) -> list[str]:
    """Return a range for each network of a peer's Services; none at all where one is used here, or there is no room."""
    used = own.besides_services(avoided)
    if any(overlaps(one, used) for one in services):
        return []
    try:
        held: list[Network | None] = [ipaddress.ip_network(text) for text in remap.service_cidrs]
        found = allocate(services, held, taken, avoided, own.service_pools)
    except (ValueError, Refusal):
        return []
    return [str(one) for one in found]


def _held(side: TunnelSide, remap: Subnets) -> list[Network | None]:
    """Return what a peer was assigned for each of its networks; it keeps that when it announces one more."""
    try:
        pods: list[Network | None] = [ipaddress.ip_network(text) for text in remap.pod_cidrs]
        both = ((side.external_cidr, remap.external_cidr), (side.external_six, remap.external_six))
        more = [ipaddress.ip_network(held) if held else None for named, held in both if named]
    except ValueError:
        return []
    return [*(pods if len(pods) == len(side.pod_cidrs) else [None] * len(side.pod_cidrs)), *more]


def agree(
    own: LocalNetwork,
    config: NetworkConfig,
    remap: Subnets,
    other_keys: Collection[str],
    others: Iterable[Subnets] = (),
) -> tuple[RemoteNetwork, Link] | None:
    """Return the peer's side and the link to it; None while the peer has not announced enough. Raises Refusal.

    ``other_keys`` are those of the other peers, ``others`` what those have.
    """
    status = config.status
    if status.ack.reason == NO_TUNNEL_HERE:
        raise Refusal("PeerHasNone", f"the peer has no tunnel: {status.ack.message or 'it did not say why'}")
    if status.remote == TunnelSide():
        return None
    remote = check_side(status.remote, own.public_key, other_keys)
    if own.next_key and own.next_key in (remote.public_key, remote.next_key):
        raise Refusal("KeyInUse", "the peer's tunnel key is the one that ours will be")
    if remap.reason:
        raise Refusal(remap.reason, remap.message)
    if status.ack == Subnets():
        return None
    view = check_ack(status.ack, own.pods, (own.external, own.six), own.announced_services)
    seen = tuple(assigned(remap))
    services = usable_services(status.remote)
    for address, _ in remote.endpoints:
        if inside := overlaps(ipaddress.ip_network(address), seen):
            raise Refusal("BadEndpoint", f"the peer's tunnel endpoint {address} lies inside its own network {inside}")
    remote = attrs.evolve(
        remote, endpoints=_dialable(own, remote, [one for other in others for one in assigned(other)])
    )
    link = Link(
        peer=ClusterID(config.metadata.name),
        public_key=remote.public_key,
        endpoint=join_address(*remote.endpoints[0]) if remote.endpoints else "",
        remote=seen,
        local=tuple(Netmap(ours, theirs) for ours, theirs in zip(own.pods, view.pods, strict=True)),
        gateway=Netmap(own.gateway, first_of(view.external)) if view.external is not None else None,
        mtu=min(own.mtu, remote.mtu),
        next_key=remote.next_key if remote.next_key != remote.public_key else "",
        external=Netmap(own.external, view.external) if view.external is not None else None,
        exports=(
            *exports_as_seen(config.spec.exports, own.external, view.external),
            *(exports_as_seen(config.spec.exports, own.six, view.six) if own.six is not None else ()),
        ),
        six=Netmap(own.six, view.six) if own.six is not None and view.six is not None else None,
        services=view.services,
        peer_services=service_maps([str(one) for one in services], remap.service_cidrs),
    )
    return remote, link


def _dialable(own: LocalNetwork, remote: RemoteNetwork, others: Sequence[Network]) -> tuple[tuple[str, int], ...]:
    """Return the endpoints of a peer that can be called from here.

    An endpoint that is our own address, or inside a network assigned to another peer, would route a tunnel into itself
    or into another one. It may be valid on the peer's side of a NAT: then the peer must initiate the handshake.
    """
    return tuple(
        (address, port)
        for address, port in remote.endpoints
        if join_address(address, port) not in own.endpoints and overlaps(ipaddress.ip_network(address), others) is None
    )


def endpoint_networks(endpoints: Iterable[str]) -> list[Network]:
    """Return the addresses of those endpoints that can be parsed, as networks of one address."""
    found = []
    for text in endpoints:
        try:
            found.append(ipaddress.ip_network(split_address(text)[0]))
        except ValueError:
            continue
    return found
