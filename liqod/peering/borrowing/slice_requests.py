"""Asks lenders for the ResourceSlices of this cluster, writes what they decide, and makes the virtual node of each.

A request is sent in each session, once for each change of the record, and decided on by the lender. A record that is
deleted stays until its node is drained and the lender has the amount back; nothing of other slices is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from liqod.flow.controller import After, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from liqod.kube.resources import RESOURCESLICES, VIRTUALNODES
from liqod.kube.writing.merge_patch import merge_patch
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.object_writer import ObjectWriter
from liqod.kube.writing.status_writer import StatusWriter, Written, require
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import to_dict
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod, pod_requests
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import (
    Advertisement,
    ForeignCluster,
    ResourceSlice,
    ResourceSliceStatus,
    VirtualNode,
)
from liqod.peering.borrowing import slice_plan
from liqod.peering.borrowing.slice_plan import FINALIZER, SLICE_LABEL, SliceFacts
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import AskSlice, RemoveSlice, SliceDecided

AGAIN: Final = 1.0
"""Seconds after which what could not be sent or written is tried again."""
LOOK_AGAIN: Final = 30.0
"""Seconds after which a change that was refused for the pods on the node is examined again."""


@attrs.define
class _Lender:
    """What was sent to one lender in a session, and what it decided last, by the name of the slice.

    ``refused``: why this cluster does not take a slice's virtual node, with the generation that says so, by its key.
    """

    through: PeerConnection | None = None
    sent: dict[str, AskSlice | RemoveSlice] = attrs.Factory(dict)
    decided: dict[str, SliceDecided] = attrs.Factory(dict)
    refused: dict[Key, tuple[int, str]] = attrs.Factory(dict)


class SliceRequests(PeerController):
    """The borrower's side of slices; reconciles all slices of one lender."""

    name = "slice requests"
    queue = Queue.SLICE_REQUESTS

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        slices: Informer[ResourceSlice],
        virtual_nodes: Informer[VirtualNode],
        nodes: Informer[Node],
        pods: Informer[Pod],
    ) -> None:
        super().__init__(context)
        self._records = records
        self._slices = MutationCache(slices, context.clock)
        self._objects = ObjectWriter(context.client, RESOURCESLICES, ResourceSlice, self._slices)
        self._statuses = StatusWriter(context.client, RESOURCESLICES, ResourceSlice, self._slices)
        self._virtual_nodes = MutationCache(virtual_nodes, context.clock)
        self._node_objects = ObjectWriter(context.client, VIRTUALNODES, VirtualNode, self._virtual_nodes)
        self._nodes = nodes
        self._pods = pods
        self._lenders: dict[ClusterID, _Lender] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of peers, and those of slices, their nodes, and the records of peers that go."""
        yield from super().sources()
        yield watch(self._slices.informer, self._slice_changed)
        yield watch(self._virtual_nodes.informer, self._virtual_node_changed)
        yield watch(self._nodes, self._node_changed)
        yield watch(self._records.clusters.informer, self._cluster_changed)

    def _slice_changed(self, key: Key, old: ResourceSlice | None, new: ResourceSlice | None) -> Iterable[ClusterID]:
        if new is None:
            self._slices.forget(key)
        lenders = {slice_plan.lender_of(one) for one in (old, new) if one is not None}
        return [lender for lender in lenders if lender is not None]

    def _virtual_node_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> Iterable[ClusterID]:
        if new is None:
            self._virtual_nodes.forget(key)
        states = [(one.spec, one.metadata.labels) for one in (old, new) if one is not None]
        if len(states) == 2 and states[0] == states[1]:
            return ()
        return {ClusterID(spec.cluster_id) for spec, labels in states if SLICE_LABEL in labels}

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[ClusterID]:
        if new is not None or old is None or not old.virtual:
            return ()
        return (ClusterID(old.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")),)

    def _cluster_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> Iterable[ClusterID]:
        return (ClusterID(key.name),) if new is None else ()

    def decision_received(self, peer: Peer, event: SliceDecided) -> None:
        """Take in a lender's decision; one about a slice that there is not changes nothing."""
        if any(one.metadata.name == event.name for one in self._of(peer.id)):
            self._lenders.setdefault(peer.id, _Lender()).decided[event.name] = event
            self.enqueue(peer.id)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._lenders.pop(peer, None)

    def _of(self, peer: ClusterID) -> list[ResourceSlice]:
        """Return the slices of a lender, the oldest first."""
        found = [one for one in self._slices.items() if one.spec.provider_cluster_id == peer]
        return sorted(found, key=slice_plan.age)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Ask for the slices of one lender, write their statuses and nodes, and remove those that are deleted."""
        slices = self._of(peer_id)
        if not slices:
            self._lenders.pop(peer_id, None)
            return None
        lender, peer = self._lenders.setdefault(peer_id, _Lender()), self._peers.get(peer_id)
        connection = peer.session if peer is not None else None
        if lender.through is not connection:
            lender.through, lender.sent = connection, {}
        try:
            return await self._reconcile(peer_id, lender, slices)
        except (Conflict, NotFound):
            return After(AGAIN)  # changed or removed meanwhile; the watch is about to show it

    async def _reconcile(self, peer_id: ClusterID, lender: _Lender, slices: Sequence[ResourceSlice]) -> After | None:
        offer = self._records.offer_of(peer_id)
        waits: list[float] = []
        planned: list[tuple[ResourceSlice, ResourceSliceStatus]] = []
        for record in slices:
            if record.metadata.deleting:
                continue
            facts = self._facts(await self._kept(record), slices, offer, lender)
            if not self._ask(facts, lender):
                waits.append(AGAIN)
            status = slice_plan.status_of(facts)
            if status.reason == "InUse":
                waits.append(LOOK_AGAIN)
            planned.append((facts.record, status))
        if any(self._statuses.patch(record, status) is not None for record, status in planned):
            # A lender may decide again at any rate.
            wait = self.begin_write(peer_id)
            if wait is not None:
                return wait
        for record, status in planned:
            result = await self._statuses.write(record, status)
            require(result)
            if isinstance(result, Written) and offer is not None:
                await self._show_or_refuse(result.object, offer, lender)
        for record in slices:
            if record.metadata.deleting and FINALIZER in record.metadata.finalizers:
                done = await self._remove(peer_id, record, slices, lender)
                waits += [] if done else [LOOK_AGAIN]
        return After(min(waits)) if waits else None

    async def _kept(self, record: ResourceSlice) -> ResourceSlice:
        """Return a record with the finalizer: without it the lender would not get back what it grants."""
        if FINALIZER in record.metadata.finalizers:
            return record
        return await self._objects.add_finalizer(record, FINALIZER)

    def _facts(
        self, record: ResourceSlice, slices: Sequence[ResourceSlice], offer: Advertisement | None, lender: _Lender
    ) -> SliceFacts:
        meta, status = record.metadata, record.status
        generation, message = lender.refused.get(meta.key, (0, ""))
        shrinks = bool(status.resources) and (meta.generation != status.observed_generation or status.reason == "InUse")
        return SliceFacts(
            record=record,
            siblings=slices,
            offer=offer,
            speaks=None if lender.through is None else lender.through.minor >= AskSlice.since,
            decided=lender.decided.get(meta.name),
            running=self._running(slice_plan.node_name(record)) if shrinks else None,
            node=self._virtual_nodes.get(meta.key),
            refused=message if generation == meta.generation else "",
        )

    def _running(self, node: str) -> Resources | None:
        """Return what the pods on a node request; None while that is not known."""
        if not node:
            return {}
        if not self._pods.synced:
            return None
        try:
            return quantity.add(pod_requests(pod.spec) for pod in self._pods.items() if pod.spec.node_name == node)
        except ValueError:
            return None

    def _ask(self, facts: SliceFacts, lender: _Lender) -> bool:
        """Send a request once in a session; return False where it must be tried again."""
        name, wanted = facts.record.metadata.name, slice_plan.ask(facts)
        if wanted is None:
            if not slice_plan.is_accepted(facts.offer):
                lender.sent.pop(name, None)  # with the offer the lender dropped its slices
            return True
        return lender.sent.get(name) == wanted or self._send(wanted, lender)

    def _send(self, event: AskSlice | RemoveSlice, lender: _Lender) -> bool:
        connection = lender.through
        if connection is None or not connection.writable or not connection.send(event):
            return False
        lender.sent[event.name] = event
        return True

    async def _show_or_refuse(self, record: ResourceSlice, offer: Advertisement, lender: _Lender) -> None:
        """Show a slice by its virtual node; what the API server refuses is about this slice alone, and stays so."""
        key, generation = record.metadata.key, record.metadata.generation
        if lender.refused.get(key, (0, ""))[0] == generation:
            return
        try:
            await self._show(record, record.status, offer)
        except Invalid as error:
            lender.refused[key] = generation, error.message[:900]
            self.enqueue(ClusterID(record.spec.provider_cluster_id))
        else:
            lender.refused.pop(key, None)

    async def _show(self, record: ResourceSlice, status: ResourceSliceStatus, offer: Advertisement) -> None:
        """Make, change or remove the VirtualNode of a slice."""
        spec = slice_plan.node_spec(record, status, offer.spec.offer.resources)
        key = record.metadata.key
        node = self._virtual_nodes.get(key)
        if node is not None and (node.metadata.deleting or not slice_plan.is_own(node, record)):
            return
        if spec is None:
            if node is not None:
                await self._client.delete(VIRTUALNODES, key.name, key.namespace, uid=node.metadata.uid)
        elif node is None:
            # A slice that has nothing yet needs no node.
            if status.resources:
                await self._make(record, to_dict(spec))
        elif change := merge_patch(to_dict(node.spec), to_dict(spec)):
            await self._node_objects.patch(node, spec=change)

    async def _make(self, record: ResourceSlice, spec: dict[str, object]) -> None:
        key = record.metadata.key
        metadata = {"name": key.name, "namespace": key.namespace, "labels": slice_plan.node_labels(record)}
        try:
            made = await self._client.create(
                VIRTUALNODES, {"metadata": metadata, "spec": spec}, key.namespace, view=VirtualNode
            )
        except AlreadyExists:
            return  # the watch is about to show whose it is
        self._virtual_nodes.wrote(key, None, made)

    async def _remove(
        self, peer_id: ClusterID, record: ResourceSlice, slices: Sequence[ResourceSlice], lender: _Lender
    ) -> bool:
        """Take the next step of a removal; return whether it is done."""
        key = record.metadata.key
        node = self._virtual_nodes.get(key)
        if node is not None and slice_plan.is_own(node, record):
            if not node.metadata.deleting:
                await self._client.delete(VIRTUALNODES, key.name, key.namespace, uid=node.metadata.uid)
            await self._write_removing(record, "Draining", "its virtual node is being removed, with the pods on it")
            return False
        if self._has_node(peer_id, record):
            await self._write_removing(record, "Draining", "its virtual node is being drained")
            return False
        if self._is_owed(peer_id, record, slices, lender):
            event = RemoveSlice(key.name, record.metadata.generation)
            if lender.sent.get(key.name) != event:
                lender.decided.pop(key.name, None)
                self._send(event, lender)
            await self._write_removing(record, "WaitingForLender", "the lender has not confirmed yet that it is back")
            return False
        await self._objects.remove_finalizer(record, FINALIZER)
        lender.sent.pop(key.name, None)
        lender.decided.pop(key.name, None)
        lender.refused.pop(key, None)
        # One of the same name in another namespace, which waited, is asked for now.
        self.enqueue(peer_id)
        return True

    async def _write_removing(self, record: ResourceSlice, reason: str, message: str) -> None:
        require(await self._statuses.write(record, slice_plan.removing(record, reason, message)))

    def _has_node(self, peer_id: ClusterID, record: ResourceSlice) -> bool:
        """Return whether the Node of a slice is there whose VirtualNode is gone; the kubelet drains it."""
        name = slice_plan.node_name(record)
        node = self._nodes.get(Key("", name)) if name else None
        if node is None or node.metadata.labels.get(REMOTE_CLUSTER_LABEL) != peer_id:
            return False
        return all(one.spec.node_name != name for one in self._virtual_nodes.items())

    def _is_owed(
        self, peer_id: ClusterID, record: ResourceSlice, slices: Sequence[ResourceSlice], lender: _Lender
    ) -> bool:
        """Return whether the lender has to confirm that a slice is back, and has not done so yet."""
        name, status = record.metadata.name, record.status
        first = next(one for one in slices if one.metadata.name == name)
        offer = self._records.offer_of(peer_id)
        if first.metadata.key != record.metadata.key or self._records.get(peer_id) is None:
            return False
        if offer is not None and offer.has_ended:
            return False  # the lender dropped its slices with the offer
        if lender.through is not None and lender.through.minor < RemoveSlice.since:
            return False
        decided = lender.decided.get(name)
        if decided is not None and decided.decision == "Removed" and isinstance(lender.sent.get(name), RemoveSlice):
            return False
        # What was refused here was never asked for; what the lender refused it may still grant.
        return bool(status.resources) or status.reason not in slice_plan.LOCAL or name in lender.sent
