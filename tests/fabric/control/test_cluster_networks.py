"""Which Services of this cluster the pods of a peer use by addresses that the peer's own Services have, too."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from liqod.config.schema import NetworkSettings
from liqod.demo.access import client_config
from liqod.fabric.control.cluster_networks import ClusterNetworks
from liqod.fabric.state.services import service_maps
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NAMESPACES, SERVICES
from liqod.model.ids import ClusterID
from liqod.model.names import ORIGIN_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL
from liqod.model.records.name_service import LABEL as NAME_SERVICE

REACTOR: Any = reactor
ROME, PARIS = ClusterID("rome"), ClusterID("paris")
MAPS = service_maps(["10.96.0.0/12"], ["240.0.0.0/12"])


class OwnServicesTests(TestCase):
    """A cluster with a namespace for each of two tenants."""

    timeout = 40

    async def test_what_a_tenant_planted(self) -> None:
        """A Service is a tenant's name service in its tenant namespace alone, whatever its labels say."""
        client = await self._cluster()
        services = (
            ("liqo-tenant-rome", "liqod-names-1", {NAME_SERVICE: "1", REMOTE_CLUSTER_LABEL: ROME}, "10.96.1.1"),
            ("shop-rome", "cache", {ORIGIN_LABEL: ROME}, "10.96.1.2"),
            ("shop-paris", "planted", {NAME_SERVICE: "1", REMOTE_CLUSTER_LABEL: ROME}, "10.96.1.3"),
            ("shop-paris", "cache", {ORIGIN_LABEL: PARIS}, "10.96.1.4"),
        )
        for namespace, name, labels, address in services:
            body = {
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {"clusterIP": address, "ports": [{"port": 53}]},
            }
            await client.create(SERVICES, body)
        informers = Informers(client, REACTOR)
        networks = ClusterNetworks(client, informers, NetworkSettings(), names=True)
        informers.startService()
        self.addCleanup(informers.stopService)
        await networks.when_synced()
        self.assertEqual(networks.own_services(MAPS, ROME), {"10.96.1.1", "10.96.1.2"})
        self.assertEqual(networks.own_services(MAPS, PARIS), {"10.96.1.4"})

    async def _cluster(self) -> Client:
        cluster = SandboxCluster(REACTOR, "lender")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        await manifests.ensure(client)
        for tenant in (ROME, PARIS):
            labels = {REMOTE_CLUSTER_LABEL: tenant}
            own = {"name": f"liqo-tenant-{tenant}", "labels": {**labels, TENANT_NAMESPACE_LABEL: "true"}}
            granted = {"name": f"shop-{tenant}", "labels": labels, "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"}}
            for metadata in (own, granted):
                await client.create(NAMESPACES, {"metadata": metadata})
        return client
