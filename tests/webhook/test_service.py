"""The admission webhook on the sandbox's API server."""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred

from liqod.demo.access import client_config
from liqod.kube.client import Client
from tests.webhook import cases


class WebhookOnTheSandboxTests(cases.WebhookCase):
    """The cases of the webhook, each with a cluster of its own."""

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        self.addCleanup(forget_lost_connections)
        cluster = SandboxCluster(reactor, "home")
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.admin = Client(client_config(cluster), reactor)
        self.addCleanup(self.admin.close)
        await self.begin()


def forget_lost_connections() -> None:
    """End the timers that a pool of connections keeps for those that the other side closed."""
    from twisted.internet import reactor

    for call in reactor.getDelayedCalls():
        if getattr(getattr(call, "func", None), "__name__", "") == "_removeConnection":
            call.cancel()
