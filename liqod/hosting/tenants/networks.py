"""Which addresses a tenant's endpoints may have: those of its own networks, never those of this cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from liqod.config import schema
from liqod.hosting.tenants.bounds import Surroundings
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, NotFound
from liqod.kube.resources import NETWORKCONFIGS, NODES, SERVICES, TUNNELENDPOINTS, Resource
from liqod.model.ids import Key
from liqod.model.objects.node import Node
from liqod.model.records.network import NO_TUNNEL, Network, NetworkConfig, TunnelEndpoint

SERVICE_CIDRS: Final = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False)
_API_SERVICE: Final = "kubernetes"


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Return the networks of CIDRs and single addresses; what is neither is left out."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return found


def objection(address: str, own: Sequence[Network], peer: Sequence[Network] | None) -> str:
    """Return why an endpoint of a tenant may not have an address; empty if it may.

    ``own``: this cluster's networks. ``peer``: the tenant's networks as they are seen here; None where liqod does not
    connect the clusters, so that they are not known.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "is no IP address"
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    parsed = mapped or parsed
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return "is of no other cluster: it is loopback, link-local or multicast"
    if peer is not None:
        return "" if any(parsed in one for one in peer) else "is not of the networks that were agreed on with the peer"
    return "is of this cluster's own networks" if any(parsed in one for one in own) else ""


def peer_networks(tunnel: TunnelEndpoint) -> list[Network]:
    """Return the networks of a peer as they are seen here."""
    seen = tunnel.spec.remote_seen
    return parse_networks(
        text for text in (*seen.pod_cidrs, seen.external_cidr, seen.external_six, *seen.service_cidrs) if text
    )


def _of_node(node: Node | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if node is None or node.virtual:
        return (), ()
    return tuple(node.spec.pod_cidrs), tuple(one.address for one in node.status.addresses)


def _is_without(config: NetworkConfig | None) -> bool:
    return config is not None and config.spec.decision.mode == NO_TUNNEL


class Networks:
    """This cluster's networks and those of its tenants, from nodes, settings and tunnels.

    Where there is no tunnel to a tenant others connect the clusters, and its networks are not known.
    """

    def __init__(self, client: Client, informers: Informers, settings: schema.Network) -> None:
        self._client = client
        server = urlsplit(client.config.server).hostname or ""
        self._configured = parse_networks([*settings.pod_cidrs, *settings.service_cidrs, server])
        self._services: list[Network] | None = None
        self.nodes: Informer[Node] = informers.of(NODES, Node)
        self.tunnels: Informer[TunnelEndpoint] | None = None
        self.decisions: Informer[NetworkConfig] | None = None
        if settings.mode != "none":
            self.tunnels = informers.of(TUNNELENDPOINTS, TunnelEndpoint)
        if settings.mode == "auto":
            self.decisions = informers.of(NETWORKCONFIGS, NetworkConfig)
        self._own: list[Network] | None = None
        self._unsubscribe = self.nodes.subscribe(self._node_changed)

    def close(self) -> None:
        """Unsubscribe from the nodes."""
        self._unsubscribe()

    async def prepare(self) -> None:
        """Wait until nodes and tunnels are known, and find out the networks of services. Raises KubeError."""
        await self.nodes.when_synced()
        for records in (self.tunnels, self.decisions):
            if records is not None:
                await records.when_synced()
        if self._services is None:
            self._services = parse_networks(await self._service_networks())
            self._own = None

    def around(self, tenant: str) -> Surroundings:
        """Return this cluster's networks, and those of a tenant."""
        return Surroundings(self._networks(), self._of(tenant))

    @staticmethod
    def is_same(old: Node | None, new: Node | None) -> bool:
        """Return whether a change of a node leaves the networks as they are."""
        return _of_node(old) == _of_node(new)

    @staticmethod
    def is_same_decision(old: NetworkConfig | None, new: NetworkConfig | None) -> bool:
        """Return whether a change of a record leaves it as it is whether there is a tunnel to the tenant."""
        return _is_without(old) == _is_without(new)

    def objection(self, tenant: str, address: str) -> str:
        """Return why an endpoint of a tenant may not have an address; empty if it may."""
        return objection(address, self._networks(), self._of(tenant))

    def _of(self, tenant: str) -> list[Network] | None:
        if self.tunnels is None:
            return None
        config = self.decisions.get(Key("", tenant)) if self.decisions is not None else None
        if _is_without(config):
            return None
        tunnel = self.tunnels.get(Key("", tenant))
        return [] if tunnel is None else peer_networks(tunnel)

    def _networks(self) -> list[Network]:
        if self._own is None:
            parts = [_of_node(node) for node in self.nodes.items()]
            nodes = parse_networks(text for pods, addresses in parts for text in (*pods, *addresses))
            self._own = [*self._configured, *(self._services or ()), *nodes]
        return self._own

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if not self.is_same(old, new):
            self._own = None

    async def _service_networks(self) -> list[str]:
        try:
            listed = await self._client.list(SERVICE_CIDRS)
            return [text for one in listed.items for text in one.get("spec", {}).get("cidrs") or ()]
        except ApiError:
            # Served from Kubernetes 1.33 on. Before, the network around the address of this service, which is the first
            # one of every service network, is taken in its usual size.
            try:
                service: dict[str, Any] = await self._client.get(SERVICES, _API_SERVICE, "default")
            except NotFound:
                return []
            addresses = service.get("spec", {}).get("clusterIPs") or []
            return [f"{one}/{112 if ':' in one else 16}" for one in addresses]
