"""Hosting on a real API server, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.config import from_grant, load
from liqod.model.offer import AccessGrant
from tests import hosting_cases
from tests.real.base import RealClusters


class HostingOnRealClusters(RealClusters, hosting_cases.HostingCases):
    """The cases of hosting, each with a tenant of its own on one cluster."""

    cluster_count = 1
    nodes = False
    kwok = 1
    patience = 40.0
    timeout = 180

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        super().setUp()
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        self.admin = Client(load(str(self.clusters[0].kubeconfig)), reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        await self.begin()

    def borrower(self, grant: AccessGrant) -> Client:
        from twisted.internet import reactor

        ca = grant.ca.encode()
        return Client(from_grant(grant.api_url, ca, lambda: grant.token), reactor)
