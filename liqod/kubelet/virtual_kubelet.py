"""Composes one virtual kubelet from its services, for one VirtualNode record.

All its state is in records of the API server: stopping it keeps node, pods and mappings, and another daemon continues
from there. ``retire`` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from attrs import field, frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import PODS
from liqod.kubelet.api.nodes import NodeAccess, PodRoute, is_there
from liqod.kubelet.common.context import ApiServer, Context
from liqod.kubelet.common.egress import Egress, egress_to
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.network import LenderNetwork, LenderNetworks
from liqod.kubelet.common.readiness import Readiness, judge, judge_offer
from liqod.kubelet.common.reflection_counts import ReflectionCounts
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.lender.failover import Failover
from liqod.kubelet.lender.health import REACHABLE_REASONS, LenderHealth
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.deletion_judge import LossEvidence
from liqod.kubelet.namespaces.ports import OtherNodes
from liqod.kubelet.namespaces.state import Offloaded
from liqod.kubelet.node.capacity import limits_readiness, share_of
from liqod.kubelet.node.controller import NodeConfig, NodeController, NodeSources
from liqod.kubelet.node.forge import RENEWED
from liqod.kubelet.node.idle import NAME_TAKEN, is_whole
from liqod.kubelet.node.network_condition import NetworkCondition
from liqod.kubelet.node.toleration_controller import TolerationController
from liqod.kubelet.pods.actions import PodActions
from liqod.kubelet.pods.controller import PodController
from liqod.kubelet.pods.status_pace import StatusBudget
from liqod.kubelet.ports import HomeCluster, HomeRecords, Lenders
from liqod.kubelet.reflection.isolation.controller import HomePolicies
from liqod.kubelet.reflection.lender_classes import LenderClasses
from liqod.kubelet.reflection.named import NamedContents
from liqod.kubelet.reflection.service import Named, Reflection, VolumeLocations
from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.kubelet.retirement import Retirement
from liqod.kubelet.tokens.api_access import HomeApiAccess
from liqod.kubelet.tokens.api_service import PORT as API_PORT
from liqod.kubelet.tokens.api_service import has_streams
from liqod.kubelet.tokens.controller import TokenController
from liqod.kubelet.virtualnode_status import VirtualNodeStatusController
from liqod.model.ids import ClusterID, Key
from liqod.model.names import CONFIRM_ANNOTATION, DELETIONS_HELD, advertisement_name
from liqod.model.objects.meta import find_condition
from liqod.model.records.network import ExportRequests
from liqod.model.records.offer import HomeStreamsGrant, Offer
from liqod.model.records.views import Advertisement, ForeignCluster, OffloadingPatch, VirtualNode, VirtualNodeSpec


@frozen
class Common:
    """What the virtual nodes of one lender have in common.

    ``policies`` and ``settled`` are those of the contexts of all of them; ``export_requests_revision`` changes whenever
    the export requests of any do; ``statuses`` are the bytes of statuses that may still be written for the lender.
    """

    policies: Latest[Mapping[str, bool]] = field(factory=lambda: Latest({}))
    settled: Latest[frozenset[str]] = field(factory=lambda: Latest(frozenset()))
    export_requests_revision: Latest[int] = field(factory=lambda: Latest(0))
    named: NamedContents = field(factory=NamedContents)
    statuses: StatusBudget = field(factory=StatusBudget)


@frozen(kw_only=True)
class Shared:
    """The objects that all virtual kubelets of a daemon share."""

    reactor: Reactor
    home: HomeCluster
    settings: Settings
    records: HomeRecords
    lenders: Lenders
    networks: LenderNetworks
    home_api: HomeApi
    informers: NamespacedInformers
    home_version: Latest[str]
    home_uid: Latest[str]
    """The UID of the namespace kube-system; empty while it is not known."""
    election: WriterElection
    export_requests: Callable[[ClusterID], ExportRequests]
    """The addresses that a lender's pods must reach, by what all of its virtual nodes know."""
    common: dict[ClusterID, Common] = field(factory=dict)
    """One is kept for each lender that there has been."""
    accepted: dict[Key, Latest[LossEvidence]] = field(factory=dict)
    """What somebody confirmed that speaks for lost state of this cluster, by virtual node that there has been."""
    counts: ReflectionCounts = field(factory=ReflectionCounts)
    locations: VolumeLocations | None

    def accepted_of(self, record: Key) -> Latest[LossEvidence]:
        """Return what was confirmed for a virtual node; it outlives the kubelet, as what is counted does."""
        return self.accepted.setdefault(record, Latest(LossEvidence()))


@frozen
class _HomeServices:
    """The services of the home cluster that pods at one lender use."""

    shared: Shared
    network: LenderNetwork
    streams: Latest[HomeStreamsGrant | None]
    api_addresses: Latest[Mapping[str, str]] = field(factory=lambda: Latest({}))

    @property
    def has_api_service(self) -> bool:
        """Whether pods call the home API server by a service at the lender, behind which is the tunnel, or streams."""
        is_led = self.network.is_managed or has_streams(self.streams.value)
        return is_led and has_tokens(self.shared.settings)

    def knows_api_server(self, namespace: str) -> bool:
        return not self.has_api_service or namespace in self.api_addresses.value

    def api_server(self, namespace: str) -> ApiServer | None:
        if not has_tokens(self.shared.settings):
            return None
        address = self.api_addresses.value.get(namespace)
        if address and self.has_api_service:
            return ApiServer((address,), API_PORT)
        return self.shared.home_api.server(self.network.to_lender)

    def follows(self, storage_class: str) -> bool:
        locations = self.shared.locations
        return locations is not None and locations.follows(storage_class)


class VirtualKubelet(MultiService):
    """One virtual node of a lender, and the pods on it."""

    _log = Logger()

    def __init__(self, shared: Shared, record: VirtualNode, others: OtherNodes, api_port: Latest[int]) -> None:
        super().__init__()
        self.record = record
        self._shared = shared
        self._others = others
        self._api_port = api_port
        self._lender = lender = ClusterID(record.spec.cluster_id)
        self._unsubscribe: list[Callable[[], None]] = []
        reactor, home, settings = shared.reactor, shared.home, shared.settings
        self.writes = home.client.counting_writes()
        """The client of the home API server for what is written because of this lender."""
        self._network = shared.networks.to(lender)
        self._common = shared.common.setdefault(lender, Common())
        services = _HomeServices(shared, self._network, shared.lenders.api_streams(lender))
        self.context = _context(shared, record, services, self._common)
        self._home_pods = pods_on(home.client, reactor, record.spec.node_name)
        self._spec: Latest[VirtualNodeSpec] = Latest(record.spec)
        self.retired = False
        """Whether its removal has begun, after which it makes nothing any more: a record that is back has a new one."""
        self._offer: Latest[Offer | None] = Latest(None)
        self._limits: Latest[Readiness | None] = Latest(None)
        self.access = LenderAccess(reactor, home.client, lender, setting=settings.peering.api, relays=shared.lenders)
        self.health = LenderHealth(reactor, self.access.client, settings.kubelet.lease_duration * RENEWED)
        self.failover = Failover(reactor, self.access, self.health.state)
        self.network_condition = NetworkCondition(
            reactor, self._network.status, str(lender), lambda: self._network.is_managed
        )
        self.readiness: Latest[Readiness] = Latest(self._judge())
        held = find_condition(record.status.conditions, DELETIONS_HELD)
        shown = held.reason if held is not None and held.status == "True" else ""
        self.gate = DeletionGate(
            reactor,
            str(lender),
            lambda: self.namespaces.evidence,
            accepted=shared.accepted_of(record.metadata.key),
            shown=shown,
        )
        self.node = self._node_controller()
        self.tolerations = self._toleration_controller()
        self.namespaces = self._namespace_controller()
        self.pods = self._pod_controller()
        # Pods need their namespaces, and a namespace that changed enqueues its pods: the cycle is closed here.
        self.namespaces.pod_queue = self.pods
        self.reflection = self._reflection()
        self.home_api = self._home_api_access() if has_tokens(settings) else None
        self.status = self._status_controller()
        for service in (
            self._home_pods,
            self.access,
            self.health,
            self.failover,
            self.network_condition,
            self.node,
            self.tolerations,
            self.namespaces,
            self.pods,
            self.reflection,
            self.status,
        ):
            service.setServiceParent(self)
        if has_tokens(settings):
            self._token_controller().setServiceParent(self)
        if self.home_api is not None:
            self.home_api.setServiceParent(self)
        if settings.reflection.networkpolicy.workers:
            self._home_policies().setServiceParent(self)

    # Composition

    def _node_controller(self) -> NodeController:
        shared, spec = self._shared, self.record.spec
        config = NodeConfig(
            name=spec.node_name,
            cluster_id=self._lender,
            address=self.context.node_address,
            lease_duration=shared.settings.kubelet.lease_duration,
        )
        sources = NodeSources(
            spec=self._spec,
            readiness=self.readiness,
            offer=self._offer,
            home_version=shared.home_version,
            address_type=shared.home.node_address_type,
            api_port=self._api_port,
            network=self.network_condition.state,
            manages_network=lambda: self._network.is_managed,
            health=self.health.state,
        )
        return NodeController(shared.reactor, self.writes, config, sources, metrics=shared.home.metrics)

    def _toleration_controller(self) -> TolerationController:
        shared = self._shared
        return TolerationController(
            shared.reactor,
            self.writes,
            self.node,
            self._home_pods,
            readiness=self.readiness,
            evict_after=shared.settings.kubelet.evict_after,
            metrics=shared.home.metrics,
        )

    def _namespace_controller(self) -> NamespaceController:
        shared, records = self._shared, self._shared.records
        return NamespaceController(
            shared.reactor,
            self.writes,
            context=self.context,
            enabled=records.enabled,
            offloadings=records.offloadings,
            nodes=records.nodes,
            tables=records.tables,
            pods=self._home_pods,
            grants=shared.lenders,
            others=self._others,
            gate=self.gate,
            home_uid=shared.home_uid,
            metrics=shared.home.metrics,
        )

    def _pod_controller(self) -> PodController:
        shared, settings = self._shared, self._shared.settings.kubelet
        actions = PodActions(
            shared.reactor,
            self.writes,
            context=self.context,
            grants=self.namespaces,
            health=self.health,
            recorder=shared.home.recorder,
            claims_follow=shared.locations is not None,
            counts=shared.counts,
        )
        return PodController(
            shared.reactor,
            self._home_pods,
            actions,
            context=self.context,
            namespaces=self.namespaces,
            health=self.health,
            network_usable=self.network_condition.usable,
            gate=self.gate,
            workers=settings.workers,
            status_delay=settings.status_delay,
            budget=self._common.statuses,
            sends_policies=shared.settings.reflection.networkpolicy.workers > 0,
            awaits_services=True,
            metrics=shared.home.metrics,
        )

    def _reflection(self) -> Reflection:
        shared, records = self._shared, self._shared.records
        named = Named(self._common.named, lambda: [record.spec.node_name for record in self._siblings()])
        return Reflection(
            shared.reactor,
            shared.settings.reflection,
            self.context,
            informers=shared.informers,
            election=shared.election,
            nodes=records.nodes,
            pods=self._home_pods,
            namespaces=self.namespaces,
            health=self.health,
            gate=self.gate,
            recorder=shared.home.recorder,
            classes=LenderClasses(self._lender, records.offers, records.offloadings),
            home=self.writes,
            locations=shared.locations,
            named=named if shared.settings.egress.contents == "named" else None,
            counts=shared.counts,
            metrics=shared.home.metrics,
        )

    def _status_controller(self) -> VirtualNodeStatusController:
        shared = self._shared
        return VirtualNodeStatusController(
            shared.reactor,
            self.writes,
            self.record.metadata.key,
            records=shared.records.virtual_nodes,
            readiness=self.readiness,
            node=self.node.state,
            health=self.health.state,
            api_port=self._api_port,
            access=self.access,
            namespaces=self.namespaces,
            held=self.gate.state,
            limits=self._limits,
            home_api=self._home_api_state(),
            home_services=self._network.home_services,
            metrics=shared.home.metrics,
        )

    def _home_api_access(self) -> HomeApiAccess:
        shared = self._shared
        return HomeApiAccess(
            shared.reactor,
            context=self.context,
            home_api=shared.home_api,
            namespaces=self.namespaces,
            health=self.health,
            metrics=shared.home.metrics,
        )

    def _home_policies(self) -> HomePolicies:
        shared = self._shared
        return HomePolicies(
            shared.reactor,
            context=self.context,
            informers=shared.informers,
            nodes=shared.records.nodes,
            election=shared.election,
            namespaces=self.namespaces,
            health=self.health,
            exported=partial(shared.export_requests, self._lender),
            exports=self._common.export_requests_revision,
            withheld=self.reflection.labels_withheld,
            workers=shared.settings.reflection.networkpolicy.workers,
            metrics=shared.home.metrics,
        )

    def _export_requests_changed(self) -> None:
        self._common.export_requests_revision.set(self._common.export_requests_revision.value + 1)
        self._shared.networks.export_requests_changed()

    def _home_api_state(self) -> Latest[Readiness | None]:
        """Return whether pods at the lender reach the home API server; None where they get no tokens for it."""
        return self.home_api.state if self.home_api is not None else Latest(None)

    def _token_controller(self) -> TokenController:
        shared = self._shared
        return TokenController(
            shared.reactor,
            self.writes,
            context=self.context,
            pods=self._home_pods,
            namespaces=self.namespaces,
            health=self.health,
            recorder=shared.home.recorder,
            workers=shared.settings.reflection.serviceaccount.workers,
            metrics=shared.home.metrics,
        )

    def _judge(self) -> Readiness:
        offer = judge_offer(self._shared.records.offer_of(self._lender))
        return judge(self.access.readiness.value, self.health.state.value, self.network_condition.state.value, offer)

    # For the API of virtual nodes and for volumes

    def route(self, pod: Key) -> PodRoute | None:
        """Return the route to a pod for its log or a shell; None if it is not on this node."""
        known = self._home_pods.get(pod)
        if known is None:
            return None
        state = self.namespaces.state_of(pod.namespace)
        watched = state.remote if isinstance(state, Offloaded) else None
        there = is_there(
            known.metadata.uid,
            watched.pod(pod.name) if watched is not None else None,
            known=watched is not None and watched.synced and watched.live,
        )
        remote = self.namespaces.mappings().get(pod.namespace, "")
        return PodRoute(self.context.node_name, self.access.client.value, remote, known.metadata.uid, there=there)

    def home_pods(self) -> list[HomePod]:
        """Return the pods on the node."""
        return self._home_pods.items()

    def node_access(self) -> NodeAccess:
        """Return the way to the node's pods."""
        return NodeAccess(self.context.node_name, self.access.client.value, self.namespaces.mappings())

    # Start and stop

    def startService(self) -> None:
        self._unsubscribe = [
            self._shared.records.offers.subscribe(self._offer_changed),
            self._shared.records.virtual_nodes.subscribe(self._record_changed),
            self._shared.records.peers.subscribe(self._peer_changed),
            self.access.client.subscribe(self.namespaces.use_client),
            self.access.readiness.subscribe(lambda _: self._refresh()),
            self.access.token_renewals.subscribe(lambda _: self.health.recheck()),
            self.health.state.subscribe(self._health_changed),
            self.network_condition.state.subscribe(lambda _: self._refresh()),
            self.reflection.export_requests_revision.subscribe(lambda _: self._export_requests_changed()),
        ]
        if self.home_api is not None:
            self._unsubscribe.append(self.home_api.exports.subscribe(lambda _: self._export_requests_changed()))
        self._refresh()
        if (record := self._shared.records.virtual_nodes.get(self.record.metadata.key)) is not None:
            self._follow(record)
        self._withhold()
        super().startService()

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self.gate.close()
        return maybeDeferred(super().stopService).addBoth(self._close)

    def _close(self, result: Any) -> Any:
        return Deferred.fromCoroutine(self.access.close()).addBoth(lambda _: result)

    def _refresh(self) -> None:
        """Re-evaluate the node's share of the offer, and its readiness."""
        advertisement = self._shared.records.offer_of(self._lender)
        if advertisement is None:
            self._offer.set(None)
            self.context.offered.set(None)
        else:
            offer, key = advertisement.spec.offer, self.record.metadata.key
            share = share_of(key, offer.resources, self._siblings())
            self.context.offered.set(frozenset(share.resources))
            self._offer.set(msgspec.structs.replace(offer, resources=dict(share.resources)))
            self._limits.set(limits_readiness(share, self._spec.value.limits))
        self.readiness.set(self._judge())

    def _siblings(self) -> list[VirtualNode]:
        """Return the records that have a virtual node of the lender, this one's among them."""
        records = self._shared.records.virtual_nodes_of(self._lender)
        return [record for record in records if is_whole(record) and record.status.reason != NAME_TAKEN]

    def _follow(self, record: VirtualNode) -> None:
        """Apply what a running kubelet follows of its record."""
        self._spec.set(record.spec)
        self.context.patch.set(record.spec.offloading_patch)

    def _withhold(self) -> None:
        """Keep from the lender's objects what any of its virtual nodes does not reflect."""
        patches = [node.spec.offloading_patch for node in self._siblings()]
        self.reflection.withhold(
            frozenset(key for patch in patches for key in patch.labels_not_reflected),
            frozenset(key for patch in patches for key in patch.annotations_not_reflected),
        )

    def _offer_changed(self, key: Key, old: Advertisement | None, new: Advertisement | None) -> None:
        if key.name == advertisement_name(self._lender):
            self._refresh()

    def _record_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> None:
        if key == self.record.metadata.key and new is not None:
            self.gate.confirm(new.metadata.annotations.get(CONFIRM_ANNOTATION, ""))
            self._follow(new)
        # Every node's status changes often, and only this of it counts.
        states = [(one.spec, one.status.reason == NAME_TAKEN) for one in (old, new) if one is not None]
        is_of_lender = any(spec.cluster_id == str(self._lender) for spec, _ in states)
        if is_of_lender and (len(states) < 2 or states[0] != states[1]):
            self._refresh()
            self._withhold()

    def _peer_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        # What the labels of a record that is gone allowed stays as it is: the peering ends.
        if key.name == self._lender and new is not None:
            self.context.egress.set(_egress(self._shared, new))

    def _health_changed(self, health: Readiness) -> None:
        self._refresh()
        if health.ready or health.reason in REACHABLE_REASONS:
            self._shared.lenders.peer_answered(self._lender)

    def session_resumed(self) -> None:
        """Retry at once what failed without a session: it was resumed."""
        self.health.session_resumed()
        self.namespaces.session_resumed()

    async def retire(self) -> None:
        """Drain the node and remove it (``Retirement``); raises KubeError if a part of it could not be removed."""
        shared, self.retired = self._shared, True
        retirement = Retirement(
            shared.reactor,
            self.writes,
            shared.records,
            lender=self._lender,
            node=self.node,
            namespaces=self.namespaces,
            others=self._others,
            pods=self._home_pods,
        )
        await retirement.run()


def pods_on(home: Client, clock: IReactorTime, node: str) -> Informer[HomePod]:
    """Return a new cache of the pods on a node of the home cluster."""
    return Informer(home, PODS, HomePod, clock, fields=f"spec.nodeName={node}")


def has_tokens(settings: Settings) -> bool:
    """Return whether offloaded pods get tokens for the home API server."""
    return settings.kubelet.enable_apiserver_support and settings.reflection.serviceaccount.workers > 0


def _egress(shared: Shared, peer: ForeignCluster) -> Egress:
    """Return what may leave home for a peer."""
    return egress_to(peer.metadata.name, peer.metadata.labels, shared.settings.egress)


def _context(shared: Shared, record: VirtualNode, services: _HomeServices, common: Common) -> Context:
    patch, reflection = record.spec.offloading_patch, shared.settings.reflection
    lender = ClusterID(record.spec.cluster_id)
    peer = shared.records.peers.get(Key("", lender))
    return Context(
        home=shared.home.cluster_id,
        lender=lender,
        node_name=record.spec.node_name,
        node_address=shared.settings.kubelet.node_address or shared.home.node_address,
        domain=shared.settings.cluster.domain,
        labels_not_reflected=frozenset((*patch.labels_not_reflected, *reflection.skip_labels)),
        annotations_not_reflected=frozenset((*patch.annotations_not_reflected, *reflection.skip_annotations)),
        patch=Latest(patch),
        policies=common.policies,
        settled=common.settled,
        egress=Latest(egress_to(lender, {}, shared.settings.egress) if peer is None else _egress(shared, peer)),
        network=services.network,
        services=services,
    )


def same_kubelet(left: VirtualNode, right: VirtualNode) -> bool:
    """Return whether a kubelet that runs for one record also serves the other."""
    return _fixed(left.spec) == _fixed(right.spec)


def _fixed(spec: VirtualNodeSpec) -> VirtualNodeSpec:
    """Return the part of a spec that a running kubelet does not follow: node, lender, and what it withholds."""
    patch = spec.offloading_patch
    metadata = OffloadingPatch(
        labels_not_reflected=patch.labels_not_reflected, annotations_not_reflected=patch.annotations_not_reflected
    )
    return VirtualNodeSpec(cluster_id=spec.cluster_id, node_name=spec.node_name, offloading_patch=metadata)


def same_node(left: VirtualNode, right: VirtualNode) -> bool:
    """Return whether two records describe the same node of the same lender."""
    return (left.spec.node_name, left.spec.cluster_id) == (right.spec.node_name, right.spec.cluster_id)
