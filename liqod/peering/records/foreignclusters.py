"""ForeignCluster records: created on contact, pinned once, and their status kept true.

One writer per peer at a time; a status is written when it differs from what is there, on the condition that nobody else
changed the record meanwhile. Everything that happens is coalesced for a moment, except where a step must not be taken
before it is recorded: a key before it is trusted, an offer before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After, Controller
from liqod.identity.fingerprint_words import words
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import Refusal, Retry
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.ids import ClusterID, Fingerprint, Key, parse_fingerprint
from liqod.model.names import advertisement_name, tenant_namespace
from liqod.model.objects.meta import find_condition
from liqod.model.records.unpeering import FINALIZER, JOINED, is_trust_withdrawn
from liqod.model.records.views import Advertisement, ForeignCluster, ForeignClusterStatus, VirtualNode
from liqod.model.timestamps import rfc3339
from liqod.peering.records.events import reference, transition
from liqod.peering.records.record_gc import collected_at
from liqod.peering.records.status import MAX_ENDPOINTS, Facts, describe
from liqod.peering.session.lifecycle import Disconnected, NoRoom, Stranger, Withdrawing, ever_connected
from liqod.peering.session.liveness import assess_liveness
from liqod.peering.session.peer import Peer, addresses

COALESCE: Final = 0.05
"""Seconds that changes of one peer are collected before its status is written."""
STRANGER: Final = 10.0
"""Seconds between two writes about a peer nobody trusts: it must not be able to make us write as fast as it dials."""
REFUSED: Final = 5.0
"""Seconds until a status that the API server refused is written again, unless it was a lost race."""
NO_ROOM: Final = 60.0
"""Seconds until the record of a sighted stranger is tried again when there was no room for it."""


class ForeignClusters(Controller[ClusterID]):
    """The ForeignClusters, with the pins they hold. ``wants`` returns (lends, borrows) for a record."""

    name = "foreignclusters"
    workers = 4

    _log = Logger()

    def __init__(
        self,
        *,
        client: Client,
        clock: IReactorTime,
        clusters: Informer[ForeignCluster],
        offers: MutationCache[Advertisement],
        nodes: Informer[VirtualNode],
        ping_interval: float,
        wants: Callable[[ForeignCluster | None], tuple[bool, bool]],
        peers: Mapping[ClusterID, Peer],
        recorder: Recorder,
        max_strangers: int,
    ) -> None:
        super().__init__(clock)
        self.clusters = MutationCache(clusters, clock)
        self._writer = StatusWriter(client, FOREIGNCLUSTERS, ForeignCluster, self.clusters)
        self.pins: dict[ClusterID, Fingerprint] = {}
        self._client = client
        self._clock = clock
        self._offers = offers
        self._nodes = nodes
        self._interval = ping_interval
        self._wants = wants
        self._peers = peers
        self._recorder = recorder
        self._max_strangers = max_strangers
        self._creating: set[ClusterID] = set()

    def get(self, peer: ClusterID) -> ForeignCluster | None:
        """Return the newest known record of a peer."""
        return self.clusters.get(Key("", peer))

    def offer_of(self, peer: ClusterID) -> Advertisement | None:
        """Return the newest known Advertisement of a peer."""
        return self._offers.get(Key("", advertisement_name(peer)))

    def enqueue(self, key: ClusterID, after: float = COALESCE) -> None:
        """Have the status of a peer brought up to date, by default after what happens to it was collected."""
        super().enqueue(key, after)

    def has_room_for(self, peer: ClusterID) -> bool:
        """Tell whether one more cluster that nobody trusts may have a record, besides those that are to have one."""
        awaited = {other.id for other in self._peers.values() if other.state == Stranger(recorded=False)}
        return self._fits(peer, awaited)

    def _fits(self, peer: ClusterID, awaited: Collection[ClusterID]) -> bool:
        recorded = {record.metadata.name for record in self.clusters.items() if not record.spec.fingerprint}
        return len(recorded.union(awaited) - {peer}) < self._max_strangers

    def is_sighted(self, peer: ClusterID) -> bool:
        """Tell whether a source shows a cluster."""
        known = self._peers.get(peer)
        return known is not None and bool(known.sightings)

    async def ensure(self, peer: ClusterID, pin: Fingerprint | None, *, joined: bool = False) -> ForeignCluster:
        """Return the record of a peer, made if there is none, with its key pinned if one is given and none was.

        ``joined``: the settings trust the key, not a person. A pin that is there is never replaced, and one that a
        person took away never set again: look at the ``spec.fingerprint`` of the answer.
        """
        key = Key("", peer)
        while True:
            record = self.clusters.get(key)
            if record is None:
                spec = {"clusterID": peer, "fingerprint": pin} if pin else {"clusterID": peer}
                body = {"metadata": {"name": peer, **(_pin_metadata(joined) if pin else {})}, "spec": spec}
                try:
                    made = await self._client.create(FOREIGNCLUSTERS, body, view=ForeignCluster)
                except AlreadyExists:
                    made = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
            elif pin and not record.spec.fingerprint and not is_trust_withdrawn(record):
                patch = {
                    "metadata": {
                        "resourceVersion": record.metadata.resource_version,
                        **_pin_metadata(joined, record.metadata.finalizers),
                    },
                    "spec": {"clusterID": peer, "fingerprint": pin},
                }
                try:
                    made = await self._client.patch(FOREIGNCLUSTERS, peer, patch, view=ForeignCluster)
                except (Conflict, NotFound):
                    self.clusters.forget(key)
                    made = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
            else:
                return record
            self.clusters.wrote(key, record, made)
            if not pin or made.spec.fingerprint or is_trust_withdrawn(made):
                return made

    async def remove_finalizer(self, record: ForeignCluster) -> bool:
        """Take the finalizer off the record of a peering that is over; False when it is not what is known any more.

        With the last finalizer the record is gone, and so is its pin, however late the watch shows it: the peer
        may trust us again meanwhile and come with the same key, which must not be answered with Bye(Unpeered).
        """
        peer, key = ClusterID(record.metadata.name), record.metadata.key
        finalizers = [name for name in record.metadata.finalizers if name != FINALIZER]
        metadata = {"resourceVersion": record.metadata.resource_version, "finalizers": finalizers or None}
        left: ForeignCluster | None
        try:
            left = await self._client.patch(FOREIGNCLUSTERS, peer, {"metadata": metadata}, view=ForeignCluster)
        except Conflict:
            self.clusters.forget(key)
            return False
        except NotFound:
            left = None
        if left is not None and finalizers:
            self.clusters.wrote(key, record, left)
        else:
            self.clusters.removed(key, record)
        self.pins.pop(peer, None)
        return True

    def next_key(self, peer: ClusterID) -> Fingerprint | None:
        """Return the key that a peer announced as its next, in a session of the one that is pinned."""
        record = self.get(peer)
        return record.spec.next_key if record is not None else None

    def successor(self, key: str) -> str:
        """Return the key that took the place of one, as its holder announced; the same when none did."""
        for record in self.clusters.items():
            announced = record.spec.announced_key
            if announced is not None and announced.by == key and record.spec.fingerprint == announced.fingerprint:
                return announced.fingerprint
        return key

    async def record_next_key(self, peer: ClusterID, by: Fingerprint, following: str) -> bool:
        """Keep the next key of a peer beside its present one, nothing to forget it; False when the present one is
        another by now. Raises KubeError, Conflict among them.
        """
        key = Key("", peer)
        record = self.clusters.get(key)
        if record is None or record.spec.fingerprint != by:
            return False
        if (record.spec.next_key or "") == following:
            return True
        announced = {"fingerprint": following, "by": by} if following else None
        await self._change(key, record, {"announcedKey": announced})
        return True

    async def promote_next_key(self, peer: ClusterID, following: Fingerprint) -> ForeignCluster | None:
        """Pin the key that was announced in place of the one that announced it; returns what is on record then."""
        key = Key("", peer)
        record = self.clusters.get(key)
        while record is not None and record.spec.next_key == following:
            try:
                record = await self._change(key, record, {"fingerprint": following})
            except Conflict:
                record = await self._client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
        return record

    async def _change(self, key: Key, record: ForeignCluster, spec: Mapping[str, Any]) -> ForeignCluster:
        patch = {"metadata": {"resourceVersion": record.metadata.resource_version}, "spec": spec}
        try:
            written = await self._client.patch(FOREIGNCLUSTERS, key.name, patch, view=ForeignCluster)
        except (Conflict, NotFound):
            self.clusters.forget(key)
            raise
        self.clusters.wrote(key, record, written)
        return written

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Write the status of a peer if it changed; returns when it changes by itself, None when it does not."""
        seconds = await self._reconcile(peer_id)
        return None if seconds is None else After(seconds)

    async def _reconcile(self, peer_id: ClusterID) -> float | None:
        peer = self._peers.get(peer_id)
        if peer is None:
            return None
        if peer.state == Stranger(recorded=False) and (wait := await self._create_for_stranger(peer)) is not None:
            return wait
        again = await self.sync(peer)
        left = await self._collect(peer)
        return min((wait for wait in (again, left) if wait is not None), default=None)

    async def _create_for_stranger(self, peer: Peer) -> float | None:
        """Make the record of a stranger; returns when to try again while there is no room for one that is in sight."""
        if self.get(peer.id) is None:
            if not self._fits(peer.id, self._creating):
                peer.advance(NoRoom(sighted=bool(peer.sightings)))
                return NO_ROOM
            self._creating.add(peer.id)
            try:
                await self.ensure(peer.id, None)
            finally:
                self._creating.discard(peer.id)
        return None

    async def _collect(self, peer: Peer) -> float | None:
        """Delete the record of a stranger that was not seen for long; returns the seconds until then."""
        record = self.get(peer.id)
        if record is None:
            return None
        in_sight = bool(peer.sightings) or peer.session is not None
        last = max(peer.called_at, peer.sighted_at, peer.broken_at)
        moment = collected_at(record, in_sight=in_sight, last=last)
        if moment is None:
            return None
        if (wait := moment - self._clock.seconds()) > 0:
            return wait
        meta = record.metadata
        try:
            await self._client.delete(FOREIGNCLUSTERS, peer.id, uid=meta.uid, version=meta.resource_version)
        except Conflict:
            return 1.0  # somebody does something with it
        self._log.info("{peer}, which nobody trusted, was not seen for long: its record is gone", peer=peer.id)
        return None

    async def sync(self, peer: Peer, *, urgent: bool = False) -> float | None:
        """As ``process``; with ``urgent`` what is known is on record when this returns, or KubeError is raised."""
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
            guarded = await self._add_finalizer(key, record)
            if guarded is None:
                return 0.1
            record = guarded
        now = self._clock.seconds()
        facts, until = self._facts(peer, record, now)
        status = describe(facts, record.status, rfc3339(wall_clock(self._clock)()))
        again = max(0.1, until - now) if until is not None else None
        if self._writer.patch(record, status) is None:
            return again
        # The first key that a stranger shows is what its administrator waits for: that is not held back.
        first_key = status.seen_fingerprint and not record.status.seen_fingerprint
        throttled = not facts.pinned and record.status.phase and not first_key and not _ends_trust(record, status)
        if throttled and (wait := peer.seen_at + STRANGER - now) > 0:
            return wait
        peer.seen_at = now
        outcome = await self._writer.write(record, status)
        if isinstance(outcome, Refusal):
            if not urgent:
                # After a lost race the watch is about to show what is there now.
                return 0.1 if outcome.retry is Retry.AT_ONCE else max(REFUSED, outcome.retry_after)
            record = await self._client.get(FOREIGNCLUSTERS, peer.id, view=ForeignCluster)
            status = describe(facts, record.status, rfc3339(wall_clock(self._clock)()))
            outcome = await self._writer.write(record, status)
            if isinstance(outcome, Refusal):
                raise Conflict(409, outcome.reason, outcome.message)
        if (event := transition(record.status, status)) is not None:
            self._recorder.emit(reference(record), *event)
        return again

    async def _add_finalizer(self, key: Key, record: ForeignCluster) -> ForeignCluster | None:
        """Have the end of a peering wait until everything made for it is gone; None when the record just changed."""
        finalizers = [*record.metadata.finalizers, FINALIZER]
        patch = {"metadata": {"resourceVersion": record.metadata.resource_version, "finalizers": finalizers}}
        try:
            guarded = await self._client.patch(FOREIGNCLUSTERS, key.name, patch, view=ForeignCluster)
        except (Conflict, NotFound):
            self.clusters.forget(key)
            return None
        self.clusters.wrote(key, record, guarded)
        return guarded

    def _facts(self, peer: Peer, record: ForeignCluster, now: float) -> tuple[Facts, float | None]:
        offer = self.offer_of(peer.id)
        connected = peer.session is not None
        suspect = isinstance(peer.state, Disconnected) and peer.state.suspect
        view = assess_liveness(
            now,
            connected=connected,
            missed=0,
            broken_since=-1e12 if suspect else peer.broken_at,
            interval=self._interval,
            expires=now if offer is not None and offer.status.phase == "Expired" else None,
        )
        lends, borrows = self._wants(record)
        node = self._nodes.get(Key(tenant_namespace(peer.id), peer.id))
        known = addresses(peer, record)
        by_hand = {endpoint.address for endpoint in record.spec.endpoints}
        facts = Facts(
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
            problem=(peer.problem.reason, peer.problem.message) if peer.problem is not None else None,
            problem_about_key=peer.problem is not None and peer.problem.about_key,
            offer=offer.status if offer is not None else None,
            node_ready=node is not None and is_ready(node),
            api=node.status.api if node is not None else "",
            lent=peer.lent,
            lends=lends,
            borrows=borrows,
            trouble=peer.trouble,
            ending=peer.state.waiting_for if isinstance(peer.state, Withdrawing) else "",
            knows_key=peer.knows_key,
            retry_within=peer.dialer.retry_within if not connected else 0,
        )
        return facts, view.until


def _pin_metadata(joined: bool, finalizers: Sequence[str] = ()) -> dict[str, Any]:
    guards: dict[str, Any] = {"finalizers": [*finalizers, *([] if FINALIZER in finalizers else [FINALIZER])]}
    if joined:
        guards["annotations"] = {JOINED: "true"}
    return guards


def _words(fingerprint: str) -> str:
    """Return the words of a key, as this release shows them; of what is no fingerprint, none."""
    try:
        return words(parse_fingerprint(fingerprint))
    except ValueError:
        return ""


def _ends_trust(record: ForeignCluster, status: ForeignClusterStatus) -> bool:
    """Tell whether a status says that trust, or what was lent by it, has ended: that is never held back."""
    condition = find_condition(record.status.conditions, "Authenticated")
    says = find_condition(status.conditions, "Authenticated")
    proven = condition is not None and condition.status == "True"
    return record.status.lent != status.lent or (proven and (says is None or says.status != "True"))


def is_ready(node: VirtualNode) -> bool:
    """Tell whether the virtual node that stands for the peer is ready."""
    condition = find_condition(node.status.conditions, "Node")
    return node.status.phase == "Ready" or (condition is not None and condition.status == "True")
