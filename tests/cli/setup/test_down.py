"""How long `down` waits for a daemon that stands by, once this host's daemon was stopped."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.setup.up.down import TAKEOVER, until_taken_over
from liqod.config.schema import Settings
from liqod.kube.errors import NotFound
from liqod.model.diagnosis.processes import ProcessLease
from liqod.model.names import FIELD_MANAGER
from liqod.model.timestamps import rfc3339

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
