"""`peer` beside a daemon that writes the same record."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.peering.peer import _record
from liqod.kube.errors import Conflict
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec

PEER = ClusterID("milan")
OURS, OTHER = ("sha256:" + digit * 64 for digit in "ab")


@attrs.define
class Server:
    """One record; ``pinned`` is what the daemon pins right before the first patch arrives."""

    pinned: str
    version: int = 1
    fingerprint: str = ""
    patches: list[dict[str, Any]] = attrs.Factory(list)

    async def get(self, resource: object, name: str, *, view: object) -> ForeignCluster:
        meta = ObjectMeta(name=name, resource_version=str(self.version))
        return ForeignCluster(metadata=meta, spec=ForeignClusterSpec(cluster_id=PEER, fingerprint=self.fingerprint))

    async def patch(self, resource: object, name: str, patch: dict[str, Any], *, view: object) -> None:
        if not self.patches:
            self.version, self.fingerprint = self.version + 1, self.pinned
        self.patches.append(patch)
        if patch.get("metadata", {}).get("resourceVersion") not in (None, str(self.version)):
            raise Conflict(409, "Conflict", "the object has been modified")
        self.fingerprint = patch["spec"].get("fingerprint", self.fingerprint)


class RecordTests(SynchronousTestCase):
    def record(self, server: Server) -> Any:
        session = cast(Any, attrs.make_class("Session", ["client"])(server))
        return Deferred.fromCoroutine(_record(session, PEER, ["192.0.2.1:5872"], {"fingerprint": OURS}))

    def test_a_key_that_is_pinned_meanwhile(self) -> None:
        """It is not replaced by that of the token."""
        server = Server(pinned=OTHER)
        self.failureResultOf(self.record(server), CliError)
        self.assertEqual(server.fingerprint, OTHER)

    def test_the_same_key(self) -> None:
        """The record is read and written once more."""
        server = Server(pinned=OURS)
        self.successResultOf(self.record(server))
        self.assertEqual((len(server.patches), server.fingerprint), (2, OURS))
