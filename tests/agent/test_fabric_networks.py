"""The network to a lender as virtual kubelets see it: what notifies them, and what does not."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.agent.fabric_networks import FabricNetworks
from liqod.config.schema import NetworkSettings, Settings
from liqod.demo.access import client_config
from liqod.fabric.service import Fabric
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKCONFIGS
from liqod.model.ids import ClusterID
from tests.fabric.cases import fabric_host
from tests.fabric.fake_kernel import FakeKernel
from tests.kubelet.networks import HomeNetworks

REACTOR: Any = reactor
MILAN = ClusterID("milan")


class TranslationTests(TestCase):
    """A fabric whose only peer has just been assigned a network."""

    timeout = 40

    async def test_only_a_changed_mapping_notifies(self) -> None:
        """Passes of the converge loop are no news; another mapping of the lender's pods is, once."""
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        await manifests.ensure(client)
        informers = Informers(client, REACTOR)
        settings = Settings(network=NetworkSettings(mode="wireguard"))
        networks = FabricNetworks(Fabric(fabric_host(client, informers, settings, FakeKernel())), HomeNetworks())
        network = networks.to(MILAN)
        seen: list[int] = []
        network.translation.subscribe(seen.append)
        informers.startService()
        self.addCleanup(informers.stopService)
        for _ in range(3):
            networks.network_changed()
        self.assertEqual(seen, [])
        await client.create(
            NETWORKCONFIGS,
            {"metadata": {"name": MILAN}, "spec": {"clusterID": MILAN, "remap": {"podCIDRs": ["10.64.0.0/16"]}}},
        )
        status = {"status": {"remote": {"podCIDRs": ["10.201.0.0/16"]}}}
        await client.patch(NETWORKCONFIGS, MILAN, status, subresource="status", view=None)
        while network.to_home("10.201.0.7") != "10.64.0.7":
            await deferLater(REACTOR, 0.02)
        for _ in range(3):
            networks.network_changed()
        self.assertEqual(seen, [1])
