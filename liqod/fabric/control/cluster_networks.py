"""This cluster's networks, from its API: those of pods, services and nodes, and which pods may talk to which peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from liqod.config import schema
from liqod.fabric.control.agreement.agreement import LocalNetwork
from liqod.fabric.control.cluster_facts import (
    addresses_inside,
    api_server_addresses,
    find_vteps,
    is_lost,
    node_addresses,
    pod_addresses,
)
from liqod.fabric.control.probe_targets import pod_targets
from liqod.fabric.state.network import ServiceMap, Vtep, parse_networks
from liqod.fabric.state.services import own_services
from liqod.fabric.state.validation import external_network, external_six
from liqod.flow.controller import Source, watch
from liqod.flow.errors import ExpectedError
from liqod.flow.tasks import together
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import CLUSTERFACTS, NAMESPACES, NATTINGTABLES, NODES, PODS, SERVICES
from liqod.model.host_port import join_address
from liqod.model.ids import ClusterID, Key
from liqod.model.names import (
    DNS_LABEL,
    DNS_NAMESPACE,
    DNS_SERVICE,
    ORIGIN_LABEL,
    OVERLAY_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    tenant_namespace,
)
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.objects.pod import OCCUPYING_PODS, Pod
from liqod.model.records.facts import (
    FACTS_NAME,
    POD_NETWORKS,
    PROXY,
    SERVICE_NETWORKS,
    ClusterFacts,
    own_networks,
    values_of,
)
from liqod.model.records.name_service import LABEL as NAME_SERVICE
from liqod.model.records.name_service import NameService
from liqod.model.records.network import Network
from liqod.model.records.views import NamespaceNattingTable

UNTRACKED: Final = ("cilium",)
"""What carries out Services without connection tracking, so that packets to them are not seen by nftables."""


class NetworksUnknown(ExpectedError):
    """Not all of this cluster's own networks are known: none can be announced to a peer, or be given to one."""


class ClusterNetworks:
    """Finds out this cluster's networks, or takes them from the settings."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        settings: schema.NetworkSettings,
        advertised: str = "",
        *,
        names: bool = False,
    ) -> None:
        # A host name needs no place here: its addresses are behind name servers and routes, which are avoided.
        self._servers = api_server_addresses(client.config.server, advertised)
        self._settings = settings
        self._nodes: Informer[Node] = informers.of(NODES, Node)
        self._pods: Informer[Pod] = informers.of(PODS, Pod, fields=OCCUPYING_PODS)
        self._hosted: Informer[Object] = informers.of(NAMESPACES, Object, labels=REMOTE_CLUSTER_LABEL)
        self._reflected: Informer[NameService] = informers.of(SERVICES, NameService, labels=ORIGIN_LABEL)
        self._facts: Informer[ClusterFacts] = informers.of(CLUSTERFACTS, ClusterFacts)
        self._dns: Informer[NameService] = informers.of(
            SERVICES, NameService, namespace=DNS_NAMESPACE, labels=f"{DNS_LABEL}={DNS_SERVICE}"
        )
        self._name_services: Informer[NameService] | None = None
        self._tables: Informer[NamespaceNattingTable] | None = None
        self._watched: list[Informer[Any]] = [
            self._nodes,
            self._pods,
            self._hosted,
            self._reflected,
            self._dns,
            self._facts,
        ]
        if names:
            self._name_services = informers.of(SERVICES, NameService, labels=NAME_SERVICE)
            self._watched.append(self._name_services)
        if settings.policy == "closed":
            self._tables = informers.of(NATTINGTABLES, NamespaceNattingTable)
            self._watched.append(self._tables)

    def sources(self, key: str) -> Iterable[Source[str]]:
        """Yield what enqueues ``key`` when something of the networks changed."""
        yield watch(self._nodes, when_changed(key, _networks_of))
        yield watch(self._pods, when_changed(key, _addresses_of))
        yield watch(self._reflected, when_changed(key, _service_address))
        yield watch(self._dns, when_changed(key, _service_address))
        yield watch(self._facts, when_changed(key, _facts_of))
        for informer in (self._hosted, self._name_services, self._tables):
            if informer is not None:
                yield watch(informer, lambda *_: (key,))

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when all that is watched was listed once."""
        return Deferred.fromCoroutine(together(informer.when_synced() for informer in self._watched))

    def local(self, public_key: str, next_key: str, address: str, mtu: int) -> LocalNetwork:
        """Return this cluster's side; raises NetworksUnknown where it was not found out, ExpectedError before."""
        settings = self._settings
        nodes = self._nodes.items()
        facts = self._facts.get(Key("", FACTS_NAME))
        own = own_networks(facts, settings.pod_cidrs, settings.service_cidrs)
        if own.is_awaited:
            raise ExpectedError("the networks of this cluster are not known yet: its ClusterFacts is not written")
        if own.unknown:
            raise NetworksUnknown(
                f"not all networks of this cluster are known: set {' and '.join(own.unknown)} under [network]; "
                "`liqodctl facts` shows what was found"
            )
        reserved = [*own.services, *node_addresses(nodes), *parse_networks(settings.reserved), *self._servers]
        external, six = external_network(settings.external_cidr, "network.external-cidr"), None
        if settings.external_cidr_6 and external.version == 4 and any(one.version == 6 for one in own.pods):
            six = external_six(settings.external_cidr_6, external)
        return LocalNetwork(
            pods=own.pods,
            external=external,
            reserved=tuple(reserved),
            pools=tuple(parse_networks(settings.pools)),
            endpoints=tuple(settings.endpoints) or (join_address(address, settings.listen_port),),
            public_key=public_key,
            mtu=mtu,
            next_key=next_key,
            services=own.services,
            six=six,
            accepted=tuple(parse_networks(settings.accept)),
            service_pools=tuple(parse_networks(settings.service_pools)),
            leads_services=_proxy(facts) not in UNTRACKED,
        )

    def vteps(self, own: str) -> tuple[Vtep, ...]:
        """Return the other hosts of this cluster that take part in the overlay."""
        return find_vteps(self._nodes.items(), own)

    def is_lost(self, address: str) -> bool:
        """Return whether a host of this cluster is a node whose kubelet is silent."""
        return is_lost(address, self._nodes.items())

    def allowed_pods(self, peer: ClusterID) -> frozenset[str] | None:
        """Return the addresses of our pods that may talk to a peer, None for all.

        They are those of the namespaces that we offload to it, and of those that it was granted here.
        """
        if self._tables is None:
            return None
        table = self._tables.get(Key("", peer))
        offloaded = list(table.spec.natting_table) if table is not None else []
        return pod_addresses(self._pods.items(), [*self._granted(peer), *offloaded])

    def guests(self, peer: ClusterID) -> frozenset[str]:
        """Return the addresses of a peer's own pods here: those of its ShadowPods, in the namespaces granted to it."""
        return pod_addresses(self._pods.items(), self._granted(peer), offloaded=True)

    def offloaded(self, networks: Sequence[Network]) -> frozenset[str]:
        """Return the addresses here of our own pods in a peer's cluster, by the networks that it is known by."""
        return addresses_inside(self._pods.items(), networks)

    def own_services(self, maps: Sequence[ServiceMap], peer: ClusterID) -> frozenset[str]:
        """Return the addresses of Services here that a peer's pods use and that lie in its networks of Services too.

        They are those of its reflected Services and of name servers: of this cluster, and of its own.
        """
        if not maps:
            return frozenset()
        granted = {*self._granted(peer), tenant_namespace(peer)}
        addresses = [one.spec.cluster_ip for one in self._reflected.items() if one.metadata.namespace in granted]
        asked = self._name_services.items() if self._name_services is not None else []
        addresses += [one.spec.cluster_ip for one in asked if one.tenant == peer]
        # Offloaded pods ask this cluster's name service unless they have their own.
        addresses += [one.spec.cluster_ip for one in self._dns.items()]
        return own_services(maps, addresses)

    def _granted(self, peer: ClusterID) -> list[str]:
        return [
            space.metadata.name
            for space in self._hosted.items()
            if space.metadata.labels.get(REMOTE_CLUSTER_LABEL) == peer
        ]

    def pod_targets(self, networks: Sequence[Network], current: Mapping[int, str]) -> dict[int, str]:
        """Return the addresses here of pods of a peer to ping, by IP version; the current ones if they still run."""
        return pod_targets(self._pods.items(), networks, current)


def when_changed(key: str, part: Callable[[Any], object]) -> Callable[[Any, Any, Any], tuple[str, ...]]:
    """Return a mapping for ``watch`` that names ``key`` when that part of an object changed, or it is new or gone."""

    def keys_of(_: Any, old: Any, new: Any) -> tuple[str, ...]:
        return (key,) if part(old) != part(new) else ()

    return keys_of


def _service_address(service: NameService | None) -> object:
    return (service.spec.cluster_ip, service.metadata.namespace) if service is not None else None


def _proxy(facts: ClusterFacts | None) -> str:
    return next(iter(values_of(facts, PROXY)), "")


def _facts_of(facts: ClusterFacts | None) -> tuple[object, ...]:
    return tuple(values_of(facts, name) for name in (PROXY, POD_NETWORKS, SERVICE_NETWORKS))


def _networks_of(node: Node | None) -> tuple[object, ...]:
    if node is None:
        return ()
    return node.spec.pod_cidrs, node.status.addresses, node.metadata.annotations.get(OVERLAY_ANNOTATION)


def _addresses_of(pod: Pod | None) -> tuple[object, ...]:
    return (pod.status.pod_ips, pod.status.phase == "Running") if pod is not None and pod.status.pod_ips else ()
