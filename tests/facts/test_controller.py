"""The record of the facts is written when something changed, and not again."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.facts import controller as facts_controller
from liqod.facts.controller import FactsController
from liqod.facts.observed import CIDRS, KUBEADM
from liqod.facts.reading import OUTSIDE
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, Invalid, NotFound
from liqod.kube.resources import CLUSTERFACTS, CONFIGMAPS, NODES
from liqod.model.records.facts import (
    DAEMON_ADDRESSES,
    DISTRIBUTION,
    FACTS_NAME,
    POD_NETWORKS,
    SERVICE_NETWORKS,
    VERSION,
    ClusterFacts,
    values_of,
)

REACTOR: Any = reactor


class RecordTests(TestCase):
    """A cluster with one node and one daemon."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        await manifests.ensure(self.client)
        await self.client.create(NODES, {"metadata": {"name": "one"}, "spec": {"podCIDRs": ["10.201.0.0/24"]}})

    def start(self) -> FactsController:
        """Start a daemon's half of it, with watches of its own."""
        informers = Informers(self.client, REACTOR)
        controller = FactsController(REACTOR, self.client, informers, Settings(), host="192.0.2.1")
        for service in (informers, controller):
            service.startService()
            self.addCleanup(service.stopService)
        return controller

    async def record(self, name: str, values: list[str]) -> ClusterFacts:
        """Return the record once a fact has these values."""
        while True:
            try:
                found = await self.client.get(CLUSTERFACTS, FACTS_NAME, view=ClusterFacts)
            except NotFound:
                found = None
            if found is not None and values_of(found, name) == values:
                return found
            await deferLater(REACTOR, 0.02)

    async def test_nodes_change(self) -> None:
        """A change of the nodes is in the record, and what is the same is not written again."""
        controller = self.start()
        before = await self.record(POD_NETWORKS, ["10.201.0.0/16"])
        self.assertEqual(values_of(before, DAEMON_ADDRESSES), ["192.0.2.1"])
        await controller.reconcile(before.key)
        again = await self.client.get(CLUSTERFACTS, FACTS_NAME, view=ClusterFacts)
        self.assertEqual(again.metadata.resource_version, before.metadata.resource_version)
        info = {"kubeletVersion": "v1.35.0+k3s1"}
        await self.client.patch(NODES, "one", {"status": {"nodeInfo": info}}, subresource="status")
        await self.record(DISTRIBUTION, ["k3s"])

    async def test_upgrade(self) -> None:
        """The version of an API server that was upgraded is found when things are read again."""
        self.patch(facts_controller, "REREAD", 0.05)
        self.start()
        before = await self.record(POD_NETWORKS, ["10.201.0.0/16"])
        self.assertNotEqual(values_of(before, VERSION), ["v9.9.9"])
        raw = self.client.raw

        async def upgraded(method: str, path: str, *more: Any, **named: Any) -> bytes:
            return b'{"gitVersion": "v9.9.9"}' if path == "/version" else await raw(method, path, *more, **named)

        self.patch(self.client, "raw", upgraded)
        await self.record(VERSION, ["v9.9.9"])

    async def test_ranges_are_asked_for_again(self) -> None:
        """An API server that did not name its network of Services is asked again; one that did is not."""
        self.patch(facts_controller, "REREAD", 0.05)
        answers: list[Exception] = [Forbidden(403, "Forbidden", "not allowed", {})] * len(OUTSIDE)
        answers += [Invalid(422, "Invalid", "The range of valid IPs is 10.112.0.0/12", {})] * len(OUTSIDE)
        asked = iter(answers)
        find, create = self.client.list, self.client.create

        async def old(resource: Any, *more: Any, **named: Any) -> Any:
            if resource == CIDRS.resource:
                raise NotFound(404, "NotFound", "no such kind", {})
            return await find(resource, *more, **named)

        async def refuse(resource: Any, *more: Any, **named: Any) -> Any:
            if named.get("dry_run"):
                raise next(asked)
            return await create(resource, *more, **named)

        self.patch(self.client, "list", old)
        self.patch(self.client, "create", refuse)
        self.start()
        await self.record(SERVICE_NETWORKS, ["10.112.0.0/12"])
        await deferLater(REACTOR, 0.2)
        self.assertIsNone(next(asked, None))

    async def test_other_daemon(self) -> None:
        """A second daemon finds the record and writes nothing; one that somebody deleted is made again."""
        self.start()
        before = await self.record(POD_NETWORKS, ["10.201.0.0/16"])
        other = self.start()
        await other.reconcile(before.key)
        again = await self.client.get(CLUSTERFACTS, FACTS_NAME, view=ClusterFacts)
        self.assertEqual(again.metadata.resource_version, before.metadata.resource_version)
        await self.client.delete(CLUSTERFACTS, FACTS_NAME)
        made = await self.record(POD_NETWORKS, ["10.201.0.0/16"])
        self.assertNotEqual(made.metadata.uid, before.metadata.uid)

    async def test_unreadable(self) -> None:
        """What the daemon may not read is not taken for absent: what was known stays."""
        text = "networking: {podSubnet: 10.244.0.0/16}"
        body = {"metadata": {"name": KUBEADM.name}, "data": {"ClusterConfiguration": text}}
        await self.client.create(CONFIGMAPS, body, KUBEADM.namespace)
        first = self.start()
        await self.record(DISTRIBUTION, ["kubeadm"])
        await first.stopService()
        get = self.client.get

        async def denied(resource: Any, name: str, *more: Any, **named: Any) -> Any:
            if name == KUBEADM.name:
                raise Forbidden(403, "Forbidden", "not allowed", {})
            return await get(resource, name, *more, **named)

        self.patch(self.client, "get", denied)
        second = self.start()
        await second.reconcile((await self.record(DISTRIBUTION, ["kubeadm"])).key)
        await self.record(DISTRIBUTION, ["kubeadm"])
