"""Runs one virtual kubelet per VirtualNode record, and removes the nodes whose record is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
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
    VIRTUALNODES,
)
from liqod.kubelet.api.nodes import Lender, Route
from liqod.kubelet.api.service import NodeAPI
from liqod.kubelet.common.readiness import Readiness, is_back
from liqod.kubelet.common.views import HomePod, Namespace, Node
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.offloading_status import OffloadingStatusController
from liqod.kubelet.ports import Exports, NamespaceGrants, Recorder, Unmapped
from liqod.kubelet.reflection.service import VolumeLocations
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.virtual_kubelet import Surroundings, VirtualKubelet, same_kubelet, same_node
from liqod.kubelet.volume_provisioner import Lender as Lending
from liqod.kubelet.volume_provisioner import VolumeProvisioner
from liqod.model.ids import ClusterID, Key, is_dns_label
from liqod.model.names import (
    ENABLED_LABEL,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    REMOTE_CLUSTER_LABEL,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
    advertisement_name,
)
from liqod.model.objects.meta import Object, ObjectMeta, label_selector
from liqod.model.records.network import Claims
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.unpeering import order_of
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode, VirtualNodeSpec

RETIRING: Final = 8
"""Virtual nodes that are started or removed at the same time."""


def _same_address(_: ClusterID, address: str) -> str:
    return address


def _no_families(_: ClusterID) -> frozenset[str]:
    return frozenset()


class Kubelets(MultiService):
    """The virtual kubelets of this daemon, by the key of their record.

    ``node_address`` is what offloaded pods have as host address and virtual nodes as InternalIP. ``network`` tells
    whether a lender's pods can be reached (None: as the clusters' own networks allow), ``map_address`` by which
    address; ``export_address`` the other way round, by which address a lender's pods reach one of this cluster (empty:
    not known yet). ``exports`` knows that of every endpoint, and ``claimed`` is called when ``claims`` tells of others
    than before. ``relay`` returns what connects to a lender's API relay (``IStreamClientEndpoint``); without it there
    is none. ``answered`` hears of a lender whose API server answers that did not before. ``families`` tells the IP
    versions of a lender's pods ("IPv4", "IPv6"), none where they are not known.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        informers: Informers,
        settings: Settings,
        cluster_id: ClusterID,
        cluster_name: str,
        grants: NamespaceGrants,
        recorder: Recorder,
        *,
        node_address: str = "",
        network: Callable[[ClusterID], Readiness] | None = None,
        map_address: Callable[[ClusterID, str], str] = _same_address,
        export_address: Callable[[ClusterID, str], str] = _same_address,
        relay: Callable[[ClusterID], Any] | None = None,
        exports: Exports | None = None,
        claimed: Callable[[], None] = lambda: None,
        answered: Callable[[ClusterID], None] = lambda _: None,
        families: Callable[[ClusterID], frozenset[str]] = _no_families,
    ) -> None:
        super().__init__()
        self.cluster_name = cluster_name
        self._client = client
        self._version = ""
        self._records: Informer[VirtualNode] = informers.of(VIRTUALNODES, VirtualNode)
        self._around = Surroundings(
            reactor=reactor,
            client=client,
            settings=settings.kubelet,
            home=cluster_id,
            node_address=settings.kubelet.node_address or node_address,
            records=self._records,
            offers=informers.of(ADVERTISEMENTS, Advertisement),
            tables=informers.of(NATTINGTABLES, NamespaceNattingTable),
            enabled=informers.of(NAMESPACES, Namespace, labels=f"{ENABLED_LABEL}=true"),
            offloadings=informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
            grants=grants,
            recorder=recorder,
            home_version=lambda: self._version,
            network=network,
            map_address=map_address,
            export_address=export_address,
            families=families,
            reflection=settings.reflection,
            homes=NamespacedInformers(informers),
            nodes=informers.of(NODES, Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"),
            api_port=lambda: self.api.port if self.api is not None else 0,
            api=settings.peering.api,
            relay=relay,
            home_api=HomeApi(informers, settings.kubernetes.api_server_url, client.config.server),
            exports=exports if exports is not None else Unmapped(),
            claimed=claimed,
            answered=answered,
            given_up=self._is_given_up,
        )
        OffloadingStatusController(
            reactor,
            client,
            cluster_id,
            self._around.offloadings,
            self._around.enabled,
            self._around.tables,
            self._records,
            self._around.nodes,
        ).setServiceParent(self)
        if settings.storage.enabled:
            self._provide_storage(informers, settings)
        self.api: NodeAPI | None = None
        if settings.kubelet.listen:
            address = self._around.node_address
            self.api = NodeAPI(reactor, client, settings.kubelet.listen, address, self, self.network_changed)
            self.api.setServiceParent(self)
        self._kubelets: dict[Key, VirtualKubelet] = {}
        self._orphans: dict[Key, VirtualNode] = {}
        self._peers: Informer[ForeignCluster] = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._unsubscribe: list[Callable[[], None]] = []
        self._queue: WorkQueue[Key] = WorkQueue(reactor, "virtual nodes")
        self._workers: Workers[Key] = Workers(self._queue, RETIRING, self._process, "running the virtual kubelet of")
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def _provide_storage(self, informers: Informers, settings: Settings) -> None:
        """Have claims follow their pods."""
        around = self._around

        def offered(lender: str) -> list[str]:
            known = around.offers.get(Key("", advertisement_name(lender)))
            return [] if known is None else known.spec.offer.storage_classes

        def lender(peer: ClusterID) -> Lending | None:
            kubelet = self.of(peer)
            if kubelet is None:
                return None
            client = kubelet.access.client.value if kubelet.health.ok else None
            return Lending(kubelet.context, kubelet.namespaces.mapped(), client)

        storage = VolumeProvisioner(
            around.reactor,
            self._client,
            informers,
            settings.storage,
            around.nodes,
            around.recorder,
            lender=lender,
            is_peer=lambda peer: any(each.spec.cluster_id == peer for each in around.records.items()),
            offered=offered,
            offloaded=lambda namespace: around.enabled.get(Key("", namespace)) is not None,
            ready=lambda: around.records.synced and around.tables.synced,
        )
        self._around = attrs.evolve(around, holdings=VolumeLocations(storage.volumes, offered, storage.follows))
        storage.setServiceParent(self)

    def __len__(self) -> int:
        """The number of virtual kubelets that run."""
        return len(self._kubelets)

    @property
    def enabled(self) -> Informer[Namespace]:
        """The namespaces that bear the label."""
        return self._around.enabled

    def of(self, cluster_id: ClusterID) -> VirtualKubelet | None:
        """Return the virtual kubelet for a lender."""
        return next((k for k in self._kubelets.values() if k.context.lender == cluster_id), None)

    def claims(self, peer: ClusterID) -> Claims:
        """Return the single addresses that a lender's pods have to reach, as far as known."""
        kubelet = self.of(peer)
        if kubelet is not None:
            return kubelet.reflection.claims()
        is_lender = any(each.spec.cluster_id == peer for each in self._records.items())
        return Claims(complete=self._records.synced and not is_lender)

    def route(self, pod: Key) -> Route | None:
        """Return the way to a pod; None when it is on none of our nodes."""
        return next((route for k in self._kubelets.values() if (route := k.route(pod)) is not None), None)

    def pods(self) -> Iterator[HomePod]:
        """Return all pods on our nodes."""
        return (pod for kubelet in self._kubelets.values() for pod in kubelet.home_pods())

    def lenders(self) -> list[Lender]:
        """Return the nodes as those see them who ask the lenders."""
        return [kubelet.lender() for kubelet in self._kubelets.values()]

    def network_changed(self) -> None:
        """Have every node looked at again, because what ``network`` or the API's port tells changed."""
        for kubelet in self._kubelets.values():
            kubelet.network_changed()

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._records.subscribe(lambda key, old, new: self._queue.add(key)),
            self._peers.subscribe(self._peer_changed),
        ]
        self._tasks.spawn(self._begin(), "starting the virtual kubelets")

    def _peer_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        """A session that is back tells of the path to the API server, too, sooner than its next turn to be asked."""
        if old is None or new is None or not is_back(old.status.phase, new.status.phase):
            return
        kubelet = self.of(ClusterID(key.name))
        if kubelet is not None:
            kubelet.health.session_resumed()
            kubelet.namespaces.session_resumed()

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _begin(self) -> None:
        try:
            self._version = await self._client.version.get()
        except KubeError as error:
            self._log.warn("the version of this cluster is not known: {error}", error=str(error))
        around = self._around
        await DeferredList(
            [i.when_synced() for i in (around.records, around.offers, around.tables, around.enabled)],
            consumeErrors=True,
        )
        self._workers.setServiceParent(self)
        await self._sweep()

    async def _sweep(self) -> None:
        """Find nodes of ours whose record went away while no daemon ran, and have them removed."""
        mine = {TYPE_LABEL: VIRTUAL_NODE_TYPE, MANAGED_BY_LABEL: FIELD_MANAGER}
        nodes = await self._client.list(NODES, view=Node, labels=label_selector(mine))
        known = {record.spec.node_name for record in self._records.items()}
        for node in nodes.items:
            name, cluster_id = node.metadata.name, node.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
            if name not in known and is_dns_label(cluster_id):
                key = Key("", name)
                spec = VirtualNodeSpec(cluster_id=cluster_id, node_name=name)
                self._orphans[key] = VirtualNode(metadata=ObjectMeta(name=name), spec=spec)
                self._queue.add(key)

    async def _process(self, key: Key) -> float | None:
        orphan = self._orphans.get(key)
        if orphan is not None:
            await self._retire(key, self._start(key, orphan))
            del self._orphans[key]
            return None
        record = self._records.get(key)
        if record is not None and record.metadata.deleting:
            record = None
        kubelet = self._kubelets.get(key)
        if kubelet is not None:
            if record is not None and same_kubelet(kubelet.record, record):
                return None
            if record is None or not same_node(kubelet.record, record):
                await self._retire(key, kubelet)
            else:
                await self._stop(key, kubelet)
            return 0.0
        if record is None:
            return None
        if not record.spec.node_name or not is_dns_label(record.spec.cluster_id):
            self._log.warn("the VirtualNode {key} lacks a nodeName or a clusterID: it is ignored", key=str(key))
            return None
        self._start(key, record)
        return None

    async def _retire(self, key: Key, kubelet: VirtualKubelet) -> None:
        await kubelet.retire()
        await self._stop(key, kubelet)

    def _is_given_up(self, lender: ClusterID) -> bool:
        record = self._peers.get(Key("", lender))
        return record is not None and record.metadata.deleting and order_of(record.metadata.annotations).kind == "dead"

    def _start(self, key: Key, record: VirtualNode) -> VirtualKubelet:
        kubelet = VirtualKubelet(self._around, record)
        self._kubelets[key] = kubelet
        kubelet.setServiceParent(self)
        return kubelet

    async def _stop(self, key: Key, kubelet: VirtualKubelet) -> None:
        self._kubelets.pop(key, None)
        await maybeDeferred(kubelet.disownServiceParent)
