"""ForeignCluster records: creates them on contact, pins keys once, and writes their status.

There is one writer per peer at a time; a status is written when it differs, with the resourceVersion as precondition.
Changes are coalesced for a moment, except where a record must precede a step: a key is recorded before it is trusted,
an offer before it is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs
from twisted.logger import Logger

from liqod.config.schema import PeeringSettings
from liqod.flow.clocks import wall_clock
from liqod.flow.connections.admission import source_of
from liqod.flow.controller import After, soonest
from liqod.flow.observe import Gate
from liqod.identity.fingerprint_words import words
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.object_writer import ObjectWriter
from liqod.kube.writing.refusals import RefusedWrite, Retry
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.host_port import host_of
from liqod.model.ids import ClusterID, Fingerprint, Key, parse_fingerprint
from liqod.model.names import advertisement_name, tenant_namespace
from liqod.model.objects.meta import is_true
from liqod.model.records.unpeering import FINALIZER, PINNED_BY_SETTINGS, is_trust_withdrawn
from liqod.model.records.views import Advertisement, ForeignCluster, ForeignClusterStatus, VirtualNode
from liqod.model.timestamps import rfc3339
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.events import reference, transition
from liqod.peering.records.record_gc import collected_at, is_wanted
from liqod.peering.records.status import MAX_ENDPOINTS, PeerFacts, describe
from liqod.peering.records.stranger_places import StrangerRecord, evicted
from liqod.peering.session.lifecycle import Disconnected, NoRoom, Stranger, Unknown, Withdrawing, ever_connected
from liqod.peering.session.liveness import assess_liveness
from liqod.peering.session.peer import Peer, addresses

COALESCE: Final = 0.05
"""Seconds for which changes of one peer are collected before its status is written."""
STRANGER_WRITE_INTERVAL: Final = 10.0
"""Minimum seconds between two writes about an untrusted peer: dialling fast must not cause writes at the same rate."""
REFUSED_RETRY: Final = 5.0
"""Seconds until a status that the API server refused is written again; a conflict (409) is retried at once."""
NO_ROOM: Final = 60.0
"""Seconds until the creation of a sighted stranger's record is retried when the limit was reached."""


@attrs.frozen(eq=False)
class PendingPin:
    """A key that this daemon is pinning; ``answered`` opens when it is on record or cannot be."""

    key: Fingerprint
    answered: Gate = attrs.field(factory=Gate)


class ForeignClusters(PeerController):
    """The ForeignClusters and their pins: ``pins`` are on record, of ``pinning`` the write is not answered yet."""

    name = "foreignclusters"
    queue = Queue.STATUS

    _log = Logger()

    def __init__(
        self,
        context: PeeringContext,
        *,
        clusters: Informer[ForeignCluster],
        offers: MutationCache[Advertisement],
        nodes: Informer[VirtualNode],
        settings: PeeringSettings,
        directions: DirectionPolicy,
        recorder: Recorder,
    ) -> None:
        super().__init__(context)
        self.clusters = MutationCache(clusters, context.clock)
        self._writer = StatusWriter(context.client, FOREIGNCLUSTERS, ForeignCluster, self.clusters)
        self._objects = ObjectWriter(context.client, FOREIGNCLUSTERS, ForeignCluster, self.clusters)
        self.pins: dict[ClusterID, Fingerprint] = {}
        self.pinning: dict[ClusterID, PendingPin] = {}
        self._offers = offers
        self._nodes = nodes
        self._interval = settings.ping_interval
        self._usages = context.usages
        self._directions = directions
        self._recorder = recorder
        self._max_strangers = settings.max_untrusted
        self._creating: set[ClusterID] = set()

    def get(self, peer: ClusterID) -> ForeignCluster | None:
        """Return the newest known record of a peer."""
        return self.clusters.get(Key("", peer))

    def offer_of(self, peer: ClusterID) -> Advertisement | None:
        """Return the newest known Advertisement of a peer."""
        return self._offers.get(Key("", advertisement_name(peer)))

    def enqueue(self, key: ClusterID, after: float = COALESCE) -> None:
        """Enqueue the status of a peer, by default after its changes were collected for a moment."""
        super().enqueue(key, after)

    def has_room_for(self, peer: ClusterID, network: str) -> bool:
        """Return whether one more untrusted cluster may have a record; records about to be created are counted.

        ``network`` is where it comes from: the record of a stranger from a more crowded one makes way.
        """
        awaited = {other.id for other in self._peers.values() if other.state == Stranger(recorded=False)}
        if self._fits(peer, awaited):
            return True
        return len(awaited) < self._max_strangers and evicted(self._places(), network) is not None

    def _places(self) -> dict[ClusterID, StrangerRecord]:
        """Return the records of strangers that nobody configured."""
        places = {}
        for record in self.clusters.items():
            peer = self._peers.get(ClusterID(record.metadata.name))
            if peer is not None and not is_wanted(record) and not record.metadata.deleting:
                places[peer.id] = StrangerRecord(_network_of(peer), _last_sign(peer))
        return places

    def _fits(self, peer: ClusterID, awaited: Collection[ClusterID]) -> bool:
        recorded = {record.metadata.name for record in self.clusters.items() if not record.spec.fingerprint}
        return len(recorded.union(awaited) - {peer}) < self._max_strangers

    def is_sighted(self, peer: ClusterID) -> bool:
        """Return whether a discovery source shows a cluster."""
        known = self._peers.get(peer)
        return known is not None and bool(known.sightings)

    async def ensure(self, peer: ClusterID, pin: Fingerprint | None, *, by_settings: bool = False) -> ForeignCluster:
        """Return the record of a peer; creates it if missing, and pins the given key if none is pinned.

        ``by_settings``: the settings trust the key, not a user. An existing pin is never replaced, and one that a user
        removed is never set again: check the ``spec.fingerprint`` of the returned record.
        """
        key = Key("", peer)
        while True:
            record = self.clusters.get(key)
            if record is None:
                spec = {"clusterID": peer, "fingerprint": pin} if pin else {"clusterID": peer}
                body = {"metadata": {"name": peer, **(_pin_metadata(by_settings) if pin else {})}, "spec": spec}
                try:
                    made = await self._client.create(FOREIGNCLUSTERS, body, view=ForeignCluster)
                except AlreadyExists:
                    made = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
            elif pin and not record.spec.fingerprint and not is_trust_withdrawn(record):
                metadata = _pin_metadata(by_settings, record.metadata.finalizers)
                try:
                    made = await self._objects.patch(
                        record, metadata=metadata, spec={"clusterID": peer, "fingerprint": pin}
                    )
                except (Conflict, NotFound):
                    # 409: the resourceVersion is outdated; the pin must not be decided on an older state of the spec.
                    made = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
            else:
                return record
            self.clusters.wrote(key, record, made)
            if not pin or made.spec.fingerprint or is_trust_withdrawn(made):
                return made

    async def remove_finalizer(self, record: ForeignCluster) -> bool:
        """Remove the finalizer from the record of an ended peering; returns False when the record has changed since.

        The API server deletes the record with its last finalizer, so the pin is dropped here, before the watch shows
        it: the peer may trust us again and connect with the same key, which must not be answered with Bye(Unpeered).
        """
        try:
            await self._objects.remove_finalizer(record, FINALIZER)
        except Conflict:
            return False
        self.pins.pop(ClusterID(record.metadata.name), None)
        return True

    def next_key(self, peer: ClusterID) -> Fingerprint | None:
        """Return the next key of a peer, announced in a session with the pinned one."""
        record = self.get(peer)
        return record.spec.next_key if record is not None else None

    def successor(self, key: str) -> str:
        """Return the announced successor of a key; the key itself when there is none."""
        for record in self.clusters.items():
            announced = record.spec.announced_key
            if announced is not None and announced.by == key and record.spec.fingerprint == announced.fingerprint:
                return announced.fingerprint
        return key

    async def record_next_key(self, peer: ClusterID, by: Fingerprint, following: str) -> bool:
        """Record the next key of a peer beside the pinned one, an empty key to remove it.

        Returns False when another key is pinned by now. Raises KubeError, including Conflict.
        """
        key = Key("", peer)
        record = self.clusters.get(key)
        if record is None or record.spec.fingerprint != by:
            return False
        if (record.spec.next_key or "") == following:
            return True
        announced = {"fingerprint": following, "by": by} if following else None
        await self._objects.patch(record, spec={"announcedKey": announced})
        return True

    async def promote_next_key(self, peer: ClusterID, following: Fingerprint) -> ForeignCluster | None:
        """Pin the announced key in place of the one that announced it; returns the record after that.

        ``announcedKey`` stays: it was announced by the former key, so that ``next_key`` is None from now on.
        """
        key = Key("", peer)
        record = self.clusters.get(key)
        while record is not None and record.spec.next_key == following:
            try:
                record = await self._objects.patch(record, spec={"fingerprint": following})
            except Conflict:
                record = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
        return record

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Write the status of a peer if it changed; returns when it will change with time, None if it will not."""
        peer = self._peers.get(peer_id)
        if peer is None:
            return None
        if peer.state == Stranger(recorded=False) and (wait := await self._create_for_stranger(peer)) is not None:
            return After(wait)
        again = await self.sync(peer)
        left = await self._collect(peer)
        return soonest(*(After(wait) for wait in (again, left) if wait is not None))

    async def _create_for_stranger(self, peer: Peer) -> float | None:
        """Create the record of a stranger; returns when to retry while the limit is reached and it is in sight."""
        if self.get(peer.id) is None:
            if not self._fits(peer.id, self._creating) and not await self._make_room(_network_of(peer)):
                peer.advance(NoRoom(sighted=bool(peer.sightings)))
                if peer.state == Unknown() and peer.session is None and not peer.sightings:
                    peer.dialer.link.stop()
                    self._peers.pop(peer.id, None)
                return NO_ROOM
            self._creating.add(peer.id)
            try:
                await self.ensure(peer.id, None)
            finally:
                self._creating.discard(peer.id)
        return None

    async def _make_room(self, network: str) -> bool:
        """Delete the record of a stranger from a crowded network; returns False if none makes way."""
        victim = evicted(self._places(), network)
        record = self.get(victim) if victim is not None else None
        if victim is None or record is None:
            return False
        meta = record.metadata
        try:
            await self._client.delete(FOREIGNCLUSTERS, victim, uid=meta.uid, version=meta.resource_version)
        except Conflict:
            return False  # 409: somebody changes it at this moment, perhaps to trust it
        self.clusters.removed(Key("", victim), record)
        self._log.info("{peer}, which nobody trusted, made way for another stranger", peer=victim)
        return True

    async def _collect(self, peer: Peer) -> float | None:
        """Delete the record of a stranger that was not seen for a long time; returns the seconds until that."""
        record = self.get(peer.id)
        if record is None:
            return None
        in_sight = bool(peer.sightings) or peer.session is not None
        moment = collected_at(record, in_sight=in_sight, last=_last_sign(peer))
        if moment is None:
            return None
        if (wait := moment - self._clock.seconds()) > 0:
            return wait
        meta = record.metadata
        try:
            # UID and resourceVersion are preconditions (DeleteOptions): a record that a user edits now is kept.
            await self._client.delete(FOREIGNCLUSTERS, peer.id, uid=meta.uid, version=meta.resource_version)
        except Conflict:
            return 1.0  # 409: somebody changes it at this moment
        self._log.info("{peer}, which nobody trusted, was not seen for long: its record is gone", peer=peer.id)
        return None

    async def sync(self, peer: Peer, *, urgent: bool = False) -> float | None:
        """Write the status of a peer; with ``urgent`` it is on record when this returns, or KubeError is raised."""
        await peer.writing.acquire()
        try:
            return await self._write(peer, urgent=urgent)
        finally:
            peer.writing.release()

    async def _write(self, peer: Peer, *, urgent: bool) -> float | None:
        key = Key("", peer.id)
        record = self.clusters.get(key)
        if record is None:
            if urgent:
                raise NotFound(404, "NotFound", f"there is no ForeignCluster {peer.id} to record an offer in")
            return None
        if record.spec.fingerprint and not record.metadata.deleting and FINALIZER not in record.metadata.finalizers:
            # It delays the deletion until the peering has ended.
            try:
                record = await self._objects.add_finalizer(record, FINALIZER)
            except (Conflict, NotFound):
                if urgent:
                    raise
                return 0.1
        now = self._clock.seconds()
        facts, until = self._facts(peer, record, now)
        status = describe(facts, record.status, rfc3339(wall_clock(self._clock)()))
        again = max(0.1, until - now) if until is not None else None
        if self._writer.patch(record, status) is None:
            return again
        if not urgent and (wait := _begin_write(peer, record, status, now)) > 0:
            return wait
        peer.status_written_at = now
        outcome = await self._writer.write(record, status)
        if isinstance(outcome, RefusedWrite):
            if not urgent:
                # After a conflict (409) the watch is about to show the newer version.
                return 0.1 if outcome.retry is Retry.AT_ONCE else max(REFUSED_RETRY, outcome.retry_after)
            record = await self._client.get(FOREIGNCLUSTERS, peer.id, view=ForeignCluster)
            status = describe(facts, record.status, rfc3339(wall_clock(self._clock)()))
            outcome = await self._writer.write(record, status)
            if isinstance(outcome, RefusedWrite):
                raise Conflict(409, outcome.reason, outcome.message)
        if (event := transition(record.status, status)) is not None:
            self._recorder.record_event(reference(record), *event)
        return again

    def _facts(self, peer: Peer, record: ForeignCluster, now: float) -> tuple[PeerFacts, float | None]:
        offer = self.offer_of(peer.id)
        connected = peer.session is not None
        suspect = isinstance(peer.state, Disconnected) and peer.state.suspect
        view = assess_liveness(
            now,
            connected=connected,
            broken_since=-1e12 if suspect else peer.broken_at,
            interval=self._interval,
            expires=now if offer is not None and offer.status.phase == "Expired" else None,
        )
        directions = self._directions.of(record)
        node = self._nodes.get(Key(tenant_namespace(peer.id), peer.id))
        known = addresses(peer, record)
        by_hand = {endpoint.address for endpoint in record.spec.endpoints}
        usage = self._usages.get(peer.id)
        limited = usage.shown() if usage is not None else None
        facts = PeerFacts(
            name=peer.name,
            seen_fingerprint=peer.seen or "",
            words=_words(peer.seen or record.status.seen_fingerprint),
            sources=tuple(sorted({endpoint.source for endpoint in peer.sightings})),
            endpoints=tuple(endpoint for endpoint in known if endpoint.address not in by_hand)[:MAX_ENDPOINTS],
            connected=connected,
            met=ever_connected(peer.state),
            pinned=bool(record.spec.fingerprint),
            withdrawn=is_trust_withdrawn(record),
            standing=view.standing,
            problem=(peer.problem.reason, peer.problem.sentence) if peer.problem is not None else None,
            problem_about_key=peer.problem is not None and peer.problem.about_key,
            offer=offer.status if offer is not None else None,
            has_node=node is not None,
            node_ready=node is not None and is_ready(node),
            api=node.status.api if node is not None else "",
            lent=peer.lent,
            lends=directions.lends,
            borrows=directions.borrows,
            trouble=peer.lending.trouble,
            ending=peer.state.waiting_for if isinstance(peer.state, Withdrawing) else "",
            knows_key=peer.knows_key,
            protocol=f"1.{peer.session.minor}" if connected and peer.session is not None else "",
            retry_within=peer.dialer.retry_within if not connected else 0,
            limited=None if limited is None else (limited[0], now < limited[1]),
        )
        ends = limited[1] if limited is not None and now < limited[1] else None
        return facts, min((moment for moment in (view.until, ends) if moment is not None), default=None)


def _last_sign(peer: Peer) -> float:
    return max(peer.called_at, peer.sighted_at, peer.broken_at)


def _network_of(peer: Peer) -> str:
    """Return where a stranger comes from: it called from there, or is said to be there."""
    if peer.network is not None:
        return peer.network
    return source_of(host_of(peer.sightings[0].address)) if peer.sightings else "unknown"


def _pin_metadata(by_settings: bool, finalizers: Sequence[str] = ()) -> dict[str, Any]:
    # A list in a merge patch replaces the whole list (RFC 7396): finalizers of others are repeated.
    guards: dict[str, Any] = {"finalizers": [*finalizers, *([] if FINALIZER in finalizers else [FINALIZER])]}
    if by_settings:
        guards["annotations"] = {PINNED_BY_SETTINGS: "true"}
    return guards


def _words(fingerprint: str) -> str:
    """Return the words of a fingerprint; empty for text that is not one."""
    try:
        return words(parse_fingerprint(fingerprint))
    except ValueError:
        return ""


def _begin_write(peer: Peer, record: ForeignCluster, status: ForeignClusterStatus, now: float) -> float:
    """Return the seconds until a status that no step waits for may be written; 0 or less: now, and that is counted."""
    if record.spec.fingerprint:
        if (delay := peer.status_pace.delay(now)) <= 0:
            peer.status_pace.take(now)
        return delay
    # The first key of a stranger is not rate-limited: an administrator waits for it to appear.
    first_key = status.seen_fingerprint and not record.status.seen_fingerprint
    settled = record.status.phase and not first_key and not _ends_trust(record, status)
    return peer.status_written_at + STRANGER_WRITE_INTERVAL - now if settled else 0.0


def _ends_trust(record: ForeignCluster, status: ForeignClusterStatus) -> bool:
    """Return whether a status of a stranger ends trust or lending: such a write is never delayed."""
    was, says = (is_true(one.conditions, "Authenticated") for one in (record.status, status))
    return record.status.lent != status.lent or (was and not says)


def is_ready(node: VirtualNode) -> bool:
    """Return whether the virtual node of the peer is ready."""
    return node.status.phase == "Ready" or is_true(node.status.conditions, "Node")
