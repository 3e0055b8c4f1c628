"""Validates announced next keys of peers, records them beside the pinned ones, and acknowledges them."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.flow.controller import After
from liqod.identity.rotation import fingerprint_of, is_proven
from liqod.identity.tls import NEW_KEY, PeerTLS
from liqod.kube.errors import Conflict, NotFound
from liqod.model.ids import ClusterID, Fingerprint
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import KeyNoted, NewKey

PACE: Final = 10.0
"""Minimum seconds between two writes about the next key of one peer: fast announcements must not cause as many writes.
"""


@attrs.frozen
class _Announced:
    connection: PeerConnection
    by: Fingerprint
    public_key: str
    following: str


@attrs.define
class _Peer:
    """The announcement of a peer that is not on record yet, and when one was last put there."""

    announced: _Announced | None = None
    written_at: float = float("-inf")


class NextKeys(PeerController):
    """Records announced keys; only the newest announcement of each peer is kept."""

    name = "new keys"

    def __init__(self, context: PeeringContext, tls: PeerTLS, records: ForeignClusters) -> None:
        super().__init__(context)
        self._tls = tls
        self._records = records
        self._tracked: dict[ClusterID, _Peer] = {}

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._tracked.pop(peer, None)

    def announcement_received(self, peer: Peer, connection: PeerConnection, event: NewKey) -> None:
        """Take in an announcement; an invalid one is rejected at once."""
        certificate = connection.certificate
        if certificate is None or self._records.pins.get(peer.id) != certificate.fingerprint:
            return  # this session is about to end
        following, wrong = "", None
        if event.public_key:
            following, wrong = self._examine(peer.id, certificate.fingerprint, connection, event)
        if wrong is not None:
            self._refusals.record(wrong[0], peer.id, wrong[1])
            connection.send(KeyNoted(event.public_key, *wrong))
            return
        tracked = self._tracked.setdefault(peer.id, _Peer())
        tracked.announced = _Announced(connection, certificate.fingerprint, event.public_key, following)
        self.enqueue(peer.id, max(0.0, tracked.written_at + PACE - self._clock.seconds()))

    def _examine(
        self, peer: ClusterID, by: Fingerprint, connection: PeerConnection, event: NewKey
    ) -> tuple[str, tuple[str, str] | None]:
        """Return the key's fingerprint, and a reason and message when it cannot be the peer's next key."""
        if not is_proven(event.public_key, event.proof, peer, by, connection.binding(NEW_KEY)):
            return "", ("KeyNotProven", "the announced key did not sign for this session: announce it again")
        following = fingerprint_of(event.public_key)
        others = {pin for other, pin in self._records.pins.items() if other != peer}
        others |= {next_key for other in self._records.pins if other != peer and (next_key := self._next(other))}
        others |= {one.key for other, one in self._records.pinning.items() if other != peer}
        if following in others or following == self._tls.keypair.fingerprint:
            return following, ("KeyInUse", "the announced key is another cluster's already: make another one")
        return following, None

    def _next(self, peer: ClusterID) -> Fingerprint | None:
        return self._records.next_key(peer)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Put the newest announcement of a peer on record, then acknowledge it."""
        tracked = self._tracked.get(peer_id)
        if tracked is None or (announced := tracked.announced) is None:
            return None
        before = self._records.next_key(peer_id)
        try:
            kept = await self._records.record_next_key(peer_id, announced.by, announced.following)
        except Conflict:
            return After(0.1)
        except NotFound:
            kept = False
        if (before or "") != announced.following:
            tracked.written_at = self._clock.seconds()
        if tracked.announced is announced:
            tracked.announced = None
        if kept:
            announced.connection.send(KeyNoted(announced.public_key))
        return None
