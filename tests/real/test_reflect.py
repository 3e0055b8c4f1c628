"""Reflection between two real API servers, with their validation, admission policies and controllers."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.config import from_grant, load
from liqod.kube.errors import ApiError
from liqod.kube.resources import SECRETS, SERVICES
from tests import needs_cases, reflect_cases
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


class ReflectionOnRealClusters(Pair, reflect_cases.ReflectionCases):
    """The cases of reflection, each with cluster IDs and namespaces of its own."""

    async def test_borrowers_take_no_traffic(self) -> None:
        """The API server refuses a borrower external addresses, other types of its services, and tokens of accounts."""
        from twisted.internet import reactor

        await self.served()
        borrower = Client(from_grant(self.grant.api_url, self.grant.ca.encode(), lambda: self.grant.token), reactor)
        self.addCleanup(borrower.close)
        plain: dict[str, Any] = {"ports": [{"port": 80}]}

        async def refused(attempt: Any) -> str:
            try:
                await attempt
            except ApiError as error:
                return error.message
            return ""

        async def in_force() -> bool:
            probe = {"metadata": {"generateName": "probe-"}, "spec": {**plain, "externalIPs": ["192.0.2.1"]}}
            return "externalIPs" in await refused(borrower.create(SERVICES, probe, self.remote))

        await self.eventually(in_force)
        chosen = {
            "metadata": {"name": "chosen"},
            "spec": {**plain, "type": "LoadBalancer", "loadBalancerIP": "192.0.2.9"},
        }
        self.assertIn("loadBalancerIP", await refused(borrower.create(SERVICES, chosen, self.remote)))
        await borrower.create(SERVICES, {"metadata": {"name": "fine"}, "spec": plain}, self.remote)
        for change, word in (({"externalIPs": ["192.0.2.1"]}, "externalIPs"), ({"type": "NodePort"}, "type")):
            said = await refused(borrower.patch(SERVICES, "fine", {"spec": change}, self.remote))
            self.assertIn(word, said)
        await borrower.patch(SERVICES, "fine", {"spec": {"ports": [{"port": 81}]}}, self.remote)
        token = {
            "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        }
        self.assertIn("service accounts", await refused(borrower.create(SECRETS, token, self.remote)))
        await self.lender.patch(SERVICES, "fine", {"spec": {"type": "NodePort"}}, self.remote)


class NeedsOnRealClusters(Pair, needs_cases.TokenCases):
    """What pods need besides, each case with cluster IDs and namespaces of its own."""
