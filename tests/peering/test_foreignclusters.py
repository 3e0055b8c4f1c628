"""How a key is pinned on a record that others write as well, on an API server that is one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Peering
from liqod.kube.errors import AlreadyExists, Conflict
from liqod.kube.events import Recorder
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.unpeering import DISTRUSTED, FINALIZER
from liqod.model.records.views import ForeignCluster
from liqod.peering.changes import Changes
from liqod.peering.controller import PeeringContext
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters

ROME = ClusterID("rome")
KEY, OTHER = (Fingerprint("sha256:" + letter * 64) for letter in "ab")


def record(fingerprint: str = "", version: str = "1", **metadata: Any) -> ForeignCluster:
    """Return rome's record."""
    body = {
        "metadata": {"name": ROME, "uid": "u", "resourceVersion": version, **metadata},
        "spec": {"clusterID": ROME, "fingerprint": fingerprint},
    }
    return msgspec.convert(body, ForeignCluster)


class Server:
    """An API server with one record, or none; ``written`` is what was changed, or made."""

    def __init__(self, present: ForeignCluster | None) -> None:
        self.present = present
        self.written: list[Mapping[str, Any]] = []

    async def get(self, resource: object, name: str, **more: object) -> ForeignCluster:
        assert self.present is not None
        return self.present

    async def create(self, resource: object, body: Mapping[str, Any], **more: object) -> ForeignCluster:
        if self.present is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        self.present = msgspec.convert(
            {"spec": body["spec"], "metadata": {"uid": "u", **body["metadata"]}}, ForeignCluster
        )
        self.written.append(body["spec"])
        return self.present

    async def patch(self, resource: object, name: str, body: Mapping[str, Any], *more: object, **view: object) -> Any:
        assert self.present is not None
        if body["metadata"]["resourceVersion"] != self.present.metadata.resource_version:
            raise Conflict(409, "Conflict", "it has changed")
        self.present = record(body["spec"]["fingerprint"], "9", finalizers=body["metadata"].get("finalizers", []))
        self.written.append(body["spec"])
        return self.present


class Seen:
    """The informer: what a watch has shown so far."""

    def __init__(self, present: ForeignCluster | None) -> None:
        self.present = present

    def get(self, key: object) -> ForeignCluster | None:
        return self.present


class PinTests(SynchronousTestCase):
    """A key that was found trustworthy a moment ago."""

    def pinned(self, seen: ForeignCluster | None, present: ForeignCluster | None) -> tuple[str, Server]:
        """Pin the key, where a watch has shown one state of the record and the API server has another by now."""
        server = Server(present)
        context = PeeringContext(
            client=cast(Any, server), clock=cast(Any, Clock()), peers={}, changes=Changes(), refusals=cast(Any, None)
        )
        records = ForeignClusters(
            context,
            clusters=cast(Any, Seen(seen)),
            offers=cast(Any, None),
            nodes=cast(Any, None),
            settings=Peering(),
            directions=DirectionPolicy("Auto", "Auto"),
            recorder=cast(Recorder, None),
        )
        made = self.successResultOf(Deferred.fromCoroutine(records.ensure(ROME, KEY)))
        return made.spec.fingerprint, server

    def test_a_stranger_is_pinned(self) -> None:
        """With a record, without one, and with one that the watch has not shown yet or that changed meanwhile."""
        changed = record(version="2")
        for seen, present in ((None, None), (record(), record()), (None, record()), (record(), changed)):
            pin, server = self.pinned(seen, present)
            self.assertEqual((pin, [spec["fingerprint"] for spec in server.written]), (KEY, [KEY]))

    def test_what_a_person_said_meanwhile_stands(self) -> None:
        """Neither a trust that was withdrawn while the key was judged nor another key is written over."""
        for present in (
            record(version="2", finalizers=[FINALIZER]),
            record(version="2", annotations={DISTRUSTED: KEY}),
            record(OTHER, version="2"),
        ):
            for seen in (None, record(), present):
                pin, server = self.pinned(seen, present)
                self.assertEqual((pin, server.written), (present.spec.fingerprint, []))
