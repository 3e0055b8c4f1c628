"""What tests of plans that are carried out on a host in memory have in common."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel.host import apply, observe
from liqod.fabric.agent.kernel.model import Desired
from liqod.fabric.agent.kernel.plan import plan, removal
from tests.fabric.fake_kernel import FakeKernel

NOW = 1_800_000_000.0


class HostCase(SynchronousTestCase):
    """One host that is a gateway, with nothing of the fabric on it."""

    def setUp(self) -> None:
        self.kernel = FakeKernel()
        self.before = self.kernel.state()

    def converge(self, desired: Desired) -> int:
        """Look, plan and apply once; return how many steps there were."""

        async def once() -> int:
            steps = plan(desired, await observe(self.kernel, desired.device), NOW)
            await apply(self.kernel, steps)
            return len(steps)

        return self.successResultOf(Deferred.fromCoroutine(once()))

    def remove(self) -> None:
        """Remove all."""

        async def once() -> None:
            await apply(self.kernel, removal("liqod", await observe(self.kernel, "liqod")))

        self.successResultOf(Deferred.fromCoroutine(once()))
