"""Which peers have a record of their network."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreement.mode import ACCEPTED_BEFORE
from liqod.fabric.control.records import NetworkRecords
from liqod.kube.resources import FOREIGNCLUSTERS, NETWORKCONFIGS, Resource
from liqod.model.ids import Key
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.records.network import NetworkConfig
from liqod.model.records.views import ForeignCluster, ForeignClusterStatus
from tests.hosting.shadowpods.test_controller import Cache


class Cluster:
    """The API server, and the caches of what it has."""

    def __init__(self) -> None:
        self.caches: dict[str, Cache] = {}
        self.created: list[str] = []
        self.deleted: list[str] = []

    def of(self, resource: Resource, view: object) -> Cache:
        return self.caches.setdefault(resource.plural, Cache())

    async def create(self, resource: Resource, body: dict[str, Any], *, view: Any) -> Any:
        self.created.append(body["metadata"]["name"])
        return msgspec.convert(body, view)

    async def delete(self, resource: Resource, name: str) -> None:
        self.deleted.append(name)


def cluster(name: str, *, status: str, reason: str = "") -> ForeignCluster:
    """Return a cluster with this condition in the one direction, and nothing in the other."""
    conditions = [
        Condition(type="Accepted", status=status, reason=reason),
        Condition(type="Lending", status="False", reason="NotRequested"),
    ]
    return ForeignCluster(metadata=ObjectMeta(name=name), status=ForeignClusterStatus(conditions=conditions))


class PeersTests(SynchronousTestCase):
    """Clusters that are peers, were peers, and never were."""

    def test_table(self) -> None:
        """A peer gets one. Where an offer expired, its record stays, and is made only where tunnels are decided."""
        peers = [
            cluster("peer", status="True"),
            cluster("expired", status="False", reason=ACCEPTED_BEFORE),
            cluster("unknown", status="Unknown"),
            cluster("refused", status="False", reason="Refused"),
        ]
        for mode, existing, created, deleted in (
            ("wireguard", (), ["peer"], []),
            ("auto", (), ["expired", "peer"], []),
            ("auto", ("peer", "expired", "unknown", "refused", "gone"), [], ["gone", "refused"]),
        ):
            there = Cluster()
            known: Any = there
            records = NetworkRecords(known, Clock(), known, lambda: datetime(2030, 1, 1, tzinfo=UTC), mode=mode)
            there.of(FOREIGNCLUSTERS, None).held = {one.metadata.key: one for one in peers}
            there.of(NETWORKCONFIGS, None).held = {
                Key("", name): NetworkConfig(metadata=ObjectMeta(name=name)) for name in existing
            }
            self.successResultOf(Deferred.fromCoroutine(records.sync_peers()))
            self.assertEqual((there.created, there.deleted), (created, deleted), (mode, existing))
