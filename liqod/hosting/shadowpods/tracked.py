"""What the controller of ShadowPods remembers about one of them, beside what the API shows."""

from __future__ import annotations

import attrs

from liqod.hosting.shadowpods.crash_backoff import Creations
from liqod.hosting.shadowpods.decide import RecordResult
from liqod.model.records.views import ShadowPod


@attrs.frozen
class Observed:
    """The result of a pod that was seen to finish, and the UID of its ShadowPod."""

    owner: str
    result: RecordResult


@attrs.frozen
class Orphan:
    """The UID of a pod whose ShadowPod is gone, and since when that is known (seconds of the reactor's clock)."""

    uid: str
    since: float


@attrs.define
class Tracked:
    """The memory about one name, dropped when neither ShadowPod nor pod of that name exist any more."""

    appeared: float | None = None
    """When the ShadowPod appeared, in seconds of the reactor's clock; None for one that was there at the start."""
    creations: Creations = attrs.field(factory=Creations)
    observed: Observed | None = None
    """How its pod finished, until the informer shows that in the record's status."""
    applied: tuple[str, str] | None = None
    """UID of the pod, and digest of the ShadowPod, that was last brought to it."""
    refused_size: tuple[str, str] | None = None
    """UID of the pod, and digest of the resources, for which a resize was refused and an event recorded."""
    deleted_uid: str = ""
    """UID of the ShadowPod of this name whose deletion was observed."""
    orphan: Orphan | None = None

    def result_of(self, shadow: ShadowPod | None) -> RecordResult | None:
        """Return how the pod of this very ShadowPod finished, as far as its record may not show it yet."""
        if shadow is None or self.observed is None or self.observed.owner != shadow.metadata.uid:
            return None
        return self.observed.result

    def without_shadowpod(self) -> Tracked:
        """Return what is worth remembering while only the pod is left."""
        return Tracked(deleted_uid=self.deleted_uid, orphan=self.orphan)
