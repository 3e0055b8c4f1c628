"""The admission webhook, asked by a real API server."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.agent.address import own_address
from liqod.kube.client import Client
from liqod.kube.config import load
from tests import webhook_cases
from tests.real.base import RealClusters


class WebhookOnRealClusters(RealClusters, webhook_cases.WebhookCases):
    """The cases of the webhook, each with namespaces of its own."""

    cluster_count = 2
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
        self.host = own_address(self.admin.config.server)
        await self.begin()
