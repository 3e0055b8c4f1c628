"""Which addresses a tenant's endpoints may have: those of its own networks, never those of this cluster."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from liqod.config import schema
from liqod.flow.observe import Latest
from liqod.hosting.tenants.bounds import KnownNetworks
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import CLUSTERFACTS, NETWORKCONFIGS, NODES, TUNNELENDPOINTS
from liqod.model.foreign_address import NetworkLookup, objection
from liqod.model.ids import Key
from liqod.model.objects.node import Node
from liqod.model.records.facts import (
    API_SERVER_ADDRESSES,
    FACTS_NAME,
    ClusterFacts,
    OwnNetworks,
    own_networks,
    values_of,
)
from liqod.model.records.network import (
    NO_TUNNEL,
    AddressMap,
    DirectPods,
    Network,
    NetworkConfig,
    TunnelEndpoint,
    paired,
    parse_networks,
    shift,
)


def peer_networks(tunnel: TunnelEndpoint) -> list[Network]:
    """Return the networks of a peer as they are seen here."""
    seen = tunnel.spec.remote_seen
    return parse_networks(
        text for text in (*seen.pod_cidrs, seen.external_cidr, seen.external_six, *seen.service_cidrs) if text
    )


def direct_map(tunnel: TunnelEndpoint, tenant: str) -> AddressMap:
    """Return how addresses of a tenant's pods at a peer read here, where its pods here reach them without their home.

    That is so while packets cross the tunnel and the gateway lets these pods through; else nothing is translated.
    """
    status, spec = tunnel.status, tunnel.spec
    if status.phase != "Connected" or tenant not in status.direct:
        return AddressMap()
    known = paired(spec.remote.pod_cidrs, spec.remote_seen.pod_cidrs)
    found: list[tuple[Network, Network]] = []
    for one in _direct_networks(tunnel, tenant):
        for before, after in known:
            if one.version == after.version and one.network_address in after and one.prefixlen >= after.prefixlen:
                first = shift(one.network_address, after, before)
                found += [(original, one) for original in parse_networks([f"{first}/{one.prefixlen}"])]
    return AddressMap(tuple(found))


def direct_changes(old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> list[str]:
    """Return the tenants whose pods reach others of theirs at a peer otherwise after a change of its tunnel."""
    tenants = {home.home for tunnel in (old, new) if tunnel is not None for home in tunnel.spec.direct}
    return [one for one in sorted(tenants) if _direct_state(old, one) != _direct_state(new, one)]


def _direct_state(tunnel: TunnelEndpoint | None, tenant: str) -> object:
    return None if tunnel is None else (direct_map(tunnel, tenant), _direct_networks(tunnel, tenant))


def _direct_networks(tunnel: TunnelEndpoint, tenant: str) -> list[Network]:
    mine: list[DirectPods] = [one for one in tunnel.spec.direct if one.home == tenant]
    return parse_networks(text for one in mine for text in one.networks)


def _of_node(node: Node | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if node is None or node.virtual:
        return (), ()
    return tuple(node.spec.pod_cidrs), tuple(one.address for one in node.status.addresses)


def _api_servers(record: ClusterFacts | None) -> list[str]:
    return values_of(record, API_SERVER_ADDRESSES)


def _is_without(config: NetworkConfig | None) -> bool:
    return config is not None and config.spec.decision.mode == NO_TUNNEL


@frozen
class _Known:
    """Networks, parsed once: as a list, and for the addresses that are looked up in them."""

    networks: list[Network]
    lookup: NetworkLookup

    @classmethod
    def of(cls, networks: list[Network]) -> _Known:
        return cls(networks, NetworkLookup(networks))


_NONE: Final = _Known.of([])


class TenantNetworks:
    """This cluster's networks and those of its tenants, from the facts of this cluster, settings, nodes and tunnels.

    Where there is no tunnel to a tenant others connect the clusters, and its networks are not known.
    """

    def __init__(self, client: Client, informers: Informers, settings: schema.NetworkSettings) -> None:
        server = urlsplit(client.config.server).hostname or ""
        self._servers = parse_networks([server])
        self._settings = settings
        self.nodes: Informer[Node] = informers.of(NODES, Node)
        self.facts: Informer[ClusterFacts] = informers.of(CLUSTERFACTS, ClusterFacts)
        self.tunnels: Informer[TunnelEndpoint] | None = None
        self.decisions: Informer[NetworkConfig] | None = None
        if settings.mode != "none":
            self.tunnels = informers.of(TUNNELENDPOINTS, TunnelEndpoint)
        if settings.mode == "auto":
            self.decisions = informers.of(NETWORKCONFIGS, NetworkConfig)
        self._found: tuple[_Known, tuple[str, ...]] | None = None
        self._peers: dict[str, _Known] = {}
        self.revision: Latest[int] = Latest(0)
        """It changes with this cluster's own networks."""
        unsubscribe = [self.nodes.subscribe(self._node_changed), self.facts.subscribe(self._facts_changed)]
        if self.tunnels is not None:
            unsubscribe.append(self.tunnels.subscribe(self._tunnel_changed))
        self._unsubscribe = unsubscribe

    def close(self) -> None:
        """Unsubscribe from nodes, facts and tunnels."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    async def prepare(self) -> None:
        """Wait until nodes, facts and tunnels were listed once."""
        for records in (self.nodes, self.facts, self.tunnels, self.decisions):
            if records is not None:
                await records.when_synced()

    @property
    def is_awaited(self) -> bool:
        """Whether it is not known yet which of this cluster's networks are known: nothing is changed by that."""
        return self._stated(self.facts.get(Key("", FACTS_NAME))).is_awaited

    def has_tunnel(self, tenant: str) -> bool:
        """Return whether there is a tunnel to a tenant, or may be one: its endpoints are then where was agreed on."""
        return self._of(tenant) is not None

    def around(self, tenant: str) -> KnownNetworks:
        """Return this cluster's networks, and those of a tenant."""
        own, _ = self._own()
        peer = self._of(tenant)
        known = None if peer is None else [*peer.networks, *self._directly(tenant)]
        return KnownNetworks(own.networks, known)

    def direct(self, tenant: str) -> dict[str, AddressMap]:
        """Return how addresses of a tenant's pods at its other lenders read here, by lender, where they are reached
        without their home.
        """
        maps = {tunnel.metadata.name: direct_map(tunnel, tenant) for tunnel in self._tunnels_of(tenant)}
        return {lender: one for lender, one in maps.items() if one.pairs}

    def _directly(self, tenant: str) -> list[Network]:
        return [one for tunnel in self._tunnels_of(tenant) for one in _direct_networks(tunnel, tenant)]

    def _tunnels_of(self, tenant: str) -> list[TunnelEndpoint]:
        """Return the tunnels to other lenders that pods of a tenant use."""
        tunnels = self.tunnels.items() if self.tunnels is not None else []
        return [one for one in tunnels if any(home.home == tenant for home in one.spec.direct)]

    @staticmethod
    def is_same(old: Node | None, new: Node | None) -> bool:
        """Return whether a change of a node leaves the networks as they are."""
        return _of_node(old) == _of_node(new)

    def is_same_facts(self, old: ClusterFacts | None, new: ClusterFacts | None) -> bool:
        """Return whether a change of the facts leaves the networks as they are."""
        return self._stated(old) == self._stated(new) and _api_servers(old) == _api_servers(new)

    @staticmethod
    def is_same_decision(old: NetworkConfig | None, new: NetworkConfig | None) -> bool:
        """Return whether a change of a record leaves it as it is whether there is a tunnel to the tenant."""
        return _is_without(old) == _is_without(new)

    def objection(self, tenant: str, address: str) -> str:
        """Return why an endpoint of a tenant may not have an address; empty if it may."""
        return self._objection(address, self._of(tenant))

    def own_objection(self, address: str) -> str:
        """Return why an address may be of this cluster, and not of a peer without a tunnel; empty if it is not."""
        return self._objection(address, None)

    def _objection(self, address: str, peer: _Known | None) -> str:
        own, unknown = self._own()
        if said := objection(address, own.lookup, None if peer is None else peer.lookup):
            return said
        if peer is None and unknown:
            return (
                "may be of this cluster's own networks, which are not all known here: "
                f"its administrator sets {' and '.join(unknown)} under [network]"
            )
        return ""

    def _of(self, tenant: str) -> _Known | None:
        if self.tunnels is None:
            return None
        config = self.decisions.get(Key("", tenant)) if self.decisions is not None else None
        if _is_without(config):
            return None
        tunnel = self.tunnels.get(Key("", tenant))
        if tunnel is None:
            return _NONE
        if (known := self._peers.get(tenant)) is None:
            known = self._peers[tenant] = _Known.of(peer_networks(tunnel))
        return known

    def _own(self) -> tuple[_Known, tuple[str, ...]]:
        """Return this cluster's networks, and the settings that would say what is not known of them."""
        if self._found is None:
            stated = self._stated(self.facts.get(Key("", FACTS_NAME)))
            # A plugin may use what the cluster assigned to its nodes beside networks of its own.
            parts = [_of_node(node) for node in self.nodes.items()]
            nodes = parse_networks(text for pods, addresses in parts for text in (*pods, *addresses))
            # The URL may have a name; those of managed API servers are no nodes either.
            servers = [*self._servers, *parse_networks(_api_servers(self.facts.get(Key("", FACTS_NAME))))]
            self._found = _Known.of([*servers, *stated.pods, *stated.services, *nodes]), stated.unknown
        return self._found

    def _stated(self, record: ClusterFacts | None) -> OwnNetworks:
        return own_networks(record, self._settings.pod_cidrs, self._settings.service_cidrs)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if not self.is_same(old, new):
            self._own_changed()

    def _facts_changed(self, key: Key, old: ClusterFacts | None, new: ClusterFacts | None) -> None:
        if not self.is_same_facts(old, new):
            self._own_changed()

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> None:
        self._peers.pop(key.name, None)

    def _own_changed(self) -> None:
        self._found = None
        self.revision.set(self.revision.value + 1)
