"""When the lease of a virtual node is renewed, under a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.errors import NotFound, Unreachable
from liqod.kubelet.common.readiness import READY, Readiness, not_ready
from liqod.kubelet.node.controller import LEASE, LeaseController

LIFE = 40.0


class Leases:
    """An API server with one lease, which tells when it was renewed; ``silent`` makes it say nothing."""

    def __init__(self, clock: Clock) -> None:
        self.renewed: list[float] = []
        self.made = 0
        self.missing = False
        self.refusing = False
        self.silent: Deferred[None] | None = None
        self._clock = clock

    async def patch(self, resource: Any, name: str, body: Mapping[str, Any], *_: Any, **__: Any) -> None:
        if self.silent is not None:
            await self.silent
        if self.refusing:
            raise Unreachable("it refuses connections")
        if self.missing:
            raise NotFound(404, "NotFound", "there is no lease")
        self.renewed.append(self._clock.seconds())

    async def create(self, *_: Any, **__: Any) -> None:
        self.made, self.missing = self.made + 1, False


class OneNode:
    """A node that was created."""

    uid = "u"


class LeaseTests(SynchronousTestCase):
    """Forty seconds of life, and a daemon that is to keep them from passing."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000.0)
        self.server = Leases(self.clock)
        self.health: Latest[Readiness] = Latest(READY)
        self.controller = LeaseController(
            self.clock,
            cast(Any, self.server),
            "liqo-milan",
            duration=int(LIFE),
            node=OneNode(),
            health=self.health,
        )

    def begin(self) -> None:
        """Run the controller, as if the Node had been created now."""
        self.controller.startService()
        self.addCleanup(self.controller.stopService)
        self.controller.enqueue(LEASE)
        self.clock.advance(0)

    def gaps(self, seconds: float) -> list[float]:
        """Let time pass; returns the times between renewals, the last one being the time since."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
        moments = [*self.server.renewed, self.clock.seconds()]
        return [after - before for before, after in pairwise(moments)]

    def test_renewed_in_good_time(self) -> None:
        """A lease of 40 s is renewed every 10 s at the latest, and not more often than that once it is in step."""
        self.begin()
        gaps = self.gaps(300)
        self.assertLessEqual(max(gaps), 10.2)
        self.assertGreaterEqual(min(gaps[1:-1]), 9.8)

    def test_made_again(self) -> None:
        """A lease that somebody deleted is made again."""
        self.server.missing = True
        self.begin()
        self.assertEqual((self.server.made, self.server.renewed), (1, []))
        self.gaps(16)
        self.assertEqual((self.server.made, len(self.server.renewed)), (1, 1))

    def test_an_api_server_that_was_away(self) -> None:
        """However long it was away, the lease is renewed within seconds after it is back."""
        self.begin()
        for away in (3.0, 18.0, 30.0, 300.0):
            self.server.refusing = True
            self.gaps(away)
            self.server.refusing = False
            before, back = self.server.renewed[-1], self.clock.seconds()
            self.gaps(16)
            after = next(moment for moment in self.server.renewed if moment > before)
            self.assertLessEqual(after, max(back, before + 10.0) + 6.2)

    def test_no_answer(self) -> None:
        """A renewal without an answer is given up while there is time for another one before the lease is over."""
        self.begin()
        self.server.silent = Deferred(lambda _: setattr(self.server, "silent", None))
        self.assertLess(max(self.gaps(60)), LIFE - 10.0)

    def test_a_lender_that_does_not_answer(self) -> None:
        """Its node's lease is not renewed, so that Kubernetes sees it, too; it is again when the lender is back."""
        self.begin()
        self.health.set(not_ready("PeerUnreachable", "no answer"))
        self.gaps(50)
        self.assertEqual(len(self.server.renewed), 1)
        self.health.set(READY)
        back = self.clock.seconds()
        self.gaps(11)
        self.assertLessEqual(self.server.renewed[1], back + 10.2)
