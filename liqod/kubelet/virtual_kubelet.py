"""Composes one virtual kubelet from its services, for one VirtualNode record.

All its state is in records of the API server: stopping it keeps node, pods and mappings, and another daemon continues
from there. ``retire`` removes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PODS,
    VIRTUALNODES,
)
from liqod.kubelet.api.nodes import Lender, Route
from liqod.kubelet.common.context import ApiServer, Context
from liqod.kubelet.common.network import LenderNetwork, Networks
from liqod.kubelet.common.readiness import Readiness, judge, judge_offer
from liqod.kubelet.common.views import HomePod, Namespace
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.lender.failover import Failover
from liqod.kubelet.lender.health import REACHABLE_REASONS, LenderHealth
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.node.controller import NodeConfig, NodeController, NodeSources
from liqod.kubelet.node.eviction import EvictionController
from liqod.kubelet.node.forge import RENEWED
from liqod.kubelet.node.network_condition import NetworkCondition
from liqod.kubelet.pods.actions import PodActions
from liqod.kubelet.pods.controller import PodController
from liqod.kubelet.ports import Lenders, Recorder
from liqod.kubelet.reflection.service import Reflection, VolumeLocations
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.tokens.controller import TokenController
from liqod.kubelet.virtualnode_status import VirtualNodeStatusController
from liqod.model.ids import ClusterID, Key
from liqod.model.names import ENABLED_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE, advertisement_name
from liqod.model.objects.meta import Object
from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.unpeering import order_of
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode

DRAIN_DEADLINE: Final = 30.0
EVICTION_DEADLINE: Final = 20.0
"""Seconds of the drain in which pods are evicted, which respects PodDisruptionBudgets; then they are deleted."""

RELEASE_DEADLINE: Final = 5.0
DRAIN_STEP: Final = 0.25


@frozen
class HomeCluster:
    """This cluster, as virtual kubelets use it; ``node_address`` is the InternalIP of their nodes."""

    cluster_id: ClusterID
    client: Client
    informers: Informers
    recorder: Recorder
    node_address: str = ""


@frozen
class Records:
    """The records of this cluster that all virtual kubelets watch."""

    virtual_nodes: Informer[VirtualNode]
    offers: Informer[Advertisement]
    tables: Informer[NamespaceNattingTable]
    enabled: Informer[Namespace]
    """Namespaces with the label liqo.io/enabled=true."""
    offloadings: Informer[NamespaceOffloading]
    nodes: Informer[Object]
    """Virtual nodes."""
    peers: Informer[ForeignCluster]

    @classmethod
    def watched_by(cls, informers: Informers) -> Records:
        """Return the shared caches of these records."""
        return cls(
            virtual_nodes=informers.of(VIRTUALNODES, VirtualNode),
            offers=informers.of(ADVERTISEMENTS, Advertisement),
            tables=informers.of(NATTINGTABLES, NamespaceNattingTable),
            enabled=informers.of(NAMESPACES, Namespace, labels=f"{ENABLED_LABEL}=true"),
            offloadings=informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
            nodes=informers.of(NODES, Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"),
            peers=informers.of(FOREIGNCLUSTERS, ForeignCluster),
        )

    def offer_of(self, lender: ClusterID) -> Advertisement | None:
        """Return the offer of a lender; None without one."""
        return self.offers.get(Key("", advertisement_name(lender)))

    def is_given_up(self, lender: ClusterID) -> bool:
        """Return whether an administrator declared a lender dead, so that nothing waits for it."""
        peer = self.peers.get(Key("", lender))
        return peer is not None and peer.metadata.deleting and order_of(peer.metadata.annotations).kind == "dead"


@frozen
class Shared:
    """The objects that all virtual kubelets of a daemon share."""

    reactor: Any
    home: HomeCluster
    settings: Settings
    records: Records
    lenders: Lenders
    networks: Networks
    home_api: HomeApi
    informers: NamespacedInformers
    home_version: Latest[str]
    api_port: Latest[int]
    locations: VolumeLocations | None


@frozen
class _HomeServices:
    """The services of the home cluster that pods at one lender use."""

    shared: Shared
    network: LenderNetwork
    with_tokens: bool

    def api_server(self) -> ApiServer | None:
        return self.shared.home_api.server(self.network.to_lender) if self.with_tokens else None

    def follows(self, storage_class: str) -> bool:
        locations = self.shared.locations
        return locations is not None and locations.follows(storage_class)


class VirtualKubelet(MultiService):
    """The virtual node of one lender, and the pods on it."""

    _log = Logger()

    def __init__(self, shared: Shared, record: VirtualNode) -> None:
        super().__init__()
        self.record = record
        self._shared = shared
        self._lender = lender = ClusterID(record.spec.cluster_id)
        self._unsubscribe: list[Callable[[], None]] = []
        reactor, home, records, settings = shared.reactor, shared.home, shared.records, shared.settings
        with_tokens = settings.kubelet.enable_apiserver_support and settings.reflection.serviceaccount.workers > 0
        network = shared.networks.to(lender)
        self.context = _context(shared, record, network, with_tokens=with_tokens)
        node_name = record.spec.node_name
        self._pods: Informer[HomePod] = Informer(
            home.client, PODS, HomePod, reactor, fields=f"spec.nodeName={node_name}"
        )
        self._offer: Latest[Offer | None] = Latest(None)
        self.access = LenderAccess(
            reactor,
            home.client,
            lender,
            setting=settings.peering.api,
            relay=lambda: shared.lenders.relay_of(lender),
        )
        self.health = LenderHealth(reactor, self.access.client, settings.kubelet.lease_duration * RENEWED)
        self.failover = Failover(reactor, self.access, self.health.state)
        self.network_condition = NetworkCondition(reactor, network.status, str(lender))
        self.readiness: Latest[Readiness] = Latest(self._judge())
        self.node = NodeController(
            reactor,
            home.client,
            NodeConfig(
                node_name,
                lender,
                self.context.node_address,
                settings.kubelet.lease_duration,
                record.spec.labels,
            ),
            NodeSources(
                readiness=self.readiness,
                offer=self._offer,
                home_version=shared.home_version,
                api_port=shared.api_port,
                network=self.network_condition.state if network.is_managed else None,
                health=self.health.state,
            ),
        )
        self.eviction = EvictionController(
            reactor,
            home.client,
            self.node,
            self._pods,
            readiness=self.readiness,
            evict_after=settings.kubelet.evict_after,
        )
        self.namespaces = NamespaceController(
            reactor,
            home.client,
            context=self.context,
            enabled=records.enabled,
            offloadings=records.offloadings,
            nodes=records.nodes,
            tables=records.tables,
            pods=self._pods,
            grants=shared.lenders,
        )
        self.pods = PodController(
            reactor,
            self._pods,
            PodActions(
                reactor,
                home.client,
                context=self.context,
                grants=self.namespaces,
                health=self.health,
                recorder=home.recorder,
            ),
            context=self.context,
            namespaces=self.namespaces,
            health=self.health,
            network_usable=self.network_condition.usable,
            workers=settings.kubelet.workers,
            status_delay=settings.kubelet.status_delay,
        )
        self.namespaces.pod_queue = self.pods
        self.reflection = Reflection(
            reactor,
            settings.reflection,
            self.context,
            informers=shared.informers,
            nodes=records.nodes,
            pods=self._pods,
            namespaces=self.namespaces,
            health=self.health,
            recorder=home.recorder,
            locations=shared.locations,
        )
        self.status = VirtualNodeStatusController(
            reactor,
            home.client,
            record.metadata.key,
            records=records.virtual_nodes,
            readiness=self.readiness,
            node=self.node.state,
            health=self.health.state,
            access=self.access,
            namespaces=self.namespaces,
        )
        for service in (
            self._pods,
            self.access,
            self.health,
            self.failover,
            self.network_condition,
            self.node,
            self.eviction,
            self.namespaces,
            self.pods,
            self.reflection,
            self.status,
        ):
            service.setServiceParent(self)
        if with_tokens:
            self._add_tokens(settings.reflection.serviceaccount.workers)

    def _add_tokens(self, workers: int) -> None:
        home = self._shared.home
        tokens = TokenController(
            self._shared.reactor,
            home.client,
            context=self.context,
            pods=self._pods,
            namespaces=self.namespaces,
            health=self.health,
            recorder=home.recorder,
            workers=workers,
        )
        tokens.setServiceParent(self)

    def _judge(self) -> Readiness:
        offer = judge_offer(self._shared.records.offer_of(self._lender))
        return judge(self.access.readiness.value, self.health.state.value, self.network_condition.state.value, offer)

    # For the API of virtual nodes and for volumes

    def route(self, pod: Key) -> Route | None:
        """Return the route to a pod for its log or a shell; None if it is not on this node."""
        known = self._pods.get(pod)
        if known is None:
            return None
        remote = self.namespaces.mappings().get(pod.namespace, "")
        return Route(self.context.node_name, self.access.client.value, remote, known.metadata.uid)

    def home_pods(self) -> list[HomePod]:
        """Return the pods on the node."""
        return self._pods.items()

    def lender(self) -> Lender:
        """Return the node's name with a client of its lender and the mapped namespaces."""
        return Lender(self.context.node_name, self.access.client.value, self.namespaces.mappings())

    # Start and stop

    def startService(self) -> None:
        self._unsubscribe = [
            self._shared.records.offers.subscribe(self._offer_changed),
            self.access.client.subscribe(self.namespaces.use_client),
            self.access.readiness.subscribe(lambda _: self._refresh()),
            self.access.token_renewals.subscribe(lambda _: self.health.request_failed()),
            self.health.state.subscribe(self._health_changed),
            self.network_condition.state.subscribe(lambda _: self._refresh()),
            self.reflection.claims_revision.subscribe(lambda _: self._shared.networks.claims_changed()),
        ]
        self._refresh()
        super().startService()

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        return maybeDeferred(super().stopService).addBoth(self._close)

    def _close(self, result: Any) -> Any:
        return Deferred.fromCoroutine(self.access.close()).addBoth(lambda _: result)

    def _refresh(self) -> None:
        """Re-evaluate offer and readiness of the node."""
        advertisement = self._shared.records.offer_of(self._lender)
        self._offer.set(None if advertisement is None else advertisement.spec.offer)
        self.readiness.set(self._judge())

    def _offer_changed(self, key: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        if key.name == advertisement_name(self._lender):
            self._refresh()

    def _health_changed(self, health: Readiness) -> None:
        self._refresh()
        if health.ready or health.reason in REACHABLE_REASONS:
            self._shared.lenders.peer_answered(self._lender)

    def session_resumed(self) -> None:
        """Retry at once what failed without a session: it was resumed."""
        self.health.session_resumed()
        self.namespaces.session_resumed()

    # Retirement

    async def retire(self) -> None:
        """Drain the node and remove it; raises KubeError if a part of it could not be removed.

        All steps are tried before it raises, and again by the next call.

        Pods are evicted, then deleted, then removed with grace period 0. The drain waits for the lender until its
        deadlines at most, and not at all once an administrator declared it dead: the lender's own daemon, should it
        return, deletes the rest.
        """
        reactor = self._shared.reactor
        self._log.info("removing the virtual node {node}", node=self.context.node_name)
        started = reactor.seconds()
        await self._pods.when_synced()
        await self._try("cordoning", self.node.cordon())
        self.namespaces.retire()
        await self._drain(started)
        for pod in self._remaining_pods():
            await self._try("removing a pod of", self._delete(pod, 0))
        failed = [await self._try("removing", self.node.retire())]
        await self.namespaces.release_all(reactor.seconds() + (0.0 if self._is_given_up() else RELEASE_DEADLINE))
        table = self._shared.home.client.delete(NATTINGTABLES, str(self._lender))
        failed.append(await self._try("removing the natting table of", table))
        for error in filter(None, failed):
            raise error
        self._log.info("removed the virtual node {node}", node=self.context.node_name)

    async def _drain(self, started: float) -> None:
        """Wait until all namespaces are released; delete pods after ``EVICTION_DEADLINE``."""
        reactor = self._shared.reactor
        deleted: set[str] = set()
        while self._is_occupied() and reactor.seconds() - started < DRAIN_DEADLINE:
            if self._is_given_up() and self.namespaces.synced:
                return
            if reactor.seconds() - started > EVICTION_DEADLINE:
                for pod in self._remaining_pods():
                    if pod.metadata.uid not in deleted and not pod.metadata.deleting:
                        deleted.add(pod.metadata.uid)
                        await self._try("deleting a pod of", self._delete(pod, None))
            await deferLater(reactor, DRAIN_STEP)

    def _is_given_up(self) -> bool:
        return self._shared.records.is_given_up(self._lender)

    def _is_occupied(self) -> bool:
        return not self.namespaces.synced or bool(self.namespaces.mappings())

    def _remaining_pods(self) -> list[HomePod]:
        mapped = self.namespaces.mappings()
        return [pod for pod in self._pods.items() if pod.metadata.namespace in mapped]

    async def _delete(self, pod: HomePod, grace: int | None) -> None:
        meta = pod.metadata
        await self._shared.home.client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=grace)

    async def _try(self, what: str, work: Awaitable[object]) -> KubeError | None:
        """Await a step and return its error, so that the next steps are taken even if it fails."""
        try:
            await work
        except KubeError as error:
            self._log.warn("{what} {node} failed: {error}", what=what, node=self.context.node_name, error=str(error))
            return error
        return None


def _context(shared: Shared, record: VirtualNode, network: LenderNetwork, *, with_tokens: bool) -> Context:
    patch, reflection = record.spec.offloading_patch, shared.settings.reflection
    return Context(
        home=shared.home.cluster_id,
        lender=ClusterID(record.spec.cluster_id),
        node_name=record.spec.node_name,
        node_address=shared.settings.kubelet.node_address or shared.home.node_address,
        labels_not_reflected=frozenset((*patch.labels_not_reflected, *reflection.skip_labels)),
        annotations_not_reflected=frozenset((*patch.annotations_not_reflected, *reflection.skip_annotations)),
        network=network,
        services=_HomeServices(shared, network, with_tokens),
    )


def same_kubelet(left: VirtualNode, right: VirtualNode) -> bool:
    """Return whether a kubelet that runs for one record also serves the other."""
    return left.spec == right.spec


def same_node(left: VirtualNode, right: VirtualNode) -> bool:
    """Return whether two records describe the same node of the same lender."""
    return (left.spec.node_name, left.spec.cluster_id) == (right.spec.node_name, right.spec.cluster_id)
