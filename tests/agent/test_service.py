"""The daemon as a whole on a sandbox cluster: ready, standing by, taking over, waiting for its API server."""

from __future__ import annotations

import base64
import gc
import socket
import weakref
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from kubesandbox.cluster import SandboxCluster
from twisted.application.service import IService, MultiService
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent as WebAgent
from twisted.web.client import HTTPConnectionPool, readBody

from liqod.agent import service
from liqod.agent.host.process_lease import SOON
from liqod.agent.service import Agent
from liqod.agent.state import Leading, StandingBy, Waiting
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.fabric.agent.converge import FabricHost
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.flow.clocks import utc_now
from liqod.flow.controller import Controller
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CONFIGMAPS,
    CRDS,
    LEASES,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICEACCOUNTS,
    Resource,
)
from liqod.model.diagnosis.processes import ProcessFacts, ProcessLease, lease_name, process_of
from liqod.model.objects.meta import Object
from liqod.names.service import Names
from tests.metrics.scraper import Scraper

REACTOR: Any = reactor
NOTHINGS = Resource("example.org", "v1", "nothings", "Nothing", namespaced=False)
"""A kind that no API server has."""
SETTINGS = """
[discovery]
mdns = false
[peering]
listen = "tcp:0:interface=127.0.0.1"
[webhook]
listen = "tcp:0:interface=127.0.0.1"
[kubelet]
listen = "tcp:0:interface=127.0.0.1"
node-address = "127.0.0.1"
[metrics]
listen = "tcp:0:interface=127.0.0.1"
[leader]
lease-duration = 3
renew-interval = 0.3
retry-interval = 0.3
[network]
mode = "none"
"""


def settings(**environ: str) -> Settings:
    return parse(SETTINGS, environ)


WAITS = 2
"""What of a term waits for the end of the daemon: the term itself, and its state."""


def own_date() -> datetime:
    """Return the date, by a clock that a daemon is given."""
    return datetime.now(UTC)


def controllers(services: Iterable[IService]) -> Iterator[Controller[Any]]:
    """Yield every controller in a tree of services."""
    for one in services:
        if isinstance(one, Controller):
            yield one
        if isinstance(one, MultiService):
            yield from controllers(one)


class DaemonCase(TestCase):
    """A cluster in this process, and daemons of it."""

    timeout = 30

    def setUp(self) -> None:
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.port = self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))

    def start(self, config: ClientConfig | None = None, **environ: str) -> Agent:
        agent = Agent(REACTOR, settings(**environ), client_config=config or client_config(self.cluster))
        agent.startService()
        self.addCleanup(lambda: agent.stopService() if agent.running else None)
        return agent

    async def until(self, what: Any, seconds: float = 15) -> None:
        deadline = REACTOR.seconds() + seconds
        while not what():
            if REACTOR.seconds() > deadline:
                raise AssertionError("it did not happen in time")
            await deferLater(REACTOR, 0.02)

    async def page(self, agent: Agent, path: str) -> tuple[int, str]:
        web = WebAgent(REACTOR, pool=HTTPConnectionPool(REACTOR, persistent=False))
        response = await web.request(b"GET", f"http://127.0.0.1:{agent.metrics_port}{path}".encode())
        return response.code, (await readBody(response)).decode()


class DaemonTests(DaemonCase):
    """One daemon, or two."""

    async def test_ready(self) -> None:
        """It leads, listens, configures the webhook, and says so on its pages."""
        agent = self.start()
        self.assertEqual((await self.page(agent, "/readyz"))[0], 503)
        await agent.ready.wait()
        self.assertEqual((agent.status, agent.missing()), ("leading", []))
        self.assertEqual(await self.page(agent, "/readyz"), (200, "ok\n"))
        assert agent.features is not None
        self.assertGreater(agent.features.peering.port, 0)
        self.assertEqual(
            [one["metadata"]["name"] for one in (await self.client.list(MUTATINGWEBHOOKS)).items], ["liqod"]
        )
        code, numbers = await self.page(agent, "/metrics")
        self.assertEqual(code, 200)
        for line in (
            "liqod_leading 1.0",
            'liqod_api_requests_total{cluster="home"',
            "liqod_reactor_lag_seconds_count",
            'liqod_events_dropped_total{cluster="home"} 0.0',
            'liqod_build_info{python="',
            'liqod_certificate_not_after_timestamp_seconds{what="identity"} ',
            'liqod_certificate_not_after_timestamp_seconds{what="webhook"} ',
            'liqod_certificate_not_after_timestamp_seconds{what="home"} ',
            "liqod_audit_file_failing 0.0",
        ):
            self.assertIn(line, numbers)

    async def test_metrics_from_elsewhere(self) -> None:
        """With TLS and authentication its pages have a certificate of the cluster, and its probes go on as before."""
        agent = self.start(LIQOD_METRICS__TLS="own", LIQOD_METRICS__AUTHENTICATION="kubernetes")
        await agent.ready.wait()
        pages = agent.pages
        assert pages is not None
        await self.until(lambda: pages.certificate_end)
        secret = await self.client.get(SECRETS, "liqod-metrics", "liqo-system")
        ca = base64.b64decode(secret["data"]["ca.crt"])
        scraper = Scraper(agent.metrics_port, "liqod-metrics.liqo-system.svc", ca)
        self.assertEqual(await scraper.get("/healthz"), (200, "ok\n"))
        self.assertEqual((await scraper.get("/metrics"))[0], 401)
        await self.client.create(SERVICEACCOUNTS, {"metadata": {"name": "prometheus"}}, "default")
        request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await self.client.create(SERVICEACCOUNTS, request, "default", name="prometheus", subresource="token")
        token = made["status"]["token"]
        self.assertEqual((await scraper.get("/metrics", token))[0], 403)
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        await self.client.create(CLUSTERROLES, {"metadata": {"name": "scrape"}, "rules": rules})
        binding = {
            "metadata": {"name": "scrape"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scrape"},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
        }
        await self.client.create(CLUSTERROLEBINDINGS, binding)
        # Its refusal is remembered for a while: another token of the account is not.
        request["spec"] = {"expirationSeconds": 7200}
        made = await self.client.create(SERVICEACCOUNTS, request, "default", name="prometheus", subresource="token")
        code, page = await scraper.get("/metrics", made["status"]["token"])
        self.assertEqual(code, 200)
        for line in (
            'liqod_certificate_not_after_timestamp_seconds{what="metrics"} ',
            'liqod_refusals_total{reason="ScrapeUnauthorized"} 1.0',
            'liqod_refusals_total{reason="ScrapeForbidden"} 1.0',
        ):
            self.assertIn(line, page)

    async def test_a_webhook_that_is_no_longer_configured(self) -> None:
        """Where its configuration was removed and may not be written, the daemon is not ready until it may be."""
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]
        reading = [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        ]
        group = "rbac.authorization.k8s.io"
        await self.client.create(CLUSTERROLES, {"metadata": {"name": "daemon"}, "rules": rules})
        binding = {
            "metadata": {"name": "daemon"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "daemon"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "daemon"}],
        }
        await self.client.create(CLUSTERROLEBINDINGS, binding)
        leaf = self.cluster.client_certificate("daemon")
        admin = client_config(self.cluster)
        agent = self.start(attrs.evolve(admin, client_cert_pem=leaf.certificate_pem, client_key_pem=leaf.key_pem))
        await agent.ready.wait()
        await self.client.patch(CLUSTERROLES, "daemon", {"rules": reading})
        await self.client.delete(MUTATINGWEBHOOKS, "liqod")
        await self.until(agent.missing)
        code, text = await self.page(agent, "/readyz")
        self.assertEqual((code, text.split(":")[0]), (503, "WebhookNotConfigured"))
        await self.client.patch(CLUSTERROLES, "daemon", {"rules": rules})
        await self.until(lambda: not agent.missing())
        self.assertEqual(await self.page(agent, "/readyz"), (200, "ok\n"))

    async def test_events_above_the_limit_are_counted(self) -> None:
        """Each event that the recorder drops is in the metrics."""
        agent = self.start()
        await agent.ready.wait()
        assert agent.features is not None
        regarding = {"kind": "Node", "name": "a"}
        for number in range(200):
            agent.features.recorder.record_event(regarding, "Normal", "Test", f"{number}")
        dropped = agent.features.recorder.dropped
        self.assertGreater(dropped, 0)
        self.assertIn(
            f'liqod_events_dropped_total{{cluster="home"}} {float(dropped)}\n', (await self.page(agent, "/metrics"))[1]
        )

    async def test_the_network_agent_does_nothing_else(self) -> None:
        """With role = "network" no feature runs: no listener for peers, no webhook, no kubelet; one lease."""
        agent = self.start(LIQOD_DAEMON__ROLE="network", LIQOD_NETWORK__MODE="wireguard")
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await self.until(lambda: agent.node is not None)
        self.assertIsInstance(agent.node, RecordedFabric)
        self.assertIsNone(agent.features)
        self.assertIsNone(agent.home)
        leases = [one["metadata"]["name"] for one in (await self.client.list(LEASES, "liqo-system")).items]
        own = lease_name("network", socket.gethostname())
        self.assertEqual([name for name in leases if name != own], ["liqod-network"])
        self.assertEqual((await self.client.list(MUTATINGWEBHOOKS)).items, [])
        self.assertEqual((await self.client.list(CRDS)).items, [])

    async def test_the_network_agent_has_the_daemons_date(self) -> None:
        """What it writes into records is dated by the clock that the daemon was given, as everywhere else."""
        hosts: list[FabricHost] = []

        class Made(RecordedFabric):
            def __init__(self, host: FabricHost) -> None:
                hosts.append(host)
                super().__init__(host)

        self.patch(service, "RecordedFabric", Made)
        agent = Agent(
            REACTOR,
            settings(LIQOD_DAEMON__ROLE="network", LIQOD_NETWORK__MODE="wireguard"),
            client_config=client_config(self.cluster),
            wall=own_date,
        )
        agent.startService()
        self.addCleanup(agent.stopService)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await self.until(lambda: hosts)
        self.assertIs(hosts[0].wall, own_date)

    async def test_control_has_no_kernel(self) -> None:
        """With role = "control" all but the network agent runs, and the daemon is ready without one."""
        agent = self.start(LIQOD_DAEMON__ROLE="control", LIQOD_NETWORK__MODE="wireguard")
        await agent.ready.wait()
        assert agent.features is not None
        self.assertEqual(agent.features.fabric.services if agent.features.fabric else None, [])
        self.assertIsNone(agent.node)

    async def test_every_controller_is_counted(self) -> None:
        """The steps of all controllers are in the daemon's metrics, also of the network and of the name services."""
        agent = self.start(
            LIQOD_DAEMON__ROLE="control",
            LIQOD_NETWORK__MODE="wireguard",
            LIQOD_NAMES__ENABLED="true",
            LIQOD_OFFLOADING__SPILLOVER="Return",
        )
        await agent.ready.wait()
        assert agent.features is not None
        found = list(controllers(agent.features.services))
        self.assertGreater(len(found), 20)
        self.assertEqual([one.name for one in found if one._metrics is not agent.registry], [])
        self.assertIn('liqod_reconciles_total{controller="network",', (await self.page(agent, "/metrics"))[1])

    async def test_processes_of_their_own_are_counted(self) -> None:
        """The same holds of the network agent and of the process that answers for names."""
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        for role, made in (("network", RecordedFabric), ("names", Names)):
            agent = self.start(LIQOD_DAEMON__ROLE=role, LIQOD_NETWORK__MODE="wireguard", LIQOD_NAMES__ENABLED="true")
            await self.until(lambda agent=agent: agent.node is not None)
            node = agent.node
            self.assertIsInstance(node, made)
            assert node is not None
            self.assertIs(node._metrics, agent.registry, role)

    async def test_says_what_it_does(self) -> None:
        """Its own Lease says that it works and where its webhook is, and is let go when it ends in order."""
        agent = self.start(LIQOD_LEADER__IDENTITY="gw1")
        await agent.ready.wait()
        name = lease_name("all", "gw1")

        async def said() -> ProcessFacts | None:
            leases = (await self.client.list(LEASES, "liqo-system", view=ProcessLease)).items
            return next((process_of(one, utc_now()) for one in leases if one.metadata.name == name), None)

        found = None
        while found is None or found.state != "works" or not found.webhook:
            await deferLater(REACTOR, 0.1)
            found = await said()
        self.assertEqual((found.role, found.host, found.identity, found.silent), ("all", "gw1", "gw1", False))
        self.assertTrue(found.webhook.startswith("https://127.0.0.1:"))
        assert found.skew is not None
        self.assertLess(abs(found.skew), 5)
        await agent.stopService()
        self.assertIsNone(await said())

    async def test_later_lists(self) -> None:
        """What is watched only later does not make it unready while it is read; a list that fails does."""
        agent = self.start()
        await agent.ready.wait()
        features = agent.features
        assert features is not None
        features.informers.of(CONFIGMAPS, Object, namespace="shop")
        self.assertEqual(agent.missing(), [])
        features.informers.of(NOTHINGS, Object)
        await self.until(agent.missing)
        self.assertEqual([one.code for one in agent.unmet()], ["CachesIncomplete"])

    async def test_what_its_lease_says_is_its_state(self) -> None:
        """What its own Lease says it lacks is its state as well, so that the end of that is written at once."""
        agent = self.start()
        await agent.ready.wait()
        features = agent.features
        assert features is not None
        lists = features.informers.of(NOTHINGS, Object)
        await self.until(lambda: lists.error)
        agent.state.set(Leading())
        self.assertEqual(agent._described().unmet, [])
        await self.until(lambda: agent.state.value != Leading())
        self.assertEqual([one.code for one in agent._described().unmet], ["CachesIncomplete"])
        await features.informers.drop(lists)
        await self.until(lambda: agent.state.value == Leading())

    async def test_stops(self) -> None:
        """Stopping it leaves nothing behind in the process, and the lease to others."""
        agent = self.start()
        await agent.ready.wait()
        await agent.stopService()
        self.assertIsNone(agent.features)
        self.assertFalse((await self.client.get(LEASES, "liqod", "liqo-system"))["spec"].get("holderIdentity"))

    async def test_stops_early(self) -> None:
        """It can be stopped at any moment of its start."""
        for steps in (0, 1, 5, 20, 60):
            agent = self.start()
            for _ in range(steps):
                await deferLater(REACTOR, 0.002)
            await agent.stopService()

    async def test_standby(self) -> None:
        """A second daemon of the cluster stands by, is ready as such, and takes over when the first stops."""
        first = self.start()
        await first.ready.wait()
        second = self.start()
        await self.until(lambda: isinstance(second.state.value, StandingBy))
        await deferLater(REACTOR, 0.5)
        self.assertEqual((second.features, second.missing()), (None, []))
        self.assertEqual(await self.page(second, "/readyz"), (200, "ok\n"))
        thief = {"spec": {"holderIdentity": "a third", "leaseDurationSeconds": 2}}
        await self.client.patch(LEASES, "liqod", thief, "liqo-system")
        await self.until(lambda: second.state.value == StandingBy("a third"))
        await first.stopService()
        await second.ready.wait()
        assert first.home is not None and second.home is not None
        self.assertEqual(first.home.keypair.fingerprint, second.home.keypair.fingerprint)

    async def test_lost_lease(self) -> None:
        """When another holds the lease it stops its features, stands by, and leads again when it may."""
        agent = self.start()
        await agent.ready.wait()
        await self.until(lambda: len(agent._leaving._waiting) == WAITS)
        before = agent.features
        thief = {"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 2}}
        await self.client.patch(LEASES, "liqod", thief, "liqo-system")
        await self.until(lambda: agent.features is not before)
        self.assertTrue(before is not None and not before.peering.running)
        await self.until(lambda: agent.status == "leading")
        # Nothing of the term before waits for the end of the daemon any more.
        await self.until(lambda: len(agent._leaving._waiting) == WAITS)

    async def test_memory_of_a_term(self) -> None:
        """What a term made is gone when it has ended, and does not wait until Python looks for it by itself."""
        agent = self.start()
        await agent.ready.wait()
        assert agent.features is not None
        before = weakref.ref(agent.features.peering)
        gc.disable()
        self.addCleanup(gc.enable)
        thief = {"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 2}}
        await self.client.patch(LEASES, "liqod", thief, "liqo-system")
        await self.until(lambda: agent.features is None)
        await self.until(lambda: agent.status == "leading")
        self.assertIsNone(before())

    async def test_says_why_it_waits(self) -> None:
        """A daemon that cannot work says why by its Lease, as long as it may write that."""
        agent = Agent(
            REACTOR,
            settings(LIQOD_LEADER__IDENTITY="gw1"),
            client_config=client_config(self.cluster),
            wall=lambda: datetime.now(UTC) + timedelta(hours=1),
        )
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        agent.startService()
        self.addCleanup(agent.stopService)
        await self.until(lambda: isinstance(agent.state.value, Waiting))
        await deferLater(REACTOR, 2 * SOON)
        lease = await self.client.get(LEASES, lease_name("all", "gw1"), "liqo-system", view=ProcessLease)
        found = process_of(lease, utc_now())
        assert found is not None and found.skew is not None
        self.assertEqual((found.state, [one.code for one in found.unmet]), ("waits", ["ClockSkew"]))
        self.assertApproximates(found.skew, 3600, 5)

    async def test_waits_for_the_api(self) -> None:
        """It says that the API server cannot be reached, and goes on by itself when it can."""
        config = client_config(self.cluster)
        await self.cluster.stop()
        agent = self.start(config)
        await self.until(lambda: isinstance(agent.state.value, Waiting))
        self.assertIn(self.cluster.url, agent.missing()[0])
        self.assertIn("cannot reach the API server", (await self.page(agent, "/readyz"))[1])
        self.assertEqual((await self.page(agent, "/healthz"))[0], 200)
        self.cluster.listen(REACTOR, self.port)
        self.cluster.startService()
        await agent.ready.wait()
        self.assertEqual(agent.state.value, Leading())
