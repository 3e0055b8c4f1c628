"""A borrower and a lender on real API servers."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.config import load
from tests.kubelet_cases import KubeletSides
from tests.real.base import RealClusters


class Pair(RealClusters, KubeletSides):
    """A borrower and a lender with a made-up node each."""

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

        self.home, self.lender = (Client(load(str(cluster.kubeconfig)), reactor) for cluster in self.clusters[:2])
        for client in (self.home, self.lender):
            self.addCleanup(client.close)
            await manifests.ensure(client)
        await self.begin()
