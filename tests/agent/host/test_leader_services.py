"""Services that lead to the daemon that leads: their endpoints follow the lead."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.agent.account.rights import Right, required
from liqod.agent.host.leader_services import LeaderServices, LedService, LedServiceSpec, body_of, slice_of
from liqod.config.load import parse
from liqod.demo.access import client_config
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import ENDPOINTSLICES, NAMESPACES, SERVICES
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.name_service import ServicePort
from tests.waiting import becomes

REACTOR: Any = reactor
OWN = "liqo-system"
SETTINGS = parse('[kubernetes]\nleader-services = ["liqod-webhook", "liqod-peers"]', {})
CEILING = 30.0


def service(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Service of liqod's namespace with one port."""
    ports = [{"name": "webhook", "port": 443, "targetPort": 5873, "protocol": "TCP"}]
    return {"metadata": {"name": name, "namespace": OWN}, "spec": {"ports": ports, **spec}}


class SliceTests(SynchronousTestCase):
    """What is written for a Service."""

    def test_contents(self) -> None:
        """The ports are the Service's target ports, by their names; one with a name as its target is left out."""
        ports = [
            ServicePort(name="webhook", port=443, target_port=5873),
            ServicePort(name="other", port=80, target_port="http"),
        ]
        meta = ObjectMeta(name="liqod-webhook", namespace=OWN, uid="u")
        body = body_of(found := LedService(metadata=meta, spec=LedServiceSpec(ports=ports)), slice_of(found, "fd00::1"))
        self.assertEqual(body["ports"], [{"name": "webhook", "port": 5873, "protocol": "TCP"}])
        self.assertEqual((body["addressType"], body["endpoints"][0]["addresses"]), ("IPv6", ["fd00::1"]))
        self.assertEqual(body["metadata"]["labels"]["kubernetes.io/service-name"], "liqod-webhook")
        self.assertEqual([one["uid"] for one in body["metadata"]["ownerReferences"]], ["u"])

    def test_rights(self) -> None:
        """The daemon's account may follow Services and write EndpointSlices in its namespace, whatever else is off."""
        wanted = {Right("list", SERVICES, namespace=OWN), Right("patch", ENDPOINTSLICES, namespace=OWN)}
        everywhere = {Right("list", SERVICES), Right("patch", ENDPOINTSLICES)}
        rights = set(required(SETTINGS))
        self.assertTrue(wanted <= rights or everywhere <= rights)


class LeadTests(TestCase):
    """At the API server of a sandbox."""

    timeout = 120

    async def setUp(self) -> None:  # type: ignore[override]
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        self.client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        await self.client.create(NAMESPACES, {"metadata": {"name": OWN}})

    def lead(self, address: str) -> LeaderServices:
        """Have a daemon lead at an address."""
        informers = Informers(self.client, REACTOR)
        services = LeaderServices(self.client, REACTOR, informers, SETTINGS, address=address)
        for one in (informers, services):
            one.startService()
            self.addCleanup(one.stopService)
        return services

    async def leads_to(self, name: str, address: str) -> None:
        """Wait until a Service leads to an address."""

        async def check() -> bool:
            found = await self.client.get(ENDPOINTSLICES, name, OWN)
            return [one["addresses"] for one in found["endpoints"]] == [[address]]

        await becomes(check, f"{name} leads to {address}", CEILING)

    async def test_follows_the_lead(self) -> None:
        """A Service that is made before or after leads to who leads; the next leader takes it over."""
        await self.client.create(SERVICES, service("liqod-webhook"))
        first = self.lead("192.0.2.1")
        await self.leads_to("liqod-webhook", "192.0.2.1")
        await self.client.create(SERVICES, service("liqod-peers"))
        await self.leads_to("liqod-peers", "192.0.2.1")
        await first.stopService()
        self.lead("192.0.2.2")
        await self.leads_to("liqod-webhook", "192.0.2.2")
        await self.leads_to("liqod-peers", "192.0.2.2")

    async def test_of_others(self) -> None:
        """A Service with a selector has its endpoints from Kubernetes, and one that is not named is not touched."""
        await self.client.create(SERVICES, service("liqod-webhook", selector={"app": "mine"}))
        await self.client.create(SERVICES, service("another"))
        await self.client.create(SERVICES, service("liqod-peers"))
        self.lead("192.0.2.1")
        await self.leads_to("liqod-peers", "192.0.2.1")
        slices = (await self.client.list(ENDPOINTSLICES, OWN)).items
        mine = [one["metadata"]["name"] for one in slices if one.get("endpoints")]
        self.assertEqual(mine, ["liqod-peers"])

    async def test_made_again(self) -> None:
        """The slice goes with its Service, and the next Service of the name gets one of its own."""
        await self.client.create(SERVICES, service("liqod-webhook"))
        self.lead("192.0.2.1")
        await self.leads_to("liqod-webhook", "192.0.2.1")
        before = await self.client.get(ENDPOINTSLICES, "liqod-webhook", OWN)
        await self.client.delete(SERVICES, "liqod-webhook", OWN)
        await self.client.create(SERVICES, service("liqod-webhook"))

        async def check() -> bool:
            try:
                found = await self.client.get(ENDPOINTSLICES, "liqod-webhook", OWN)
            except NotFound:
                return False
            return bool(found["metadata"]["uid"] != before["metadata"]["uid"])

        await becomes(check, "another slice", CEILING)
