"""Control planes without containers, asked by this process itself, for cases that run on the sandbox as well."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.connection.config import load
from tests.kubelet.cases import KubeletSides
from tests.real.base import RealClusters


class Asked(RealClusters):
    """API servers with a made-up node each, and for each of them, in ``admins``, a client that may do everything."""

    cluster_count = 2
    nodes = False
    kwok = 1
    patience = 120.0
    timeout = 600

    admins: list[Client]

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        super().setUp()
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        self.admins = [Client(load(str(cluster.kubeconfig)), reactor) for cluster in self.clusters]
        for client in self.admins:
            self.addCleanup(client.close)
        await self.prepare()

    async def prepare(self) -> None:
        """Give the clients the names by which the cases know them, and begin; a subclass says how."""
        raise AssertionError("a subclass says how")


class Pair(Asked, KubeletSides):
    """A borrower and a lender with a made-up node each."""

    async def prepare(self) -> None:
        self.home, self.lender = self.admins[:2]
        for client in (self.home, self.lender):
            await manifests.ensure(client)
        await self.begin()
