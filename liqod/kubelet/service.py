"""Runs one virtual kubelet for each VirtualNode record and removes the nodes of deleted records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from attrs import frozen
from twisted.internet.defer import maybeDeferred

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, wall_clock
from liqod.flow.controller import After, Controller, Source, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PERSISTENTVOLUMES,
    PODS,
    VIRTUALNODES,
    Resource,
)
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import READ_AGAIN
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.kubelet.api.nodes import NodeAccess, PodRoute
from liqod.kubelet.api.service import NodeAPI
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.naming import label_value
from liqod.kubelet.common.network import LenderNetworks
from liqod.kubelet.common.readiness import is_back
from liqod.kubelet.common.views import HomePod, Namespace, Node
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.deletion_judge import LossEvidence, why_kept
from liqod.kubelet.namespaces.natting_table import is_of_other_cluster
from liqod.kubelet.namespaces.offloading_status import OffloadingStatusController
from liqod.kubelet.node.idle import Holder, Idle, comes_back, idle, is_whole
from liqod.kubelet.ports import HomeCluster, HomeRecords, Lenders
from liqod.kubelet.reflection.service import VolumeLocations
from liqod.kubelet.reflection.volume_provisioner import LenderStorage, VolumeProvisioner
from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.kubelet.virtual_kubelet import Shared, VirtualKubelet, same_kubelet, same_node
from liqod.kubelet.virtualnode_status import idle_status
from liqod.model.ids import ClusterID, Key, is_dns_label
from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL, REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object, ObjectMeta, label_selector
from liqod.model.records.network import ExportRequests
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode, VirtualNodeSpec
from liqod.model.timestamps import rfc3339

CONCURRENT_STARTS: Final = 8
"""Maximum number of virtual nodes that are started or removed at the same time."""

HELD_INTERVAL: Final = 30.0
"""Seconds between two looks whether the record of a virtual node with pods is still missing."""


@frozen
class LenderTable:
    """The natting table of a lender: it is removed when the lender has no virtual node and gets none."""

    lender: ClusterID

    def __str__(self) -> str:
        return f"the natting table of {self.lender}"


Subject = Key | LenderTable
"""What is reconciled: a virtual node by the key of its record, or of its Node where that is all there is; a table."""


class Kubelets(Controller[Subject]):
    """The virtual kubelets of this daemon."""

    name = "virtual kubelets"
    workers = CONCURRENT_STARTS

    def __init__(
        self,
        *,
        reactor: Reactor,
        home: HomeCluster,
        settings: Settings,
        lenders: Lenders,
        networks: LenderNetworks,
    ) -> None:
        super().__init__(reactor, metrics=home.metrics)
        self._reactor = reactor
        self._home = home
        self._records = records = HomeRecords.watched_by(home.informers)
        self._kubelets: dict[Key, VirtualKubelet] = {}
        self._orphans: dict[Key, VirtualNode] = {}
        self._removed: set[Key] = set()
        self._unsubscribe_deletions: Callable[[], None] = lambda: None
        self._left: set[Key] = set()
        self._home_uid: Latest[str] = Latest("")
        self._add_offloading_status()
        locations = self._add_volumes(settings)
        self.api = self._add_api(settings)
        self._shared = Shared(
            reactor=reactor,
            home=home,
            settings=settings,
            records=records,
            lenders=lenders,
            networks=networks,
            home_api=HomeApi(home.informers, settings.kubernetes.api_server_url, home.client.config.server),
            informers=NamespacedInformers(home.informers),
            home_version=home.client.version.known,
            home_uid=self._home_uid,
            election=WriterElection(),
            export_requests=self.export_requests,
            locations=locations,
        )
        self.counts = self._shared.counts
        self._cache: MutationCache[VirtualNode] = MutationCache(records.virtual_nodes, self.clock)
        self._status: StatusWriter[VirtualNode] = StatusWriter(
            home.client, VIRTUALNODES, VirtualNode, self._cache, versioned=False
        )

    def _add_offloading_status(self) -> None:
        records = self._records
        OffloadingStatusController(
            self.clock,
            self._home.client,
            self._home.cluster_id,
            offloadings=records.offloadings,
            enabled=records.enabled,
            tables=records.tables,
            records=records.virtual_nodes,
            nodes=records.nodes,
            metrics=self._home.metrics,
        ).setServiceParent(self)

    def _add_volumes(self, settings: Settings) -> VolumeLocations | None:
        if not settings.storage.enabled:
            return None
        lenders = _StorageLenders(self, self._records)
        provisioner = VolumeProvisioner(
            self.clock,
            self._home.client,
            self._home.informers,
            settings=settings.storage,
            nodes=self._records.nodes,
            recorder=self._home.recorder,
            lenders=lenders,
            metrics=self._home.metrics,
        )
        provisioner.setServiceParent(self)
        return VolumeLocations(provisioner)

    def _add_api(self, settings: Settings) -> NodeAPI | None:
        if not settings.kubelet.listen:
            return None
        address = settings.kubelet.node_address or self._home.node_address
        api = NodeAPI(self._reactor, self._home.client, self, settings=settings, address=address)
        api.setServiceParent(self)
        return api

    # For other features

    def __len__(self) -> int:
        """Return the number of running virtual kubelets."""
        return len(self._kubelets)

    @property
    def enabled(self) -> Informer[Namespace]:
        """The namespaces with the label liqo.io/enabled=true."""
        return self._records.enabled

    def all(self) -> list[VirtualKubelet]:
        """Return the virtual kubelets that run now."""
        return list(self._kubelets.values())

    def of_lender(self, cluster_id: ClusterID) -> list[VirtualKubelet]:
        """Return the virtual kubelets of a lender that run now: one for each of its virtual nodes."""
        return [kubelet for kubelet in self._kubelets.values() if kubelet.context.lender == cluster_id]

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        """Return the single addresses that a lender's pods must reach, as far as known."""
        kubelets, records = self.of_lender(peer), self._records.virtual_nodes
        if kubelets:
            # The nodes of a lender share its natting table, and each reflects only the namespaces that it offloads.
            found = [requests for kubelet in kubelets for requests in kubelet.reflection.export_requests().items()]
            known = {local for local, requests in found if requests.complete}
            of_api = [kubelet.home_api.export_requests() for kubelet in kubelets if kubelet.home_api is not None]
            complete = all(kubelet.reflection.table_synced for kubelet in kubelets)
            return ExportRequests(
                frozenset().union(*(requests.wanted for requests in (*of_api, *(requests for _, requests in found)))),
                complete
                and all(local in known for local, _ in found)
                and all(requests.complete for requests in of_api),
            )
        is_lender = any(each.spec.cluster_id == peer for each in records.items())
        return ExportRequests(complete=records.synced and not is_lender)

    def route(self, pod: Key) -> PodRoute | None:
        """Return the route to a pod; None if it is on none of our nodes."""
        return next((route for k in self._kubelets.values() if (route := k.route(pod)) is not None), None)

    def pods(self, node: str = "") -> Iterator[HomePod]:
        """Return the pods on a node; empty: on all our nodes."""
        kubelets = (k for k in self._kubelets.values() if not node or k.context.node_name == node)
        return (pod for kubelet in kubelets for pod in kubelet.home_pods())

    def accesses(self) -> list[NodeAccess]:
        """Return the ways to the pods of all virtual nodes."""
        return [kubelet.node_access() for kubelet in self._kubelets.values()]

    def others(self, key: Key, spec: VirtualNodeSpec) -> list[VirtualKubelet | None]:
        """Return the kubelets of the same lender's other virtual nodes; None for a record whose kubelet does not run.

        Those that were drained and leave are not counted.
        """
        running = {
            kubelet.context.node_name: kubelet
            for known, kubelet in self._kubelets.items()
            if known != key and known not in self._left and kubelet.context.lender == spec.cluster_id
        }
        recorded = {
            record.spec.node_name
            for record in self._records.virtual_nodes_of(spec.cluster_id)
            if self._idle(record) is None
        }
        return [running.get(name) for name in (recorded | running.keys()) - {spec.node_name}]

    def leave(self, key: Key, spec: VirtualNodeSpec) -> None:
        """Note that a virtual node was drained and leaves to the others of its lender what they share."""
        self._left.add(key)
        for other in self.others(key, spec):
            if other is not None:
                other.namespaces.refresh()
        self._note_neighbours()

    def _idle(self, record: VirtualNode) -> Idle | None:
        """Return why no kubelet is to run for a record; None: one is."""
        records, spec = self._records, record.spec
        rivals = [one for one in records.virtual_nodes.items() if one.spec.node_name == spec.node_name]
        names = {kubelet.context.node_name: key for key, kubelet in self._kubelets.items()}
        node = records.nodes.get(Key("", spec.node_name))
        lender = "" if node is None else node.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
        return idle(
            record,
            rivals,
            Holder(names.get(spec.node_name), lender),
            peer=records.peers.get(Key("", spec.cluster_id)),
            offer=records.offer_of(ClusterID(spec.cluster_id)),
        )

    def _note_neighbours(self) -> None:
        """Tell each kubelet the lender's other nodes: what is of none of them belongs to each that remains."""
        records = self._records
        if not (records.virtual_nodes.synced and records.nodes.synced):
            return
        known: set[tuple[str, str]] = {
            (record.spec.cluster_id, record.spec.node_name) for record in records.virtual_nodes.items()
        }
        metas = (node.metadata for node in records.nodes.items())
        known |= {(meta.labels.get(REMOTE_CLUSTER_LABEL, ""), meta.name) for meta in metas}
        known |= {
            (kubelet.context.lender, kubelet.context.node_name)
            for key, kubelet in self._kubelets.items()
            if key not in self._left
        }
        for kubelet in self._kubelets.values():
            context = kubelet.context
            names = {name for lender, name in known if lender == context.lender and name != context.node_name}
            context.neighbours.set(frozenset(map(label_value, names)))

    # The controller

    def sources(self) -> Iterable[Source[Subject]]:
        records = self._records
        yield watch(records.virtual_nodes, self._record_changed)
        yield watch(records.peers, self._peer_changed)
        yield watch(records.offers, self._offer_changed)
        yield watch(records.nodes, self._node_changed)
        # Kubelets decide from these caches: workers start only when all sources have synced.
        for informer in (records.tables, records.enabled):
            yield watch(informer, lambda key, old, new: ())

    def _record_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> Iterable[Subject]:
        """Remember a record that goes before its kubelet was started: its node may be left of an earlier run.

        One without a kubelet may have been the last of its lender that kept the natting table.
        """
        if new is None:
            self._cache.forget(key)
        if old is not None and new is None and key not in self._kubelets and is_whole(old):
            known = {orphan.spec.node_name for orphan in self._orphans.values()}
            self._orphans |= {} if old.spec.node_name in known else {key: old}
        specs = [(each.spec, each.metadata.deleting) for each in (old, new) if each is not None]
        if len(specs) == 2 and specs[0] == specs[1]:
            return (key,)
        self._note_neighbours()
        names = {record.spec.node_name for record in (old, new) if record is not None}
        # One that waited for the name may have it now.
        rivals = (each for each in self._records.virtual_nodes.items() if each.spec.node_name in names)
        lenders = {record.spec.cluster_id for record in (old, new) if record is not None}
        return {key, *(each.metadata.key for each in rivals), *(LenderTable(ClusterID(one)) for one in lenders)}

    def _offer_changed(self, key: Key, old: Advertisement | None, new: Advertisement | None) -> Iterable[Subject]:
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return ()
        lender = next(offer.spec.cluster_id for offer in (new, old) if offer is not None)
        return self._keys_of(lender)

    def _keys_of(self, lender: str) -> list[Subject]:
        """Return the keys of a lender's records, and its natting table."""
        records = self._records.virtual_nodes_of(lender)
        return [*(record.metadata.key for record in records), LenderTable(ClusterID(lender))]

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        if old is None or new is None:
            self._note_neighbours()
        return ()

    def _peer_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> Iterable[Subject]:
        """Notify the kubelets of a lender whose session was resumed, so that they probe the API server at once.

        Virtual nodes of users come and go with the peering.
        """
        if old is not None and new is not None and is_back(old.status.phase, new.status.phase):
            for kubelet in self.of_lender(ClusterID(key.name)):
                kubelet.session_resumed()
        states = [(one.metadata.deleting, one.spec.fingerprint) for one in (old, new) if one is not None]
        return () if len(states) == 2 and states[0] == states[1] else self._keys_of(key.name)

    def startService(self) -> None:
        self._unsubscribe_deletions = self._records.virtual_nodes.subscribe_deletions(
            lambda key, old: self._removed.add(key)
        )
        super().startService()

    async def cleanup(self) -> None:
        self._shared.election.close()
        self._unsubscribe_deletions()

    async def prepare(self) -> None:
        client = self._home.client
        await client.version.get()
        system = await client.get(NAMESPACES, "kube-system", view=Namespace)
        self._home_uid.set(system.metadata.uid)
        await self._find_orphans()

    async def _find_orphans(self) -> None:
        """Enqueue our nodes and natting tables whose record was deleted while no daemon ran, to remove them."""
        ours = {TYPE_LABEL: VIRTUAL_NODE_TYPE, MANAGED_BY_LABEL: FIELD_MANAGER}
        nodes = await self._home.client.list(NODES, view=Node, labels=label_selector(ours))
        recorded = (*self._records.virtual_nodes.items(), *self._orphans.values())
        known = {record.spec.node_name for record in recorded}
        for node in nodes.items:
            name, cluster_id = node.metadata.name, node.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
            if name not in known and is_dns_label(cluster_id):
                key = _node_key(name)
                spec = VirtualNodeSpec(cluster_id=cluster_id, node_name=name)
                self._orphans[key] = VirtualNode(metadata=ObjectMeta(name=name), spec=spec)
                self.enqueue(key)
        used = {record.spec.cluster_id for record in (*self._records.virtual_nodes.items(), *self._orphans.values())}
        for table in self._records.tables.items():
            if table.metadata.name not in used:
                self.enqueue(LenderTable(ClusterID(table.metadata.name)))

    async def reconcile(self, key: Subject) -> After | None:
        if isinstance(key, LenderTable):
            await self._remove_table(key.lender)
            return None
        orphan = self._orphans.get(key)
        if orphan is not None:
            return await self._remove_orphan(key, orphan)
        record = self._records.virtual_nodes.get(key)
        if record is not None and record.metadata.deleting:
            self._removed.add(key)
            record = None
        elif record is not None:
            self._removed.discard(key)
        rests = None if record is None else self._idle(record)
        kubelet = self._kubelets.get(key)
        if kubelet is not None:
            return await self._follow_record(key, kubelet, record, rests)
        if record is None:
            if self._records.virtual_nodes.get(key) is None:
                self._removed.discard(key)
            return None
        if rests is not None:
            return await self._rest(record, rests)
        if all(each.context.node_name != record.spec.node_name for each in self._kubelets.values()):
            self._start_kubelet(key, record)
        # Otherwise the node of another record is being removed; this one is enqueued when that is done.
        return None

    async def _remove_table(self, lender: ClusterID) -> None:
        """Remove the natting table of a lender that has no virtual node and gets none, which would go on with it."""
        records = self._records
        recorded = (*records.virtual_nodes.items(), *self._orphans.values())
        if records.tables.get(Key("", lender)) is None or self.of_lender(lender):
            return
        if any(record.spec.cluster_id == lender for record in recorded):
            return
        if not comes_back(records.peers.get(Key("", lender)), records.offer_of(lender)):
            await self._home.client.delete(NATTINGTABLES, lender)

    async def _follow_record(
        self, key: Key, kubelet: VirtualKubelet, record: VirtualNode | None, rests: Idle | None
    ) -> After | None:
        """Keep, restart or remove a running kubelet."""
        if record is not None and rests is None and same_kubelet(kubelet.record, record) and not kubelet.retired:
            return None
        if record is None and key not in self._removed and await self._is_held(key, kubelet.record):
            return After(HELD_INTERVAL)
        if record is None or rests is not None or not same_node(kubelet.record, record):
            await self._retire(key, kubelet)
        else:
            await self._stop_kubelet(key, kubelet)
        return After(0.0)

    async def _rest(self, record: VirtualNode, rests: Idle) -> After | None:
        """Say on a record why it has no kubelet; remove what an earlier one left, if it is to go."""
        key, spec = record.metadata.key, record.spec
        if rests.releases and await self._has_traces(key, spec):
            await self._retire(key, self._start_kubelet(key, record))
            return After(0.0)
        present = self._cache.get(key)
        if present is None:
            return None
        now = rfc3339(wall_clock(self.clock)())
        written = await self._status.write(present, idle_status(present.status, rests.reason, rests.message, now))
        return None if isinstance(written, Written) else After(READ_AGAIN)

    async def _has_traces(self, key: Key, spec: VirtualNodeSpec) -> bool:
        """Return whether a virtual node's Node is there, or its lender's natting table that no other node uses.

        What a cache still shows is asked for: it may have been removed a moment ago, and would be made again.
        """
        node = self._records.nodes.get(Key("", spec.node_name))
        is_ours = node is not None and node.metadata.labels.get(REMOTE_CLUSTER_LABEL) == spec.cluster_id
        if is_ours and await self._exists(NODES, spec.node_name):
            return True
        table = self._records.tables.get(Key("", spec.cluster_id))
        return table is not None and not self.others(key, spec) and await self._exists(NATTINGTABLES, spec.cluster_id)

    async def _exists(self, resource: Resource, name: str) -> bool:
        try:
            await self._home.client.get(resource, name, view=Object)
        except NotFound:
            return False
        return True

    async def _remove_orphan(self, key: Key, orphan: VirtualNode) -> After | None:
        if all(record.spec.node_name != orphan.spec.node_name for record in self._records.virtual_nodes.items()):
            if key not in self._kubelets and key not in self._removed and await self._is_held(key, orphan):
                return After(HELD_INTERVAL)
            # After a failed removal its kubelet still runs and is used for the next attempt.
            if key in self._kubelets or await self._has_traces(key, orphan.spec):
                await self._retire(key, self._kubelets.get(key) or self._start_kubelet(key, orphan))
        del self._orphans[key]
        self.enqueue(LenderTable(ClusterID(orphan.spec.cluster_id)))
        return After(0.0)  # for a record that has the key by now

    async def _is_held(self, key: Key, record: VirtualNode) -> bool:
        """Return whether a virtual node must stay whose record is missing, not deleted (``why_kept``).

        Removing it would delete all that it has at the lender. It goes on with a new record, which peering creates when
        the lender's offer is accepted; deleting that one, or the Node while none runs for it, removes it.
        """
        name = record.spec.node_name
        try:
            await self._home.client.get(NODES, name, view=Node)
        except NotFound:
            return False
        pods = await self._home.client.list(PODS, view=HomePod, fields=f"spec.nodeName={name}")
        volumes = await self._volumes_at(record.spec.cluster_id)
        why = why_kept(len(pods.items), volumes, self._evidence(key, record, pods.resource_version))
        if why:
            self._log.warn(
                "the VirtualNode of {node} is missing, and was not seen to be deleted: nothing is deleted at the "
                "lender ({detail})",
                node=name,
                detail=why,
            )
        return bool(why)

    async def _volumes_at(self, lender: str) -> int:
        """Return the number of volumes whose data is at a lender; 0 without storage."""
        if self._shared.locations is None:
            return 0
        labels = label_selector({MANAGED_BY_LABEL: FIELD_MANAGER, REMOTE_CLUSTER_LABEL: lender})
        return len((await self._home.client.list(PERSISTENTVOLUMES, view=Object, labels=labels)).items)

    def _evidence(self, key: Key, record: VirtualNode, version: str) -> LossEvidence:
        """Return what speaks for lost state of this cluster; ``version`` is that of a list of pods made just now.

        What somebody accepted for the node counts no more; of one whose kubelet runs, its gate knows all.
        """
        kubelet = self._kubelets.get(key)
        if kubelet is not None:
            return kubelet.gate.evidence()
        table = self._records.tables.get(Key("", record.spec.cluster_id))
        client = self._home.client
        went_back = client.went_back.value or int(client.seen.is_before(PODS, version))
        found = LossEvidence(went_back, is_of_other_cluster(table, self._home_uid.value))
        return found.beyond(self._shared.accepted_of(key).value)

    async def _retire(self, key: Key, kubelet: VirtualKubelet) -> None:
        await kubelet.retire()
        await self._stop_kubelet(key, kubelet)

    def _start_kubelet(self, key: Key, record: VirtualNode) -> VirtualKubelet:
        kubelet = self._kubelets[key] = VirtualKubelet(
            self._shared, record, _OtherNodes(self, key, record.spec), self._port(key, record)
        )
        self._note_neighbours()
        kubelet.setServiceParent(self)
        return kubelet

    def _port(self, key: Key, record: VirtualNode) -> Latest[int]:
        """Return the port at which the API of a node is served; 0 before it is bound, and without an API."""
        if self.api is None:
            return Latest(0)
        others = (each for each in self._records.virtual_nodes.items() if each.metadata.key != key)
        taken = {other.status.kubelet_port for other in others}
        return self.api.ports.acquire(key, record.spec.node_name, recorded=record.status.kubelet_port, taken=taken)

    async def _stop_kubelet(self, key: Key, kubelet: VirtualKubelet) -> None:
        self._kubelets.pop(key, None)
        self._left.discard(key)
        self._removed.discard(key)
        await maybeDeferred(kubelet.disownServiceParent)
        if kubelet.running:
            # A parent that is being stopped itself does not stop a service that leaves it (MultiService.removeService).
            await maybeDeferred(kubelet.stopService)
        self._note_neighbours()
        self.enqueue(LenderTable(kubelet.context.lender))
        for record in self._records.virtual_nodes.items():
            if record.metadata.key != key and record.spec.node_name == kubelet.context.node_name:
                self.enqueue(record.metadata.key)
        if self.api is not None:
            await self.api.ports.release(key)


def _node_key(name: str) -> Key:
    """Return the key of a Node without a record; records have a namespace, so that none has the same."""
    return Key("", name)


@frozen
class _OtherNodes:
    """The other virtual nodes of one node's lender (``OtherNodes``)."""

    kubelets: Kubelets
    key: Key
    spec: VirtualNodeSpec

    def exist(self) -> bool:
        return bool(self.kubelets.others(self.key, self.spec))

    def use(self, local: str) -> bool:
        others = self.kubelets.others(self.key, self.spec)
        return any(kubelet is None or kubelet.namespaces.uses(local) for kubelet in others)

    def leave(self) -> None:
        self.kubelets.leave(self.key, self.spec)


@frozen
class _StorageLenders:
    """The lenders, as the volume provisioner uses them (``StorageLenders``)."""

    kubelets: Kubelets
    records: HomeRecords

    @property
    def synced(self) -> bool:
        return self.records.virtual_nodes.synced and self.records.tables.synced

    def storage_of(self, peer: ClusterID) -> LenderStorage | None:
        # Any of the lender's virtual nodes will do: volumes are of the lender, and one that answers is preferred.
        kubelets = sorted(self.kubelets.of_lender(peer), key=lambda kubelet: not kubelet.health.ok)
        if not kubelets:
            return None
        kubelet = kubelets[0]
        client = kubelet.access.client.value if kubelet.health.ok else None
        return LenderStorage(kubelet.context, kubelet.namespaces.mappings(), client, kubelet.gate)

    def is_lender(self, peer: ClusterID) -> bool:
        # The table is kept for the next virtual node while the lender has something of this cluster.
        owes = self.records.tables.get(Key("", peer)) is not None
        return owes or any(each.spec.cluster_id == peer for each in self.records.virtual_nodes.items())

    def storage_classes(self, peer: str) -> list[str]:
        known = self.records.offer_of(ClusterID(peer))
        return [] if known is None else known.spec.offer.storage_classes

    def is_offloaded(self, namespace: str) -> bool:
        return self.records.enabled.get(Key("", namespace)) is not None
