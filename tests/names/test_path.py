"""From a tenant's ShadowPod to an answer: hosting, control and a process that answers, on the sandbox's API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import DatagramProtocol, Factory
from twisted.internet.task import deferLater
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.names import dns
from twisted.trial.unittest import TestCase

from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACES,
    NETWORKPOLICIES,
    PODS,
    SERVICES,
    SHADOWPODS,
)
from liqod.model.ids import ClusterID
from liqod.model.names import ORIGIN_LABEL, SYSTEM_NAMESPACE, remote_namespace, tenant_namespace
from liqod.model.records.name_service import DOMAIN_ANNOTATION
from liqod.names import tables
from liqod.names.records import NameServices, service_body
from liqod.names.service import Names
from tests.facts.stated import state_networks
from tests.hosting.side import Events, pod_spec
from tests.names.cases import Authority, address, contents, query
from tests.names.test_server import LOCAL, Pod

reactor: Any = _reactor
T = TypeVar("T")


class PathTests(TestCase):
    """One tenant with a namespace ``shop``, whose own cluster is home.example."""

    timeout = 60
    peer = ClusterID("rome")

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        cluster = SandboxCluster(reactor, "lender", [SandboxNode("one", cpu="64", memory="64Gi")])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.admin = Client(client_config(cluster), reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        await self.admin.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        self.authority = Authority({})
        listening = reactor.listenUDP(0, self.authority, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        self.dns_port = listening.getHost().port
        self.events = Events()
        await self.start_control()

    async def becomes(self, check: Callable[[], Awaitable[T]], what: str) -> T:
        """Wait until the answer is true; the test's own time-out is the end."""
        while True:
            try:
                if answer := await check():
                    return answer
            except NotFound:
                pass
            await deferLater(reactor, 0.05)

    async def tenant(self, local: str = "shop", peer: str = "rome") -> str:
        """Lend to a peer, and grant it a namespace; returns the namespace's name."""
        await self.admin.create(FOREIGNCLUSTERS, {"metadata": {"name": peer}, "spec": {"clusterID": peer}})
        status = {"status": {"lent": {"resources": {"cpu": "10"}}}}
        await self.admin.patch(FOREIGNCLUSTERS, peer, status, subresource="status")
        await self.hosting.admit(ClusterID(peer), {"cpu": "10"})
        remote = remote_namespace(local, peer)
        await self.hosting.map_namespace(ClusterID(peer), local, remote)
        return remote

    def configured(self, slot: int) -> Settings:
        """Return the settings of the daemon, or of a process for a slot; ports are this test's own."""
        # Below the ports that the kernel gives to sockets without one of their own.
        first = 10240 + self.dns_port % 20000
        names = f'enabled = true\nslot = {slot}\nfirst-port = {first}\nupstream = ["{LOCAL}:{self.dns_port}"]'
        return parse(f"[names]\n{names}", {})

    async def start_control(self) -> None:
        """Start what control runs: hosting, and the services of names."""
        settings = self.configured(1)
        client = Client(self.admin.config, reactor)
        informers = Informers(client, reactor)
        self.hosting = Hosting(
            client,
            informers,
            reactor,
            settings=settings,
            cluster_id=ClusterID("lender"),
            access=ApiAccess(self.admin.config.server, ""),
            recorder=self.events,
        )
        control = NameServices(client, reactor, informers, settings, recorder=self.events)
        for service in (informers, self.hosting, control):
            service.startService()
        await informers.when_synced()

        async def end() -> None:
            await control.stopService()
            await self.hosting.stopService()
            await informers.stopService()
            await client.close()

        self.addCleanup(end)

    async def names(self, slot: int = 1) -> Names:
        """Start a process that answers, and return it once it does."""
        process = self.process(self.configured(slot))
        await process.ready.wait()
        return process

    def process(self, settings: Settings) -> Names:
        """Start a process that answers."""
        client = Client(self.admin.config, reactor)
        informers = Informers(client, reactor)
        process = Names(reactor, client, informers, settings, LOCAL)
        informers.startService()
        process.startService()

        async def end() -> None:
            if process.running:
                await process.stopService()
            await informers.stopService()
            await client.close()

        self.addCleanup(end)
        return process

    async def ready(self, *ports_of: int) -> list[int]:
        """Wait until the services of both slots lead to processes, those of these slots; return the ports there."""
        wanted = [await self.port(slot) for slot in ports_of]

        async def check() -> list[int] | None:
            found = []
            for slot in (1, 2):
                piece = await self.admin.get(ENDPOINTSLICES, f"liqod-names-{slot}", tenant_namespace(self.peer))
                if not piece["endpoints"][0]["conditions"].get("ready"):
                    return None
                found.append(piece["ports"][0]["port"])
            return found if found == wanted else None

        return await self.becomes(check, f"ready, at {wanted}") or []

    async def port(self, slot: int) -> int:
        """Return the tenant's port in the process of a slot."""

        async def check() -> int:
            made = await self.admin.get(SERVICES, f"liqod-names-{slot}", tenant_namespace(self.peer))
            return int(made["spec"]["ports"][0]["targetPort"])

        return await self.becomes(check, f"the service of slot {slot}")

    def pod_at(self, port: int) -> Pod:
        """Return a pod that asks at a port."""
        pod = Pod(port)
        listening = reactor.listenUDP(0, pod, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        return pod

    async def pod_of(self, namespace: str, name: str = "web", domain: str = "home.example") -> dict[str, Any]:
        """Create a ShadowPod as a cluster of a domain does, and return its pod."""
        annotations = {DOMAIN_ANNOTATION: domain}
        metadata = {"name": name, "labels": {ORIGIN_LABEL: self.peer}, "annotations": annotations}
        await self.admin.create(SHADOWPODS, {"metadata": metadata, "spec": {"pod": pod_spec()}}, namespace)

        async def made() -> dict[str, Any]:
            return await self.admin.get(PODS, name, namespace)

        return await self.becomes(made, "the pod")

    async def test_named(self) -> None:
        """A pod asks the tenant's two services; what it asks there is answered by its home's names."""
        await self.names(1)
        namespace = await self.tenant()
        first, _ = await self.ready(1, 1)
        spec = (await self.pod_of(namespace))["spec"]
        servers = [
            (await self.admin.get(SERVICES, f"liqod-names-{slot}", tenant_namespace(self.peer)))["spec"]["clusterIP"]
            for slot in (1, 2)
        ]
        self.assertEqual((spec["dnsPolicy"], spec["dnsConfig"]["nameservers"]), ("None", servers))
        self.assertEqual(spec["dnsConfig"]["searches"][0], "shop.svc.home.example")
        here = f"cache.{namespace}.svc.cluster.local"
        self.authority.table[here] = [address(here, "10.96.0.7")]
        pod = self.pod_at(first)

        async def answered() -> bool:
            return contents(await pod.ask(query("cache.shop.svc.home.example"))) == [
                ("cache.shop.svc.home.example", "10.96.0.7")
            ]

        await self.becomes(answered, "the answer, once the process knows the domain")
        self.assertEqual((await pod.ask(query(here))).rCode, dns.ENAME)

    async def test_another_domain(self) -> None:
        """Where a home says another domain, that is said at the pods that were made before, and at no other one."""
        await self.names(1)
        namespace = await self.tenant()
        await self.ready(1, 1)
        await self.pod_of(namespace)
        await self.pod_of(namespace, "later", "new.example")
        about = "ClusterDomainChanged"

        async def said() -> bool:
            return any(about in what for what, _ in self.events.seen)

        await self.becomes(said, "the event")
        seen = [(what, text) for what, text in self.events.seen if about in what]
        self.assertEqual([what for what, _ in seen], [f"Warning {namespace}/web {about}"])
        self.assertIn("was home.example, and it is new.example now", seen[0][1])

    async def test_reached_through_the_policy(self) -> None:
        """The network policy of the tenant's namespaces lets its own port through, and no other one."""
        # A policy that was written before the process answered is changed only where these are known.
        await state_networks(self.admin)
        await self.names(1)
        namespace = await self.tenant()
        port, _ = await self.ready(1, 1)

        async def opened() -> bool:
            policy = await self.admin.get(NETWORKPOLICIES, "liqod-tenant", namespace)
            block = {"ipBlock": {"cidr": f"{LOCAL}/32"}}
            rules = [rule["ports"] for rule in policy["spec"]["egress"] if rule["to"] == [block]]
            return rules == [[{"protocol": one, "port": port} for one in ("UDP", "TCP")]]

        await self.becomes(opened, "the rule for the name service")

    async def test_nobody_to_ask(self) -> None:
        """Without a server of names in the cluster or the configuration a process is not ready, and says why once."""
        with capturedLogs() as logged:
            process = self.process(parse("[names]\nenabled = true", {}))

            async def said() -> bool:
                return "set [names] upstream" in process.summary

            await self.becomes(said, "the reason")
            for _ in range(2):
                process.enqueue("again")
                await deferLater(reactor, 0.1)
        found = [formatEvent(one) for one in logged if one["log_level"] is LogLevel.warn]
        self.assertEqual([line for line in found if line and "names are not answered" in line], found)
        self.assertEqual(len(found), 1, found)
        self.assertFalse(process.ready.is_open)

    async def test_without_a_process(self) -> None:
        """Where nobody answers a pod is made as without names, its events say so, and there is no service."""
        namespace = await self.tenant()
        spec = (await self.pod_of(namespace))["spec"]
        self.assertNotEqual(spec.get("dnsPolicy"), "None")

        async def said() -> bool:
            return f"Warning {namespace}/web NoNameService" in [what for what, _ in self.events.seen]

        await self.becomes(said, "the event")
        with self.assertRaises(NotFound):
            await self.admin.get(SERVICES, "liqod-names-1", tenant_namespace(self.peer))

    async def test_more_tenants_than_ports(self) -> None:
        """Services in granted namespaces take no port; the tenant that finds none is said so, until one is free."""
        self.patch(tables, "MAX_TENANTS", 1)
        await self.names(1)
        namespace = await self.tenant()
        first = self.configured(1).names.first_port
        for number in range(2):
            # The name of the first one would come before that of the tenant's own namespace.
            body = service_body("paris", 1, first + number, "")
            body["metadata"] |= {"name": f"planted-{number}", "namespace": namespace}
            await self.admin.create(SERVICES, body)
        await self.ready(1, 1)
        await self.tenant("own", "paris")
        full = f"Warning /{tenant_namespace(ClusterID('paris'))} NoNamePort"

        async def said() -> bool:
            return full in [what for what, _ in self.events.seen]

        await self.becomes(said, "the event")
        self.assertEqual(self.flushLoggedErrors(), [])
        await self.admin.delete(NAMESPACES, tenant_namespace(self.peer))

        async def made() -> bool:
            found = await self.admin.get(SERVICES, "liqod-names-2", tenant_namespace(ClusterID("paris")))
            return found["spec"]["ports"][0]["targetPort"] in (first, first + 1)

        await self.becomes(made, "the services of the other tenant")

    async def test_two_processes(self) -> None:
        """Each service leads to the process of its slot, to the other one while there is none, and then to nobody."""
        one = await self.names(1)
        await self.tenant()
        await self.ready(1, 1)
        two = await self.names(2)
        first, second = await self.ready(1, 2)
        self.assertNotEqual(first, second)
        await one.stopService()
        await self.ready(2, 2)
        await two.stopService()

        async def silent() -> bool:
            piece = await self.admin.get(ENDPOINTSLICES, "liqod-names-1", tenant_namespace(self.peer))
            return piece["endpoints"][0]["conditions"]["ready"] is False

        await self.becomes(silent, "nobody answers, and the address stays")
        self.assertEqual((await self.admin.list(LEASES, SYSTEM_NAMESPACE)).items, [])

    async def test_a_stop_that_no_api_server_answers(self) -> None:
        """The ports are closed all the same when the stop times out: the next term needs them."""
        process = await self.names(1)
        await self.tenant()
        port, _ = await self.ready(1, 1)
        asked: Deferred[None] = Deferred()

        async def delete(*_: object) -> None:
            asked.callback(None)
            await Deferred()

        self.patch(process._client, "delete", delete)
        stopping = process.stopService()
        await asked
        stopping.cancel()
        await stopping
        for listening in (
            reactor.listenTCP(port, Factory(), interface=LOCAL),
            reactor.listenUDP(port, DatagramProtocol(), interface=LOCAL),
        ):
            await listening.stopListening()

    async def test_two_tenants(self) -> None:
        """At the port of one tenant nobody learns of another one's namespaces."""
        await self.names(1)
        mine = await self.tenant()
        theirs = await self.tenant("own", "paris")
        for namespace in (mine, theirs):
            name = f"cache.{namespace}.svc.cluster.local"
            self.authority.table[name] = [address(name, "10.96.0.7")]
        first, _ = await self.ready(1, 1)
        pod = self.pod_at(first)

        async def answered() -> bool:
            return bool(contents(await pod.ask(query("cache.shop.svc.cluster.local"))))

        await self.becomes(answered, "the tenant's own name")
        for name in ("cache.own.svc.cluster.local", f"cache.{theirs}.svc.cluster.local"):
            self.assertEqual((await pod.ask(query(name))).rCode, dns.ENAME)

    async def test_whose_an_address_is(self) -> None:
        """Names of others at addresses of this cluster are not answered: its facts say which they are, and while they
        do not, any may be.
        """
        await self.names(1)
        await self.tenant()
        first, _ = await self.ready(1, 1)
        pod = self.pod_at(first)
        zones = ["4.4.8.8.in-addr.arpa", "15.14.13.12.in-addr.arpa"]
        for zone in zones:
            self.authority.table[zone] = [dns.RRHeader(zone, dns.PTR, dns.IN, 60, dns.Record_PTR("a.example", 60))]

        async def named() -> list[bool]:
            return [bool(contents(await pod.ask(query(zone, dns.PTR)))) for zone in zones]

        self.assertEqual(await named(), [False, False])
        for pods, expected in (
            (["12.13.0.0/16"], [True, False]),
            (["12.14.0.0/16"], [True, True]),
            ([], [False, False]),
        ):
            await state_networks(self.admin, pods)

            async def followed(expected: list[bool] = expected) -> bool:
                return await named() == expected

            await self.becomes(followed, f"the answers with the pods of {pods}")
