"""Which security events are Kubernetes Events of the peer's record."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.log.audit_events import AuditEvents
from liqod.audit.events import AuditEvent
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import ForeignCluster


class Records(dict[Key, ForeignCluster]):
    """The cache of ForeignClusters."""


class AuditEventsTests(SynchronousTestCase):
    """What ``kubectl describe fc`` shows."""

    def test_trust_and_access_are_shown_at_the_record(self) -> None:
        """Of a peer that has one; refusals, and events about nobody, are in the lines only."""
        shown: list[tuple[str, str, str]] = []

        class Recorder:
            def record_event(self, regarding: Any, type: str, reason: str, message: str, source: Any = None) -> None:
                shown.append((regarding["name"], reason, message))

        record = ForeignCluster(metadata=ObjectMeta(name="milan", uid="1"))
        events: Any = AuditEvents(Recorder(), Records({Key("", "milan"): record}))  # type: ignore[arg-type]
        events.notify(AuditEvent("AccessGranted", "NamespaceGranted", peer="milan", object="namespace/shop-rome"))
        events.notify(AuditEvent("TrustGranted", "Administrator", peer="turin"))
        events.notify(AuditEvent("Refused", "TrustPending", peer="milan"))
        events.notify(AuditEvent("TokenRevoked", "Deleted", object="token/0a1b"))
        sentence = "the peer was granted access to this cluster (namespace/shop-rome): NamespaceGranted"
        self.assertEqual(shown, [("milan", "AccessGranted", sentence)])
