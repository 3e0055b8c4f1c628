"""Maps keys to clusters: the callers of our relay, and the expected keys of other clusters' relays."""

from __future__ import annotations

from collections.abc import Mapping

from liqod.model.ids import ClusterID, Fingerprint
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer, addresses


class PinnedCallers:
    """The pinned keys of the records, and the announced next keys."""

    def __init__(self, records: ForeignClusters, peers: Mapping[ClusterID, Peer]) -> None:
        self._records = records
        self._peers = peers

    def caller(self, key: Fingerprint) -> ClusterID | None:
        """Return the admitted borrower that a trusted key belongs to, None for any other key."""
        for peer_id in self._records.pins:
            if key in self.keys(peer_id):
                return peer_id if self._is_admitted(peer_id) else None
        return None

    def trusted(self, key: Fingerprint) -> ClusterID | None:
        """Return the peer that a trusted key belongs to, borrower or lender; None for any other key."""
        return next((peer_id for peer_id in self._records.pins if key in self.keys(peer_id)), None)

    def keys(self, peer_id: ClusterID) -> tuple[str, ...]:
        """Return the trusted keys of a peer: one, two during a key rotation, or none."""
        pin = self._records.pins.get(peer_id)
        if pin is None:
            return ()
        record = self._records.get(peer_id)
        announced = record.spec.next_key if record is not None and record.spec.fingerprint == pin else None
        return (pin,) if announced is None else (pin, announced)

    def addresses(self, peer_id: ClusterID) -> list[str]:
        """Return the addresses of a peer, best first: that of its session, if we dialled it."""
        peer = self._peers.get(peer_id)
        if peer is None:
            return []
        known = [endpoint.address for endpoint in addresses(peer, self._records.get(peer_id))]
        session = peer.session
        if session is not None and session.role == "dialer":
            known.insert(0, session.address)
        return list(dict.fromkeys(known))

    def _is_admitted(self, peer_id: ClusterID) -> bool:
        peer = self._peers.get(peer_id)
        return peer is not None and bool(peer.lending.namespace)
