"""The Lease by which a process says that it runs, what it does, and why it cannot work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.host.process_lease import SOON, ProcessLease
from liqod.kube.connection.config import ConfigError
from liqod.kube.errors import Forbidden, NotFound, Unreachable
from liqod.model.diagnosis.processes import RENEW, Lack, ProcessState

NAME = "liqod-process-all-gw1"
WAITS = ProcessState(role="all", host="gw1", state="waits", unmet=[Lack(code="ClockSkew", cause="it is so")])
WORKS = ProcessState(role="all", host="gw1", state="works")


class Server:
    """An API server that has the Leases, or answers each write with a failure."""

    def __init__(self) -> None:
        self.leases: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.is_known = True
        self.writes: list[str] = []
        self.clients = 0
        self.open = 0

    def connect(self) -> Any:
        if not self.is_known:
            return None
        if isinstance(self.failure, ConfigError):
            raise self.failure
        self.clients += 1
        self.open += 1
        return self

    async def patch(self, _: Any, name: str, body: dict[str, Any], namespace: str, **__: Any) -> None:
        self.writes.append("patch")
        if self.failure is not None:
            raise self.failure
        if name not in self.leases:
            raise NotFound(404, "NotFound", namespace)
        self.leases[name] = {**self.leases[name], **body}

    async def create(self, _: Any, body: dict[str, Any], namespace: str, **__: Any) -> None:
        self.writes.append("create")
        self.leases[body["metadata"]["name"]] = body

    async def close(self) -> None:
        self.open -= 1


class ProcessLeaseTests(SynchronousTestCase):
    """It is renewed, written when the state changes, and let go in the end."""

    def setUp(self) -> None:
        self.clock, self.server = Clock(), Server()
        self.state = WAITS
        self.lease = self.made()

    def made(self, **environ: str) -> ProcessLease:
        return ProcessLease(
            self.clock,
            self.server.connect,
            namespace="liqo-system",
            identity=lambda: "gw1-0a",
            describe=lambda: self.state,
            wall=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            environ=environ,
        )

    def written(self) -> ProcessState:
        text = self.server.leases[NAME]["metadata"]["annotations"]["liqo.io/process-state"]
        return msgspec.json.decode(text, type=ProcessState)

    def stop(self) -> None:
        self.successResultOf(self.lease.stopService())

    def test_renewed(self) -> None:
        """It is made at the start, and renewed in its time; the state and the holder are in it."""
        self.lease.startService()
        self.assertEqual((self.server.writes, self.written()), (["patch", "create"], WAITS))
        made = self.server.leases[NAME]
        self.assertEqual(made["metadata"]["labels"], {"liqo.io/process": "all"})
        self.assertEqual((made["spec"]["holderIdentity"], made["spec"]["renewTime"][:4]), ("gw1-0a", "2026"))
        self.clock.advance(RENEW - 1)
        self.assertEqual(len(self.server.writes), 2)
        self.clock.advance(1)
        self.assertEqual(len(self.server.writes), 3)
        self.stop()

    def test_before_the_server_is_known(self) -> None:
        """Nothing is written, and nothing logged, until it is known how to reach the API server."""
        self.server.is_known = False
        self.lease.startService()
        self.clock.advance(RENEW)
        self.assertEqual(self.server.writes, [])
        self.server.is_known = True
        self.lease.changed()
        self.clock.advance(SOON)
        self.assertEqual((self.server.writes, self.written()), (["patch", "create"], WAITS))
        self.stop()

    def test_of_a_pod(self) -> None:
        """That of a pod is deleted with the pod, whose name none has again; outside of one it has no owner."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "liqod-x", "uid": "u1"}
        environs = {"POD_NAME": "liqod-x", "POD_UID": "u1"}, {"POD_NAME": "liqod-x"}
        for environ, owners in zip(environs, ([owner], None), strict=True):
            self.lease = self.made(**environ)
            self.lease.startService()
            self.assertEqual(self.server.leases.pop(NAME)["metadata"].get("ownerReferences"), owners)
            self.server.leases[NAME] = {"spec": {}}
            self.stop()
            self.server.leases.clear()

    def test_change(self) -> None:
        """Another state is written soon, and once, however often it changes."""
        self.lease.startService()
        self.state = WORKS
        for _ in range(5):
            self.lease.changed()
        self.clock.advance(SOON)
        self.assertEqual((len(self.server.writes), self.written()), (3, WORKS))
        self.clock.advance(SOON)
        self.assertEqual(len(self.server.writes), 3)
        self.stop()

    def test_ends(self) -> None:
        """A process that ends in order lets go of it, leaves nothing behind, and can begin again."""
        self.lease.startService()
        self.stop()
        self.assertEqual(self.server.leases[NAME]["spec"]["holderIdentity"], "")
        self.assertEqual((self.clock.getDelayedCalls(), self.server.open), ([], 0))
        self.lease.startService()
        self.assertEqual(self.server.leases[NAME]["spec"]["holderIdentity"], "gw1-0a")
        self.stop()

    def test_failures(self) -> None:
        """What fails is tried again with another client; in the end nobody waits for an API server that is away."""
        for failure in (Unreachable("away"), Forbidden(403, "Forbidden", "no"), ConfigError("none"), ValueError("odd")):
            self.server.failure = failure
            self.lease.startService()
            self.clock.advance(RENEW)
            self.assertNotIn(NAME, self.server.leases)
            self.server.failure = None
            self.clock.advance(RENEW)
            self.assertEqual(self.written(), WAITS)
            self.server.failure = failure
            self.clock.advance(RENEW)
            before = len(self.server.writes)
            self.stop()
            self.assertEqual(len(self.server.writes), before, failure)
            del self.server.leases[NAME]
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2, "once while it lasts")

    def test_silent_server(self) -> None:
        """The end does not wait long for an answer."""
        self.lease.startService()

        async def never(*_: Any, **__: Any) -> None:
            await Deferred[None]()

        self.patch(self.server, "patch", never)
        self.lease.changed()
        self.clock.advance(SOON)
        stopping = self.lease.stopService()
        self.assertNoResult(stopping)
        self.clock.advance(5)
        self.successResultOf(stopping)
        self.assertEqual(self.server.open, 0)

    def test_never_started(self) -> None:
        """What was not started has nothing to end."""
        self.stop()
        self.assertEqual(self.server.clients, 0)
