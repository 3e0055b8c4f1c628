"""Shows security events about peers as Kubernetes Events of their ForeignClusters."""

from __future__ import annotations

from typing import Final

from liqod.audit.events import AuditEvent, Type
from liqod.kube.cache.informer import Informer
from liqod.kube.events import Recorder
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import Key
from liqod.model.objects.meta import reference_to
from liqod.model.records.views import ForeignCluster

SENTENCES: Final[dict[Type, str]] = {
    "TrustGranted": "the peer's key is trusted from now on",
    "TrustWithdrawn": "the peer's key is not trusted any more",
    "AccessGranted": "the peer was granted access to this cluster",
    "AccessRevoked": "access of the peer to this cluster was revoked",
    "TokenUsed": "the peer used a pairing token of this cluster",
}
"""The types with an Event. Key changes, mismatches and refused ShadowPods have Events of their own."""


class AuditEvents:
    """Records a Kubernetes Event for an audit event whose peer has a ForeignCluster."""

    def __init__(self, recorder: Recorder, clusters: Informer[ForeignCluster]) -> None:
        self._recorder = recorder
        self._clusters = clusters

    def notify(self, event: AuditEvent) -> None:
        """Record the Event, if the type has one and the record exists."""
        sentence = SENTENCES.get(event.type)
        record = self._clusters.get(Key("", event.peer)) if sentence is not None and event.peer else None
        if sentence is None or record is None:
            return
        about = f" ({event.object})" if event.object else ""
        regarding = reference_to(FOREIGNCLUSTERS.api_version, FOREIGNCLUSTERS.kind, record.metadata)
        self._recorder.record_event(regarding, "Normal", event.type, f"{sentence}{about}: {event.reason}")
