"""Writes the offers of peers to Advertisement records, and sends the verdicts to the peers.

A record is written when the offer differs from the one on record, and otherwise only when the date of its last receipt
is outdated (see ``acceptance_loop``). A validation error and a withdrawal are annotations: the same write stores them
together with the offer, and they survive restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from liqod.acceptance.check import check, check_ttl
from liqod.config.schema import AcceptanceSettings
from liqod.flow.controller import After
from liqod.kube.errors import AlreadyExists, Conflict
from liqod.kube.resources import ADVERTISEMENTS
from liqod.kube.writing.merge_patch import merge_patch
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.object_writer import ObjectWriter
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, advertisement_name
from liqod.model.objects import label_selector
from liqod.model.objects.meta import MAX_MESSAGE, to_dict
from liqod.model.records.offer import RECLAIMED_BY, Offer, Refusal
from liqod.model.records.offer_rules import granted_labels
from liqod.model.records.views import Advertisement, AdvertisementSpec
from liqod.peering.changes import Change, Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.session.peer import Peer, Received
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import Advertise, Verdict

PROBLEM: Final = "sharing.liqo.io/problem"
WITHDRAWN: Final = "sharing.liqo.io/withdrawn"
AGAIN: Final = 0.05
"""Seconds after which a write that failed with a conflict (409) is retried."""
_ANSWERS: Final = ("Accepted", "Refused", "Pending")


@attrs.frozen
class _SentVerdict:
    """The last verdict sent to a peer, and the session it was sent in."""

    through: PeerConnection
    verdict: Verdict


@attrs.define
class _Offer:
    """What is known of a peer's offer: the verdict sent on it, why it was withdrawn (None: it was not, or that is on
    record), and the labels that were left out of it.
    """

    sent: _SentVerdict | None = None
    withdrawn: str | None = None
    left_out: list[str] = attrs.Factory(list)


class Advertisements(PeerController):
    """Stores received offers and answers them."""

    name = "advertisements"
    queue = Queue.ADVERTISEMENT

    def __init__(
        self,
        context: PeeringContext,
        offers: MutationCache[Advertisement],
        leftovers: Leftovers,
        settings: AcceptanceSettings,
    ) -> None:
        super().__init__(context)
        # What the selector names it has to see: "!spot" would hold for any offer without it.
        self._granted = (*settings.labels, *(term.key for term in label_selector.parse(settings.selector)))
        self._offers = offers
        self._objects = ObjectWriter(context.client, ADVERTISEMENTS, Advertisement, offers)
        self._leftovers = leftovers
        self._tracked: dict[ClusterID, _Offer] = {}

    def offer_received(self, peer: Peer, event: Advertise) -> None:
        """Store an offer, unless it is older than the known one by epoch and sequence number."""
        known = peer.received
        if event.epoch != peer.epoch or (known is not None and known.epoch == event.epoch and event.seq < known.seq):
            self._refusals.record("StaleOffer", peer.id, f"offer {event.epoch}/{event.seq} is older than what is known")
            return
        offer, problem = Offer(), ""
        try:
            offer, ttl = self._shown(peer.id, check(event.offer)), check_ttl(event.ttl)
        except Refusal as refusal:
            problem, ttl = refusal.message, 0
            self._refusals.record(refusal.reason, peer.id, refusal.message)
        tracked = self._of(peer.id)
        tracked.sent = None  # every offer is answered, also a renewed one
        if not problem:  # an invalid one replaces none, so that a withdrawal which is not written yet holds
            tracked.withdrawn = None
        peer.received = Received(
            epoch=event.epoch,
            seq=event.seq,
            ttl=ttl,
            offer=offer,
            problem=problem,
            at=self._clock.seconds(),
        )
        self.enqueue(peer.id)

    def _of(self, peer: ClusterID) -> _Offer:
        return self._tracked.setdefault(peer, _Offer())

    def _shown(self, peer: ClusterID, offer: Offer) -> Offer:
        """Return an offer with the labels that virtual nodes may have."""
        labels = granted_labels(offer.labels, self._granted)
        if offer.reclaimed_by is not None:
            labels[RECLAIMED_BY] = offer.labels[RECLAIMED_BY]
        left_out, tracked = sorted(offer.labels.keys() - labels.keys()), self._of(peer)
        if left_out != tracked.left_out:
            tracked.left_out = left_out
            self._log.info(
                "labels of the offer of {peer} that its node gets only if `labels` under [acceptance] names them: "
                "{labels}",
                peer=peer,
                labels=", ".join(left_out) or "none",
            )
        return msgspec.structs.replace(offer, labels=labels)

    def offer_withdrawn(self, peer: Peer, reason: str) -> None:
        """Store that the peer withdrew its offer."""
        peer.received = None
        self._of(peer.id).withdrawn = reason[:256] or "no reason given"
        self.enqueue(peer.id)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._tracked.pop(peer, None)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Write the Advertisement of one peer if it is outdated, and send the verdict."""
        try:
            return await self._process(peer_id)
        except Conflict:
            self.nothing_written(peer_id)
            return After(AGAIN)  # 409: another writer was first, most often the acceptance loop

    async def _process(self, peer_id: ClusterID) -> After | None:
        peer = self._peers.get(peer_id)
        if peer is None:
            return None
        received, tracked = peer.received, self._of(peer_id)
        withdrawn = tracked.withdrawn
        key = Key("", advertisement_name(peer_id))
        record = self._offers.get(key)
        if is_outdated(record, withdrawn, received):
            if (wait := self.begin_write(peer_id)) is not None:
                return wait
            if withdrawn is None and received is not None:
                await self._write(peer_id, key, record, received)
            elif record is not None:
                await self._annotate(record, {WITHDRAWN: withdrawn, PROBLEM: None})
        if withdrawn is not None:
            tracked.withdrawn = None
            if received is not None:
                self.enqueue(peer_id)  # the invalid offer that came after it
        self._changes.notify(Change.OFFER_RECEIVED, peer_id)
        self.send_verdict(peer)
        return None

    async def _write(self, peer: ClusterID, key: Key, record: Advertisement | None, received: Received) -> None:
        spec = AdvertisementSpec(
            cluster_id=peer,
            epoch=received.epoch,
            seq=received.seq,
            time_to_live=received.ttl,
            offer=received.offer,
        )
        if record is None:
            body = {
                "metadata": {
                    "name": key.name,
                    "labels": {REMOTE_CLUSTER_LABEL: peer},
                    "annotations": {PROBLEM: received.problem[:MAX_MESSAGE]} if received.problem else {},
                },
                "spec": to_dict(spec),
            }
            try:
                made = await self._client.create(ADVERTISEMENTS, body, view=Advertisement)
            except AlreadyExists:
                # The watch has not shown it yet; a create cannot update.
                found = await self._client.get(ADVERTISEMENTS, key.name, view=Advertisement)
                self._offers.wrote(key, None, found)
                await self._write(peer, key, found, received)
                return
            self._offers.wrote(key, None, made)
            return
        if not differs(record, received):
            return
        before = to_dict(record.spec)
        after = {**to_dict(spec), **({"decision": before["decision"]} if "decision" in before else {})}
        # All annotations of an object may have 256 KiB together (Kubernetes): a peer's text is cut far below that.
        annotations = {PROBLEM: received.problem[:MAX_MESSAGE] or None, WITHDRAWN: None}
        await self._annotate(record, annotations, merge_patch(before, after))

    async def _annotate(
        self,
        record: Advertisement,
        annotations: Mapping[str, str | None],
        spec: Mapping[str, object] | None = None,
    ) -> None:
        had = record.metadata.annotations
        change = {name: text for name, text in annotations.items() if had.get(name) != text}
        if not change and not spec:
            return
        await self._objects.patch(record, metadata={"annotations": change}, spec=spec)

    def send_verdict(self, peer: Peer) -> None:
        """Send the verdict on the peer's offer, unless it was sent in this session already."""
        received, connection = peer.received, peer.session
        if received is None or connection is None:
            return
        verdict = self._verdict(peer.id, received)
        if verdict is None:
            return
        tracked, sent = self._of(peer.id), _SentVerdict(connection, verdict)
        if tracked.sent != sent and connection.send(verdict):
            tracked.sent = sent

    def _verdict(self, peer: ClusterID, received: Received) -> Verdict | None:
        if received.problem:
            return Verdict(received.epoch, received.seq, "Refused", "InvalidOffer", plain(received.problem))
        record = self._offers.get(Key("", advertisement_name(peer)))
        if record is None or differs(record, received) or record.status.phase not in _ANSWERS:
            return None
        status = record.status
        if status.phase == "Refused" and self._leftovers.of(peer):
            return None  # on Refused the lender revokes our access, which the kubelet needs until the node is drained
        return Verdict(received.epoch, received.seq, status.phase, status.reason, plain(status.message))


def is_sound(record: Advertisement) -> bool:
    """Return whether a valid offer is on record: it stays in force while later ones are invalid."""
    return PROBLEM not in record.metadata.annotations and WITHDRAWN not in record.metadata.annotations


def is_outdated(record: Advertisement | None, withdrawn: str | None, received: Received | None) -> bool:
    """Return whether the record differs from the newest that a peer sent: a withdrawal with its reason, or an offer.

    An offer that is invalid replaces none that is sound.
    """
    if withdrawn is not None:
        annotations = record.metadata.annotations if record is not None else {}
        return record is not None and (annotations.get(WITHDRAWN) != withdrawn or PROBLEM in annotations)
    if received is None or (received.problem and record is not None and is_sound(record)):
        return False
    return record is None or differs(record, received)


def differs(record: Advertisement, received: Received) -> bool:
    """Return whether the record differs from what was received; epoch, sequence number and time do not count."""
    annotations = record.metadata.annotations
    return (
        record.spec.offer != received.offer
        or record.spec.time_to_live != received.ttl
        or annotations.get(PROBLEM, "") != received.problem[:MAX_MESSAGE]
        or WITHDRAWN in annotations
    )
