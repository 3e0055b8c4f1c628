"""What tests of a fabric on a host in memory have in common."""

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Settings
from liqod.fabric.agent.converge import FabricHost
from liqod.fabric.agent.kernel.host import apply, observe
from liqod.fabric.agent.kernel.model import DesiredKernel
from liqod.fabric.agent.kernel.plan import plan, removal
from liqod.fabric.agent.kernel.preflight import Means
from liqod.flow.clocks import installed_reactor
from liqod.flow.controller import NO_METRICS
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from tests.fabric.fake_kernel import FakeKernel

NOW = 1_800_000_000.0
HERE = "192.0.2.1"
"""The address of the host in memory."""


def fabric_host(
    client: Client, informers: Informers, settings: Settings, kernel: FakeKernel | None, missing: Collection[str] = ()
) -> FabricHost:
    """Return a host in memory; without a kernel it is one that must not be touched. ``missing`` are its programs."""
    return FabricHost(
        reactor=installed_reactor(),
        client=client,
        informers=informers,
        settings=settings,
        address=HERE,
        metrics=NO_METRICS,
        kernel=kernel,
        environ={},
        means=Means(find=lambda name: name if name not in missing else None, capable=lambda: True),
    )


class HostCase(SynchronousTestCase):
    """One host that is a gateway, with nothing of the fabric on it."""

    def setUp(self) -> None:
        self.kernel = FakeKernel()
        self.before = self.kernel.state()

    def converge(self, desired: DesiredKernel) -> int:
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
