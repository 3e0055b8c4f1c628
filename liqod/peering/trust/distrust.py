"""Records distrusted keys, so that only a user can trust them again.

Level-triggered by the ForeignClusters: one whose trust was withdrawn gets a tombstone, for its ID and its key, and the
pairing tokens that the key used are spent. A pin, which only a user can set for such a cluster, removes the tombstone.
"""

from __future__ import annotations

import attrs

from liqod.audit.events import AuditEvent
from liqod.flow.clocks import wall_clock
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.unpeering import DISTRUSTED, PINNED_BY_SETTINGS, Tombstone, is_trust_withdrawn
from liqod.model.records.views import ForeignCluster
from liqod.model.timestamps import rfc3339
from liqod.peering.changes import Change, Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.trust.records import TrustRecords


@attrs.define
class _Withdrawn:
    """The key that a peer had before trust was withdrawn, where that was seen, and whether nothing is left to do."""

    key: Fingerprint | None = None
    is_settled: bool = False


class DistrustRecorder(PeerController):
    """Writes and deletes tombstones of distrusted peers; ``unpinned`` records which key a peer had."""

    name = "distrust"
    queue = Queue.DISTRUST

    def __init__(
        self,
        context: PeeringContext,
        records: ForeignClusters,
        kept: TrustRecords,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._tombstones = kept.tombstones
        self._tokens = kept.tokens
        self._invitations = kept.invitations
        self._withdrawn: dict[ClusterID, _Withdrawn] = {}

    def unpinned(self, peer: ClusterID, key: Fingerprint) -> None:
        """Record that the pin of a key was removed."""
        self._withdrawn[peer] = _Withdrawn(key)
        self.enqueue(peer)

    def is_settled(self, peer: ClusterID) -> bool:
        """Return whether nothing is left to do: the tombstone is on record, tokens and invitation are worthless.

        Only then may the ForeignCluster go, which is what makes a restarted daemon do the rest.
        """
        withdrawn = self._withdrawn.get(peer)
        return withdrawn is not None and withdrawn.is_settled and self._is_remembered(peer)

    def _is_remembered(self, peer: ClusterID) -> bool:
        known = self._tombstones.get(peer)
        return known is not None and known.distrusted and self._tombstones.is_written(peer)

    async def reconcile(self, peer: ClusterID) -> None:
        """Reconcile the tombstone of one peer with its record; raises KubeError."""
        record = self._records.get(peer)
        if record is None:
            self._withdrawn.pop(peer, None)
        elif is_trust_withdrawn(record):
            await self._remember(peer, record)
        elif record.spec.fingerprint and not record.metadata.deleting:
            self._withdrawn.pop(peer, None)
            await self._tombstones.trusted(peer, record.spec.fingerprint)

    async def _remember(self, peer: ClusterID, record: ForeignCluster) -> None:
        annotations, known = record.metadata.annotations, self._tombstones.get(peer)
        withdrawn = self._withdrawn.setdefault(peer, _Withdrawn())
        key = withdrawn.key or annotations.get(DISTRUSTED, "") or record.status.seen_fingerprint
        if known is not None and known.distrusted:
            key = withdrawn.key or known.fingerprint or key
        if not self._is_remembered(peer) or known is None or known.fingerprint != key:
            at = rfc3339(wall_clock(self._clock)())
            tombstone = Tombstone(key, at, "us", by_settings=PINNED_BY_SETTINGS in annotations, distrusted=True)
            await self._tombstones.put(peer, tombstone)
            self._audit.record(AuditEvent("TrustWithdrawn", "Distrusted", peer=peer, fingerprint=key))
        if key:
            await self._tokens.revoke(key)
        await self._invitations.delete(peer)
        withdrawn.is_settled = True
        self._changes.notify(Change.DISTRUST_SETTLED, peer)
