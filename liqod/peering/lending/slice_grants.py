"""Answers borrowers that ask for slices: decides, records, and then says so.

What was asked is kept while the peer is known, and decided on again with every change of its offer: a slice for which
there was no room is granted once there is. A grant is on record before it is said, as an offer is.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.config.schema import SharingSettings
from liqod.flow.controller import After
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity
from liqod.model.records.views import MAX_SLICES, ForeignCluster, Lent, LentSlice
from liqod.peering.changes import Change, Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.lending import advert
from liqod.peering.lending.slice_decider import SliceAsk, SlicePolicy, SliceRuling, settle
from liqod.peering.ports import Tenants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import AskSlice, RemoveSlice, SliceDecided

UNWRITABLE: Final = 1.0
"""Seconds until an answer is sent again to a peer that does not read."""


@attrs.define
class _Borrower:
    """What one borrower asked for and gave back, by name, and what it was answered in a session."""

    asked: dict[str, SliceAsk] = attrs.Factory(dict)
    given_back: dict[str, int] = attrs.Factory(dict)
    through: PeerConnection | None = None
    answered: dict[str, SliceDecided] = attrs.Factory(dict)


class SliceGrants(PeerController):
    """The lender's side of slices."""

    name = "slice grants"
    queue = Queue.SLICE_GRANTS

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        sharing: SharingSettings,
        tenants: Tenants,
        directions: DirectionPolicy,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._sharing = sharing
        self._limits = quantity.parse_all(sharing.limits)
        self._classes = {name: quantity.parse_all(most) for name, most in sharing.slice_classes.items()}
        self._tenants = tenants
        self._directions = directions
        self._borrowers: dict[ClusterID, _Borrower] = {}

    def request_received(self, peer: Peer, connection: PeerConnection, event: AskSlice | RemoveSlice) -> None:
        """Take in what a borrower asks for or gives back; more names than it may have are refused at once."""
        borrower = self._borrowers.setdefault(peer.id, _Borrower())
        known = {*borrower.asked, *borrower.given_back, *(one.name for one in peer.lending.slices)}
        if event.name not in known and len(known) >= MAX_SLICES:
            message = f"a borrower may have {MAX_SLICES} slices"
            self._refusals.record("TooManySlices", peer.id, message)
            refused = SliceDecided(event.name, event.revision, "Refused", {}, "TooManySlices", message)
            gone = SliceDecided(event.name, event.revision, "Removed")
            connection.send(refused if isinstance(event, AskSlice) else gone)
            return
        # Also what is the same as before is answered: the borrower may have lost the answer.
        borrower.answered.pop(event.name, None)
        if isinstance(event, AskSlice):
            borrower.given_back.pop(event.name, None)
            borrower.asked[event.name] = SliceAsk(event.name, event.slice_class, event.resources, event.revision)
        else:
            borrower.asked.pop(event.name, None)
            borrower.given_back[event.name] = event.revision
        self.enqueue(peer.id)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._borrowers.pop(peer, None)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Decide on the slices of one borrower, record what changed, and answer."""
        peer, record = self._peers.get(peer_id), self._records.get(peer_id)
        if peer is None or record is None or peer.session is None or peer.session.minor < AskSlice.since:
            return None
        borrower = self._borrowers.setdefault(peer_id, _Borrower())
        if borrower.through is not peer.session:
            borrower.through, borrower.answered = peer.session, {}
        given_back = dict(borrower.given_back)
        slices = [one for one in peer.lending.slices if one.name not in given_back]
        rulings: dict[str, tuple[int, SliceRuling]] = {}
        # What is asked before the offer was accepted waits for that; it is decided on with the verdict.
        if (lent := peer.lent) is not None and self._lends(record, lent):
            settlement = settle(slices, list(borrower.asked.values()), self._policy(peer, record, lent))
            slices, rulings = list(settlement.slices), dict(settlement.rulings)
        if slices != list(peer.lending.slices):
            if (wait := self.begin_write(peer_id)) is not None:
                return wait
            await self._record(peer, slices)
            if list(peer.lending.slices) != slices:
                return After(0.0)  # the offer was refused or withdrawn meanwhile, and the slices with it
        for name, revision in given_back.items():
            if borrower.given_back.get(name) == revision:
                self._answer(peer, borrower, SliceDecided(name, revision, "Removed"))
        for name, (revision, ruling) in rulings.items():
            resources = quantity.render_all(ruling.resources)
            event = SliceDecided(name, revision, ruling.decision, resources, ruling.reason, ruling.message)
            self._answer(peer, borrower, event)
        unsaid = bool(borrower.given_back) or any(name not in borrower.answered for name in rulings)
        return After(UNWRITABLE) if unsaid else None

    async def _record(self, peer: Peer, slices: list[LentSlice]) -> None:
        before = list(peer.lending.slices)
        peer.lending = peer.lending.sliced(slices)
        try:
            await self._records.sync(peer, urgent=True)
        except Exception:
            self.nothing_written(peer.id)
            if list(peer.lending.slices) == slices:
                peer.lending = peer.lending.sliced(before)
            raise
        self._log.info(
            "slices of {peer}: {slices}", peer=peer.id, slices=", ".join(one.name for one in slices) or "none"
        )
        for other in list(self._peers):
            # What one borrower has in slices is free for no other.
            self._changes.notify(Change.SLICES_CHANGED, other)

    def _lends(self, record: ForeignCluster, lent: Lent) -> bool:
        return lent.verdict == "Accepted" and self._directions.of(record).lends

    def _policy(self, peer: Peer, record: ForeignCluster, lent: Lent) -> SlicePolicy:
        own = record.spec.sharing
        _, limits = advert.terms(self._sharing.percentage, self._limits, own.percentage, own.limits)
        try:
            offered = quantity.parse_all(lent.resources)
        except ValueError:
            offered = {}
        return SlicePolicy(classes=self._classes, offered=offered, used=self._tenants.used_by(peer.id), limits=limits)

    def _answer(self, peer: Peer, borrower: _Borrower, event: SliceDecided) -> None:
        """Send a decision, once in each session."""
        connection = peer.session
        if connection is None or connection is not borrower.through or not connection.writable:
            return
        if borrower.answered.get(event.name) == event or not connection.send(event):
            return
        if event.decision == "Removed":
            borrower.given_back.pop(event.name, None)
            borrower.answered.pop(event.name, None)
        else:
            borrower.answered[event.name] = event
