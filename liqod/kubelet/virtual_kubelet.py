"""One virtual kubelet: everything that one VirtualNode record stands for, put together.

It has no state of its own beyond the records: stopping it leaves node, pods and mappings as they are, and another
daemon goes on from there. ``retire`` is what removes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.config.schema import Kubelet as Settings
from liqod.config.schema import Reflection as ReflectionSettings
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError
from liqod.kube.resources import NATTINGTABLES, PODS
from liqod.kubelet.api.nodes import Lender, Route
from liqod.kubelet.common.context import ApiServer, Context
from liqod.kubelet.common.readiness import READY, Readiness, judge, judge_offer
from liqod.kubelet.common.views import HomePod, Namespace
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.lender.endpoint_choice import EndpointSetting
from liqod.kubelet.lender.failover import Failover
from liqod.kubelet.lender.health import REACHABLE_REASONS, LenderHealth
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.node.controller import NodeController
from liqod.kubelet.node.eviction import EvictionController
from liqod.kubelet.node.forge import RENEWED
from liqod.kubelet.node.network_condition import NetworkCondition
from liqod.kubelet.pods.controller import PodController
from liqod.kubelet.ports import Exports, NamespaceGrants, Recorder
from liqod.kubelet.reflection.service import Reflection, VolumeLocations
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.tokens.controller import TokenController
from liqod.kubelet.virtualnode_status import VirtualNodeStatusController
from liqod.model.ids import ClusterID, Key
from liqod.model.names import advertisement_name
from liqod.model.objects.meta import Object
from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, NamespaceNattingTable, VirtualNode

DRAIN_DEADLINE: Final = 30.0
POLITE: Final = 20.0
"""Seconds of the drain in which disruption budgets are honoured; then pods are deleted with their grace."""

RELEASE_DEADLINE: Final = 5.0
STEP: Final = 0.25


@frozen
class Surroundings:
    """What all virtual kubelets of a daemon share."""

    reactor: Any
    client: Client
    settings: Settings
    home: ClusterID
    node_address: str
    records: Informer[VirtualNode]
    offers: Informer[Advertisement]
    tables: Informer[NamespaceNattingTable]
    enabled: Informer[Namespace]
    offloadings: Informer[NamespaceOffloading]
    grants: NamespaceGrants
    recorder: Recorder
    home_version: Callable[[], str]
    network: Callable[[ClusterID], Readiness] | None
    map_address: Callable[[ClusterID, str], str]
    export_address: Callable[[ClusterID, str], str]
    families: Callable[[ClusterID], frozenset[str]]
    reflection: ReflectionSettings
    homes: NamespacedInformers
    nodes: Informer[Object]
    api_port: Callable[[], int]
    api: EndpointSetting
    relay: Callable[[ClusterID], Any] | None
    answered: Callable[[ClusterID], None]
    home_api: HomeApi
    exports: Exports
    claimed: Callable[[], None]
    given_up: Callable[[ClusterID], bool]
    holdings: VolumeLocations | None = None


class VirtualKubelet(MultiService):
    """The virtual node of one lender, and the pods on it."""

    _log = Logger()

    def __init__(self, around: Surroundings, record: VirtualNode) -> None:
        super().__init__()
        self.record = record
        self._around = around
        self._lender = lender = ClusterID(record.spec.cluster_id)
        node_name = record.spec.node_name
        reactor, client, settings = around.reactor, around.client, around.settings
        patch = record.spec.offloading_patch
        self.context = Context(
            home=around.home,
            lender=lender,
            node_name=node_name,
            node_address=around.node_address,
            labels_not_reflected=frozenset((*patch.labels_not_reflected, *around.reflection.skip_labels)),
            annotations_not_reflected=frozenset(
                (*patch.annotations_not_reflected, *around.reflection.skip_annotations)
            ),
            map_address=lambda address: around.map_address(lender, address),
            export_address=lambda address: around.exports.seen(lender, address),
            is_single=lambda address: around.exports.is_single(lender, address),
            objection=lambda address: around.exports.objection(lender, address),
            api_server=self._home_api,
            families=lambda: around.families(lender),
            follows=lambda name: around.holdings is not None and around.holdings.follows(name),
        )
        self._unsubscribe: list[Callable[[], None]] = []
        self._pods: Informer[HomePod] = Informer(client, PODS, HomePod, reactor, fields=f"spec.nodeName={node_name}")
        relay = around.relay
        dial = None if relay is None else lambda: relay(lender)
        self.access = LenderAccess(reactor, client, lender, setting=around.api, relay=dial)
        self.health = LenderHealth(reactor, self.access.client, settings.lease_duration * RENEWED)
        self.failover = Failover(reactor, self.access, self.health.state)
        network = around.network
        self._network_status: Latest[Readiness] = Latest(READY if network is None else network(lender))
        self.network_condition = NetworkCondition(reactor, self._network_status, str(lender))
        self.node = NodeController(
            reactor,
            client,
            node_name,
            lender,
            around.node_address,
            settings.lease_duration,
            record.spec.labels,
            self.readiness,
            self._offer,
            lambda: self.health.ok,
            around.home_version,
            around.api_port,
            lambda: None if network is None else self.network_condition.state.value,
        )
        self.eviction = EvictionController(reactor, client, self.node, self._pods, self.readiness, settings.evict_after)
        self.namespaces = NamespaceController(
            reactor,
            client,
            self.context,
            around.enabled,
            around.offloadings,
            around.nodes,
            around.tables,
            self._pods,
            around.grants,
            lambda key: self.pods.enqueue(key),
            lambda: self.pods.wake(),
        )
        self.pods = PodController(
            reactor,
            client,
            self._pods,
            self.context,
            self.namespaces,
            self.health,
            around.recorder,
            settings.workers,
            settings.status_delay,
            self._crosses,
        )
        self.reflection = Reflection(
            reactor,
            around.reflection,
            self.context,
            around.homes,
            around.nodes,
            self._pods,
            self.namespaces,
            self.health,
            around.recorder,
            around.holdings,
            around.claimed,
        )
        self.tokens = TokenController(
            reactor,
            client,
            self.context,
            self._pods,
            self.namespaces,
            self.health,
            around.recorder,
            around.reflection.serviceaccount.workers or 1,
        )
        self.status = VirtualNodeStatusController(
            reactor,
            client,
            record.metadata.key,
            around.records,
            self.node,
            self.access,
            self.health,
            self.namespaces,
            self.readiness,
        )
        self._crossed = self._crosses()
        self._tasks = Tasks()
        for service in (
            self._tasks,
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
        if self._lends_tokens:
            self.tokens.setServiceParent(self)

    @property
    def _lends_tokens(self) -> bool:
        """Whether offloaded pods get tokens of this cluster's service accounts."""
        around = self._around
        return around.settings.enable_apiserver_support and around.reflection.serviceaccount.workers > 0

    def _home_api(self) -> ApiServer | None:
        if not self._lends_tokens:
            return None
        return self._around.home_api.server(lambda address: self._around.export_address(self._lender, address))

    def readiness(self) -> Readiness:
        """Return whether pods can run behind the node, and if not, why."""
        offer = judge_offer(self._advertisement())
        return judge(self.access.readiness.value, self.health.state.value, self.network_condition.state.value, offer)

    def _reached(self, state: Readiness) -> None:
        self._refresh()
        if state.ready or state.reason in REACHABLE_REASONS:
            self._around.answered(self._lender)

    def network_changed(self) -> None:
        """Read the status of the network again, and how addresses are translated."""
        if self._around.network is not None:
            self._network_status.set(self._around.network(self._lender))
        self.node.refresh()
        self.reflection.addresses_changed()

    def _crosses(self) -> bool:
        return self.network_condition.is_usable

    def _network_turned(self, _: Readiness) -> None:
        self._refresh()
        crosses = self._crosses()
        if crosses is not self._crossed:
            self._crossed = crosses
            self.pods.enqueue_all()

    def route(self, pod: Key) -> Route | None:
        """Return the way to a pod for those who want its log or a shell; None when it is not on this node."""
        known = self._pods.get(pod)
        if known is None:
            return None
        remote = self.namespaces.mapped().get(pod.namespace, "")
        return Route(self.context.node_name, self.access.client.value, remote, known.metadata.uid)

    def home_pods(self) -> list[HomePod]:
        """Return the pods on the node."""
        return self._pods.items()

    def lender(self) -> Lender:
        """Return what asking the lender for more than one pod takes."""
        return Lender(self.context.node_name, self.access.client.value, self.namespaces.mapped())

    def _advertisement(self) -> Advertisement | None:
        return self._around.offers.get(Key("", advertisement_name(self._lender)))

    def _offer(self) -> Offer | None:
        known = self._advertisement()
        return None if known is None else known.spec.offer

    def startService(self) -> None:
        self._unsubscribe = [
            self._around.offers.subscribe(self._offer_changed),
            self.access.client.subscribe(self.namespaces.use),
            self.access.readiness.subscribe(lambda _: self._refresh()),
            self.access.endpoint.subscribe(lambda _: self.status.refresh()),
            self.access.token_renewals.subscribe(lambda _: self.health.request_failed()),
            self.health.state.subscribe(self._reached),
            self.network_condition.state.subscribe(self._network_turned),
            self.node.state.subscribe(lambda _: self.status.refresh()),
        ]
        super().startService()

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        return maybeDeferred(super().stopService).addBoth(self._close)

    def _close(self, result: Any) -> Any:
        return Deferred.fromCoroutine(self.access.close()).addBoth(lambda _: result)

    def _offer_changed(self, key: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        if key.name == advertisement_name(self._lender):
            self._refresh()

    def _refresh(self) -> None:
        self.node.refresh()
        self.eviction.refresh()
        self.status.refresh()

    async def retire(self) -> None:
        """Empty the node and remove it; what the lender does not answer to within the deadline is left to it.

        Pods leave gracefully as long as there is time, then they are removed. Never waits for the lender beyond the
        deadline, and not at all once a person says that it is dead: its own daemon removes the pods if it ever returns.
        """
        reactor = self._around.reactor
        self._log.info("removing the virtual node {node}", node=self.context.node_name)
        started = reactor.seconds()
        await self._pods.when_synced()
        await self._try("cordoning", self.node.cordon())
        self.namespaces.retire()
        asked: set[str] = set()
        while self._left_behind() and reactor.seconds() - started < DRAIN_DEADLINE:
            if self._is_given_up() and self.namespaces.synced:
                break
            if reactor.seconds() - started > POLITE:
                for pod in self._remaining():
                    if pod.metadata.uid not in asked and not pod.metadata.deleting:
                        asked.add(pod.metadata.uid)
                        await self._try("deleting a pod of", self._delete(pod, None))
            await deferLater(reactor, STEP)
        for pod in self._remaining():
            await self._try("removing a pod of", self._delete(pod, 0))
        await self._try("removing", self.node.retire())
        await self.namespaces.release_all(reactor.seconds() + (0.0 if self._is_given_up() else RELEASE_DEADLINE))
        table = self._around.client.delete(NATTINGTABLES, str(self._lender))
        await self._try("forgetting the namespaces of", table)
        self._log.info("removed the virtual node {node}", node=self.context.node_name)

    def _is_given_up(self) -> bool:
        return self._around.given_up(self._lender)

    def _remaining(self) -> list[HomePod]:
        mapped = self.namespaces.mapped()
        return [pod for pod in self._pods.items() if pod.metadata.namespace in mapped]

    def _left_behind(self) -> bool:
        return not self.namespaces.synced or bool(self.namespaces.mapped())

    async def _delete(self, pod: HomePod, grace: int | None) -> None:
        meta = pod.metadata
        await self._around.client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=grace)

    async def _try(self, what: str, work: Any) -> None:
        try:
            await work
        except (ApiError, KubeError) as error:
            self._log.warn("{what} {node} failed: {error}", what=what, node=self.context.node_name, error=str(error))


def same_kubelet(left: VirtualNode, right: VirtualNode) -> bool:
    """Tell whether a kubelet that runs for one record also serves the other."""
    return left.spec == right.spec


def same_node(left: VirtualNode, right: VirtualNode) -> bool:
    """Tell whether two records stand for the same node of the same lender."""
    return (left.spec.node_name, left.spec.cluster_id) == (right.spec.node_name, right.spec.cluster_id)
