"""How long `down` waits: for a daemon that stands by, once this host's daemon was stopped, and for what is deleted."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.setup import gone
from liqod.cli.setup.gone import until_gone
from liqod.cli.setup.up.down import TAKEOVER, until_taken_over
from liqod.config.schema import Settings
from liqod.kube import manifests
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import CRDS
from liqod.model.diagnosis.processes import ProcessLease
from liqod.model.names import DELETION_ANNOTATION, FIELD_MANAGER
from liqod.model.timestamps import rfc3339
from tests.cli.cluster_case import REACTOR, ClusterCase

AHEAD: Final = timedelta(hours=1)
"""By how much the API server's clock is ahead of this host's."""


class OneLease:
    """An API server with a lease of some holder, renewed some seconds ago; without a holder there is none.

    The daemon's clock is this host's, and the API server's is another: how long ago that was it alone can say.
    """

    def __init__(self, holder: str | None, age: float) -> None:
        self._holder = holder
        self._now = datetime.now(UTC) + AHEAD
        self._age = timedelta(seconds=age)

    async def get(self, *what: Any, view: type[ProcessLease]) -> ProcessLease:
        if self._holder is None:
            raise NotFound(404, "NotFound", "there is none")
        renewed, written = rfc3339(self._now - AHEAD - self._age), rfc3339(self._now - self._age)
        spec = {"holderIdentity": self._holder, "renewTime": renewed, "leaseDurationSeconds": 10}
        stamps = [{"manager": FIELD_MANAGER, "time": written}]
        return msgspec.convert({"metadata": {"managedFields": stamps}, "spec": spec}, view)

    async def create(self, *what: Any) -> dict[str, Any]:
        return {"metadata": {"creationTimestamp": rfc3339(self._now)}}


class TakeoverTests(SynchronousTestCase):
    """The seconds after which another daemon leads, if there is one."""

    def wait(self, holder: str | None, age: float = 0.0) -> float:
        """Return what is waited where a lease has a holder."""
        client = cast(Any, OneLease(holder, age))
        session = Session(Options(output="json"), reactor=cast(Any, Clock()), client=client, settings=Settings())
        return self.successResultOf(Deferred.fromCoroutine(until_taken_over(session)))

    def test_a_daemon_that_was_stopped(self) -> None:
        """It released its lease: the next one takes it when it asks for it, or has done so already."""
        asked = 1.2 * Settings().leader.retry_interval + TAKEOVER
        for holder in (None, "", "another-1234"):
            self.assertEqual(self.wait(holder), asked, holder)

    def test_a_daemon_that_was_killed(self) -> None:
        """Its lease has to expire before another one takes it."""
        asked, duration = self.wait(None), Settings().leader.lease_duration
        for age, left in ((0.0, duration), (4.0, duration - 4), (60.0, 0.0)):
            self.assertApproximates(self.wait(f"{socket.gethostname()}-1234", age) - asked, left, 2.0)


class DeletionTests(ClusterCase):
    """CRDs of which the API server holds the last one, until there is a change to it."""

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        self.patch(gone, "ASKED_AGAIN", 0.3)
        self.last = manifests.definitions()[-1]
        self.last["metadata"]["finalizers"] = ["example.org/held"]
        await self.client.create(CRDS, self.last)
        await self.client.delete(CRDS, self.name)
        self.session = Session(Options(output="json"), reactor=REACTOR, client=self.client, settings=Settings())

    @property
    def name(self) -> str:
        return str(self.last["metadata"]["name"])

    async def let_go(self) -> None:
        """Delete the CRD for good, once it has the annotation."""
        while DELETION_ANNOTATION not in (await self.client.get(CRDS, self.name))["metadata"].get("annotations", {}):
            await deferLater(REACTOR, 0.05)
        await self.client.patch(CRDS, self.name, {"metadata": {"finalizers": None}})

    async def test_deleted_at_the_next_change(self) -> None:
        """It makes a change to what the API server does not look at again by itself, and waits until that is gone."""
        let_go = Deferred.fromCoroutine(self.let_go())
        self.assertEqual(await until_gone(self.session, keep_namespace=True), "")
        await let_go

    async def test_uninstall(self) -> None:
        """`uninstall` waits in the same way, so that the next `install` finds nothing that is still being deleted."""
        let_go = Deferred.fromCoroutine(self.let_go())
        out = await self.liqodctl("uninstall", "--yes", "--force")
        self.assertNotIn("still deleting", out)
        await let_go
        with self.assertRaises(NotFound):
            await self.client.get(CRDS, self.name)

    async def test_without_the_right(self) -> None:
        """Who may not change CRDs waits for as long, and is given no error halfway."""
        self.patch(gone, "PATIENCE", 1.0)
        asked = []

        async def refused(*what: Any, **options: Any) -> None:
            asked.append(what)
            raise Forbidden(403, "Forbidden", "customresourcedefinitions is forbidden")

        self.patch(self.client, "patch", refused)
        left = await until_gone(self.session, keep_namespace=True)
        self.assertEqual(left, f"CustomResourceDefinition {self.name}")
        self.assertTrue(asked)

    async def test_never_deleted(self) -> None:
        """What stays in spite of that is named in the end."""
        self.patch(gone, "PATIENCE", 2.0)
        self.assertEqual(await until_gone(self.session, keep_namespace=True), f"CustomResourceDefinition {self.name}")
