"""Numbers are served as they are at the time, and health and readiness say what is missing."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent, HTTPConnectionPool, readBody

from liqod.config.schema import MetricsSettings
from liqod.metrics.lag import LagMeter
from liqod.metrics.registry import Registry, Samples
from liqod.metrics.service import MetricsServer


class NumbersTests(SynchronousTestCase):
    def test_functions(self) -> None:
        """Gauges and counters are read when they are asked for."""
        registry, values = Registry(), [1.0]
        registry.gauge("liqod_test", "A test.", ("kind",), lambda: [(("a",), values[0])])
        registry.counter("liqod_seen", "Seen.", (), lambda: [((), 7)])
        self.assertIn(b'liqod_test{kind="a"} 1.0\n', registry.text())
        values[0] = 2.5
        self.assertIn(b'liqod_test{kind="a"} 2.5\n', registry.text())
        self.assertIn(b"liqod_seen_total 7.0\n", registry.text())

    def test_one_fails(self) -> None:
        """A function that fails is logged, and the others are still served."""
        registry = Registry()

        def broken() -> Samples:
            raise RuntimeError("no")

        registry.gauge("liqod_broken", "Broken.", (), broken)
        registry.gauge("liqod_good", "Good.", (), lambda: [((), 1)])
        self.assertIn(b"liqod_good 1.0\n", registry.text())
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_one_fails_on_the_way(self) -> None:
        """Nothing is served of a metric whose function fails after some of its values: the rest would look gone."""
        registry = Registry()

        def broken() -> Samples:
            yield ("milan",), 1.0
            raise RuntimeError("no")

        registry.gauge("liqod_broken", "Broken.", ("peer",), broken)
        self.assertNotIn(b"liqod_broken", registry.text())
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_steps_of_controllers(self) -> None:
        """Steps are counted by controller and outcome, and timed by controller."""
        registry = Registry()
        registry.reconciled("pods", "failed", 0.02)
        registry.reconciled("pods", "settled", 3.0)
        text = registry.text()
        for line in (
            b'liqod_reconciles_total{controller="pods",outcome="failed"} 1.0\n',
            b'liqod_reconcile_duration_seconds_bucket{controller="pods",le="0.05"} 1.0\n',
            b'liqod_reconcile_duration_seconds_count{controller="pods"} 2.0\n',
        ):
            self.assertIn(line, text)

    def test_two_registries(self) -> None:
        """Two daemons in one process do not share numbers."""
        first, second = Registry(), Registry()
        read: Samples = [((), 1)]
        first.gauge("liqod_x", "X.", (), lambda: read)
        self.assertNotIn(b"liqod_x", second.text())


class LagTests(SynchronousTestCase):
    def test_late_timer(self) -> None:
        """A turn that comes late is measured, one in time is not."""
        clock, seen = Clock(), list[float]()
        meter = LagMeter(clock, seen.append, interval=1.0)
        meter.startService()
        clock.advance(1.0)
        clock.advance(1.5)
        clock.advance(1.0)
        self.assertEqual(seen, [0.0, 0.5, 0.0])
        self.assertEqual((meter.last, meter.worst), (0.0, 0.5))
        meter.stopService()
        self.assertEqual(clock.getDelayedCalls(), [])


class PagesTests(TestCase):
    timeout = 10

    async def setUp(self) -> None:  # type: ignore[override]
        self.missing: list[str] = []
        self.registry = Registry()
        self.server = self.listen("tcp:0:interface=127.0.0.1")
        self.pool = HTTPConnectionPool(reactor, persistent=False)
        self.agent = Agent(reactor, pool=self.pool)

    def listen(self, where: str) -> MetricsServer:
        clock: Any = reactor
        settings = MetricsSettings(listen=where)
        server = MetricsServer(clock, settings, self.registry, health=list, readiness=lambda: self.missing)
        server.startService()
        self.addCleanup(server.stopService)
        return server

    async def get(self, path: str) -> tuple[int, bytes]:
        response = await self.agent.request(b"GET", f"http://127.0.0.1:{self.server.bound.value}{path}".encode())
        return response.code, await readBody(response)

    async def test_metrics(self) -> None:
        """/metrics serves the registry."""
        self.registry.gauge("liqod_x", "X.", (), lambda: [((), 1)])
        code, body = await self.get("/metrics")
        self.assertEqual(code, 200)
        self.assertIn(b"liqod_x 1.0\n", body)

    async def test_readiness(self) -> None:
        """/readyz fails with what is missing, and /healthz does not care."""
        self.assertEqual(await self.get("/readyz"), (200, b"ok\n"))
        self.missing.append("the listener is not bound")
        self.assertEqual(await self.get("/readyz"), (503, b"the listener is not bound\n"))
        self.assertEqual(await self.get("/healthz"), (200, b"ok\n"))

    async def test_not_found(self) -> None:
        """Other pages do not exist."""
        self.assertEqual((await self.get("/debug"))[0], 404)

    async def test_port_taken(self) -> None:
        """A port that is taken leaves the server without one, waiting to try again."""
        other = self.listen(f"tcp:{self.server.bound.value}:interface=127.0.0.1")
        self.assertEqual(other.bound.value, 0)
        await other.stopService()
