"""What an idle daemon watches: one stream for each kind and selection, whatever number of features read it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from liqod.agent.service import Agent
from liqod.config.load import parse
from liqod.demo.access import client_config
from liqod.fabric.agent import gateway
from tests.agent.test_service import SETTINGS
from tests.fabric.fake_kernel import FakeKernel

REACTOR: Any = reactor


class WatchLog(Resource):
    """Counts the watch requests to an API server, by path and selectors."""

    isLeaf = True

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._server = server
        self.watches: Counter[tuple[str, str, str]] = Counter()

    def render(self, request: Request) -> Any:
        arguments: dict[bytes, list[bytes]] = request.args or {}

        def argument(name: bytes) -> str:
            return arguments.get(name, [b""])[0].decode()

        if argument(b"watch"):
            path = request.path.decode().rpartition("/")[2]
            self.watches[path, argument(b"labelSelector"), argument(b"fieldSelector")] += 1
        return self._server.render(request)


class IdleDaemonTests(TestCase):
    """A daemon that leads, with the network fabric, and without any peer."""

    timeout = 60

    async def test_one_watch_for_each_kind_and_selection(self) -> None:
        """No two features watch the same objects by two views, and pods are watched only by what is read of them."""
        self.patch(gateway, "HostKernel", lambda reactor: FakeKernel())
        cluster = SandboxCluster(REACTOR, "rome")
        log = WatchLog(cluster.server)
        server, cluster.server = cluster.server, log  # type: ignore[assignment]  # the site is made of it
        cluster.listen(REACTOR)
        cluster.server = server
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        settings = parse(SETTINGS.replace('mode = "none"', 'mode = "wireguard"\npod-cidrs = ["10.201.0.0/16"]'), {})
        agent = Agent(REACTOR, settings, client_config=client_config(cluster))
        agent.startService()
        self.addCleanup(agent.stopService)
        await agent.ready.wait()
        assert agent.features is not None
        expected = len(list(agent.features.informers))
        while sum(log.watches.values()) < expected:
            await deferLater(REACTOR, 0.05)
        self.assertEqual([watch for watch, count in log.watches.items() if count > 1], [])
        # Of nodes, the virtual ones have a watch of their own: the kubelets' needs nothing but their metadata.
        by_kind = Counter(kind for kind, _, _ in log.watches)
        self.assertEqual(by_kind["nodes"], 2)
        self.assertEqual(by_kind["pods"], 2)
