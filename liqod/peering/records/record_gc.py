"""When the record of a cluster that nobody wants may go: never trusted, not named by anybody, not seen for long. Pure.

Everything else stays until a person deletes it: absence of evidence is no reason to forget a peer.
"""

from __future__ import annotations

from typing import Final

from liqod.model.records.views import ForeignCluster, PeerSharing

FORGET: Final = 3600.0
"""Seconds without any sign of a stranger after which its record goes, so that there is room for others."""


def is_wanted(record: ForeignCluster) -> bool:
    """Tell whether a person, or a peering, has to do with a record: then only a person removes it."""
    spec, meta = record.spec, record.metadata
    wishes = spec.outgoing_peering != "Auto" or spec.incoming_peering != "Auto" or spec.sharing != PeerSharing()
    return bool(spec.fingerprint or spec.endpoints or wishes or meta.finalizers or meta.labels or meta.annotations)


def collected_at(record: ForeignCluster, *, in_sight: bool, last: float) -> float | None:
    """Return when a record goes, in seconds of the clock that ``last`` (any sign of the cluster) is of; None: never.

    ``in_sight``: a source shows the cluster, or it is connected.
    """
    if in_sight or record.metadata.deleting or is_wanted(record):
        return None
    return last + FORGET
