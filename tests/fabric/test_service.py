"""The fabric of a gateway without peers, on a cluster and a kernel in memory."""

from __future__ import annotations

import gc
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import NetworkSettings, Settings
from liqod.demo.access import client_config
from liqod.fabric.service import Fabric
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.kube.resources import NAMESPACES, SECRETS
from tests.fabric.cases import fabric_host
from tests.fabric.fake_kernel import FakeKernel

REACTOR: Any = reactor


class GatewayWithoutPeersTests(TestCase):
    """A cluster that has no peers yet."""

    timeout = 40

    async def test_the_key_exists_before_the_first_peer(self) -> None:
        """The cluster's own key is made before there is any peer, and nothing is done to the host."""
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        await manifests.ensure(client)
        await client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        informers, kernel = Informers(client, REACTOR), FakeKernel()
        before = kernel.state()
        fabric = Fabric(fabric_host(client, informers, Settings(network=NetworkSettings(mode="wireguard")), kernel))
        for service in (informers, fabric):
            service.startService()
            self.addCleanup(service.stopService)
        while not (made := (await client.list(SECRETS, "liqo-system")).items):
            await deferLater(REACTOR, 0.02)
        self.assertEqual([secret["metadata"]["name"] for secret in made], ["liqod-tunnel"])
        self.assertEqual(kernel.state(), before)

    async def test_stopped_before_it_synced(self) -> None:
        """A gateway that is asked to stop while it waits for its records says nothing about that."""
        client = Client(ClientConfig("https://192.0.2.1:6443"), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        network = Settings(network=NetworkSettings(mode="wireguard"))
        fabric = Fabric(fabric_host(client, Informers(client, REACTOR), network, FakeKernel()))
        fabric.startService()
        await fabric.stopService()
        del fabric
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])
