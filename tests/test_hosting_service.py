"""Hosting on the sandbox's API server."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.config import from_grant
from liqod.kube.errors import NotFound
from liqod.kube.resources import SHADOWPODS
from liqod.model.offer import AccessGrant
from liqod.sandbox.cluster import SandboxCluster
from liqod.sandbox.housekeeping import GarbageCollector
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
        self.cluster = cluster
        self.admin = Client(cluster.client_config(), reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        await self.begin()

    def borrower(self, grant: AccessGrant) -> Client:
        from twisted.internet import reactor

        ca = grant.ca.encode()
        return Client(from_grant(grant.api_url, ca, lambda: grant.token), reactor)

    async def _deletions(self) -> int:
        """Delete a ShadowPod whose pod runs, wait until the pod is gone, and count hosting's own deletions."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await borrower.delete(SHADOWPODS, "web", namespace)

        async def gone() -> bool:
            try:
                await self.pod(namespace)
            except NotFound:
                return True
            return False

        await self.becomes(gone, "the pod is gone")
        return self.requests.requests[("delete", "pods")]

    async def test_left_to_the_garbage_collector(self) -> None:
        """A pod that the cluster deletes with its owner is not deleted by hosting as well."""
        self.assertEqual(await self._deletions(), 0)

    async def test_without_a_garbage_collector(self) -> None:
        """A pod that nobody else deletes is deleted by hosting, once."""
        for service in self.cluster:
            if isinstance(service, GarbageCollector):
                service.stopService()
        self.assertEqual(await self._deletions(), 1)
