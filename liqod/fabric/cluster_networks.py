"""This cluster as the network sees it, read from its API: pods, services, nodes, and which pods may talk to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from liqod.config import schema
from liqod.fabric.agreement.agreement import Own
from liqod.fabric.agreement.validation import external_network, external_six
from liqod.fabric.kernel.host_facts import (
    Node,
    Pod,
    ServiceCIDR,
    node_addresses,
    overlay_ends,
    parse_all,
    pod_addresses,
    pod_networks,
)
from liqod.fabric.kernel.model import End
from liqod.fabric.kernel.wireguard import host_port
from liqod.fabric.probing.pod_reachability import targets
from liqod.flow.errors import Foreseen
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import ApiError
from liqod.kube.resources import NAMESPACES, NATTINGTABLES, NODES, PODS, SERVICES, Resource
from liqod.model.ids import ClusterID, Key
from liqod.model.names import OVERLAY_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.network import Network
from liqod.model.records.views import NamespaceNattingTable

SERVICE_CIDRS: Final = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False)
_API_SERVICE: Final = "kubernetes"


class Place:
    """What is found out about this cluster; ``changed`` is called when something of it changed."""

    def __init__(
        self, client: Client, informers: Informers, settings: schema.Network, changed: Callable[[], None]
    ) -> None:
        self._client = client
        self._settings = settings
        self._services: list[Network] | None = None
        self._nodes: Informer[Node] = informers.of(NODES, Node)
        self._pods: Informer[Pod] = informers.of(PODS, Pod)
        self._hosted: Informer[Object] | None = None
        self._tables: Informer[NamespaceNattingTable] | None = None
        self._ends: list[Callable[[], None]] = []
        watched: list[Informer[Any]] = [self._nodes, self._pods]
        if settings.policy == "closed":
            self._hosted = informers.of(NAMESPACES, Object, labels=REMOTE_CLUSTER_LABEL)
            self._tables = informers.of(NATTINGTABLES, NamespaceNattingTable)
            watched += [self._hosted, self._tables]
            self._ends.append(self._hosted.subscribe(lambda key, old, new: changed()))
            self._ends.append(self._tables.subscribe(lambda key, old, new: changed()))
        self._watched = watched
        self._ends.append(self._pods.subscribe(lambda key, old, new: self._pod_changed(old, new, changed)))
        self._ends.append(self._nodes.subscribe(lambda key, old, new: self._node_changed(old, new, changed)))

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when all that is watched was listed once."""
        return gatherResults([informer.when_synced() for informer in self._watched], consumeErrors=True)

    def end(self) -> None:
        """Tell of no more changes."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    async def own(self, public_key: str, next_key: str, address: str, mtu: int) -> Own:
        """Return this cluster's side; raises Foreseen where something cannot be found out."""
        settings = self._settings
        nodes = self._nodes.items()
        pods = parse_all(settings.pod_cidrs) or pod_networks(nodes)
        if not pods:
            raise Foreseen(
                "the network of this cluster's pods is not known: no node has a podCIDR; set network.pod-cidrs"
            )
        services = parse_all(settings.service_cidrs) or await self._found_services()
        reserved = [*services, *node_addresses(nodes), *parse_all(settings.reserved)]
        external, six = external_network(settings.external_cidr, "network.external-cidr"), None
        if settings.external_cidr_6 and external.version == 4 and any(one.version == 6 for one in pods):
            six = external_six(settings.external_cidr_6, external)
        return Own(
            pods=tuple(pods),
            external=external,
            reserved=tuple(reserved),
            pools=tuple(parse_all(settings.pools)),
            endpoints=tuple(settings.endpoints) or (host_port(address, settings.listen_port),),
            public_key=public_key,
            mtu=mtu,
            next_key=next_key,
            services=tuple(services),
            six=six,
        )

    def ends(self, own: str) -> tuple[End, ...]:
        """Return the other hosts of this cluster that take part in the overlay."""
        return overlay_ends(self._nodes.items(), own)

    def pods_for(self, peer: ClusterID) -> frozenset[str] | None:
        """Return the addresses of our pods that may talk to a peer, None for all.

        They are those of the namespaces that we offload to it, and of those that it was granted here.
        """
        if self._hosted is None or self._tables is None:
            return None
        granted = [
            space.metadata.name
            for space in self._hosted.items()
            if space.metadata.labels.get(REMOTE_CLUSTER_LABEL) == peer
        ]
        table = self._tables.get(Key("", peer))
        offloaded = list(table.spec.natting_table) if table is not None else []
        return pod_addresses(self._pods.items(), [*granted, *offloaded])

    def pods_of(self, networks: Sequence[Network], present: Mapping[int, str]) -> dict[int, str]:
        """Return the addresses here of pods of a peer to probe, by IP version; the present ones if they still run."""
        return targets(self._pods.items(), networks, present)

    async def _found_services(self) -> list[Network]:
        if self._services is None:
            try:
                listed = await self._client.list(SERVICE_CIDRS, view=ServiceCIDR)
                self._services = parse_all(text for one in listed.items for text in one.spec.cidrs)
            except ApiError:
                # Before Kubernetes 1.33 nobody tells: around the first address that every service network has.
                service: dict[str, Any] = await self._client.get(SERVICES, _API_SERVICE, "default")
                addresses = service.get("spec", {}).get("clusterIPs") or []
                texts = (f"{one}/{112 if ':' in one else 16}" for one in addresses)
                self._services = parse_all(texts)
        return self._services

    def _node_changed(self, old: Node | None, new: Node | None, changed: Callable[[], None]) -> None:
        if _network_of(old) != _network_of(new):
            changed()

    def _pod_changed(self, old: Pod | None, new: Pod | None, changed: Callable[[], None]) -> None:
        if _addresses_of(old) != _addresses_of(new):
            changed()


def _network_of(node: Node | None) -> tuple[object, ...]:
    if node is None:
        return ()
    return node.spec.pod_cidrs, node.status.addresses, node.metadata.annotations.get(OVERLAY_ANNOTATION)


def _addresses_of(pod: Pod | None) -> tuple[object, ...]:
    return (pod.status.pod_ips, pod.status.phase == "Running") if pod is not None and pod.status.pod_ips else ()
