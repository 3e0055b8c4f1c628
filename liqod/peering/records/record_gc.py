"""Decides when an unwanted record is deleted: never trusted, not configured by a user, long not seen. Pure.

Every other record stays until a user deletes it: a peer that is not seen is not deleted for that.
"""

from __future__ import annotations

from typing import Final

from liqod.model.records.views import ForeignCluster, PeerSharing

FORGET: Final = 3600.0
"""Seconds without any sign of a stranger after which its record is deleted, so that others can have one."""


def is_wanted(record: ForeignCluster) -> bool:
    """Return whether a record was configured by a user or belongs to a peering: then only a user deletes it."""
    spec, meta = record.spec, record.metadata
    is_decided = spec.outgoing_peering != "Auto" or spec.incoming_peering != "Auto" or spec.sharing != PeerSharing()
    return bool(spec.fingerprint or spec.endpoints or is_decided or meta.finalizers or meta.labels or meta.annotations)


def collected_at(record: ForeignCluster, *, in_sight: bool, last: float) -> float | None:
    """Return when a record is deleted, on the clock of ``last`` (the last sign of the cluster); None: never.

    ``in_sight``: a discovery source shows the cluster, or it is connected.
    """
    if in_sight or record.metadata.deleting or is_wanted(record):
        return None
    return last + FORGET
