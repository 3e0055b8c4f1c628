"""Unpeering records: how the end of a peering is requested and recorded, shared by command line and daemon. Pure.

A peering ends when its ForeignCluster is deleted: a finalizer keeps the record until everything created for the peer is
removed. It waits for this cluster's own work without limit, and for the peer up to the order's time limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs
import msgspec

from liqod.model.objects.meta import View
from liqod.model.records.views import ForeignCluster

FINALIZER: Final = "discovery.liqo.io/peering"
ORDER: Final = "discovery.liqo.io/unpeer"
"""The annotation that says how: ``dead``, ``by-peer``, ``ended``, or the seconds to wait for the peer."""
PINNED_BY_SETTINGS: Final = "discovery.liqo.io/joined"
"""The annotation of a ForeignCluster whose key was pinned by the settings, not by a person."""
DISTRUSTED: Final = "discovery.liqo.io/distrusted"
"""Annotation that ``liqodctl distrust`` sets on a ForeignCluster: the key that must no longer be trusted."""
TOMBSTONES: Final = "liqod-unpeered"
"""The ConfigMap, in liqod's namespace, that remembers whom the peering was ended with."""

PATIENCE: Final = 60.0
"""Seconds that a peer with a session has to hand back what it uses: a drain takes 35."""
ABSENT: Final = 10.0
"""Seconds in which a peer without a session must reconnect."""
MAX_PATIENCE: Final = 3600.0

Kind = Literal["asked", "dead", "by-peer", "ended"]


@attrs.frozen
class UnpeeringOrder:
    """The order to end a peering.

    ``asked``: by this cluster's admin; ``dead``: the same, and the peer is not waited for; ``by-peer``: the peer ends
    it; ``ended``: the peer ended it while we were apart.
    """

    kind: Kind = "asked"
    patience: float = PATIENCE

    def wait(self, *, connected: bool) -> float:
        """Return the seconds that the peer has."""
        if self.kind in ("dead", "ended"):
            return 0.0
        return self.patience if connected else min(self.patience, ABSENT)

    def render(self) -> str:
        """Return the order as the annotation holds it."""
        return f"{self.patience:g}" if self.kind == "asked" else self.kind


def order_of(annotations: Mapping[str, str]) -> UnpeeringOrder:
    """Return the order of a record; an unreadable one means the default order."""
    match annotations.get(ORDER, ""):
        case "dead":
            return UnpeeringOrder("dead")
        case "by-peer":
            return UnpeeringOrder("by-peer")
        case "ended":
            return UnpeeringOrder("ended")
        case text:
            try:
                seconds = float(text)
            except ValueError:
                return UnpeeringOrder()
            return UnpeeringOrder("asked", seconds) if 0 <= seconds <= MAX_PATIENCE else UnpeeringOrder()


class Tombstone(View, frozen=True):
    """With whom a peering was ended: the key it had, when, by whom, when the peer was notified ("" not yet).

    ``by_settings``: the settings alone would trust that key again, so that this must stay until a person does.
    ``distrusted``: nothing is to trust that ID, or that key, until a person does.
    """

    fingerprint: str
    at: str
    by: Literal["us", "peer"] = "us"
    notified: str = msgspec.field(default="", name="told")
    by_settings: bool = msgspec.field(default=False, name="joined")
    distrusted: bool = False


def is_trust_withdrawn(record: ForeignCluster) -> bool:
    """Return whether a person withdrew the trust in a pinned key.

    False for a record that never had a pin: the finalizer is added with the first pin and kept until the end.
    """
    meta = record.metadata
    return not record.spec.fingerprint and (FINALIZER in meta.finalizers or DISTRUSTED in meta.annotations)


def read(text: str) -> Tombstone | None:
    """Decode an entry of the ConfigMap, None if it is unreadable."""
    try:
        return msgspec.json.decode(text.encode(), type=Tombstone)
    except msgspec.MsgspecError:
        return None


def write(tombstone: Tombstone) -> str:
    """Return an entry of the ConfigMap."""
    return msgspec.json.encode(tombstone).decode()
