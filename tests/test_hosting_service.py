"""Hosting on the sandbox's API server."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.config import from_grant
from liqod.model.offer import AccessGrant
from liqod.sandbox.cluster import SandboxCluster
from liqod.sandbox.nodes import SandboxNode
from tests import hosting_cases


class HostingOnTheSandbox(hosting_cases.HostingCases):
    """The cases of hosting, each with a cluster of its own."""

    patience = 10.0
    timeout = 60

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        cluster = SandboxCluster(reactor, "lender", [SandboxNode("one", cpu="64", memory="64Gi")])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.admin = Client(cluster.client_config(), reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        await self.begin()

    def borrower(self, grant: AccessGrant) -> Client:
        from twisted.internet import reactor

        ca = grant.ca.encode()
        return Client(from_grant(grant.api_url, ca, lambda: grant.token), reactor)
