"""Tests of liqod.fabric.agent.gateway: what it reports of a kernel in memory, and how often it looks at one."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred

from liqod.config.schema import NetworkSettings, Settings
from liqod.fabric.agent import keyring
from liqod.fabric.agent.converge import CLEAR_HOLD, PERIOD
from liqod.fabric.agent.gateway import STARTING, GatewayAgent
from liqod.fabric.agent.kernel import device as devices
from liqod.fabric.agent.kernel.host import KernelError
from liqod.fabric.agent.key import TunnelKeys, generate
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from tests.clocks import HostClock
from tests.fabric.agent.test_plan import DESIRED, KEY
from tests.fabric.cases import NOW, HostCase, fabric_host


class GatewayCase(HostCase):
    """A gateway on a host whose clock is set."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = HostClock(NOW)

    def start(self) -> GatewayAgent:
        reactor: Any = self.clock
        client = Client(ClientConfig("https://192.0.2.1:6443"), reactor)
        settings = Settings(network=NetworkSettings(mode="wireguard"))
        host = fabric_host(client, Informers(client, reactor), settings, self.kernel)
        return GatewayAgent(attrs.evolve(host, reactor=reactor, wall=self.clock.wall))


class LackTests(GatewayCase):
    """A gateway in a pod, where another pod serves the tunnel's device."""

    def setUp(self) -> None:
        super().setUp()
        self.failure: KernelError | None = devices.NotServed("nobody serves the device")
        self.patch(devices, "creation", self.creation)
        self.agent = self.start()

    async def creation(self, *_: object, **__: object) -> tuple[str, ...]:
        if self.failure is not None:
            raise self.failure
        return ("ip",)

    def lacking(self) -> str:
        return self.successResultOf(Deferred.fromCoroutine(self.agent.lacking()))

    def is_waiting(self) -> bool:
        """Tell whether it is not known yet what the host lacks."""
        asking = Deferred.fromCoroutine(self.agent.lacking())
        return "not yet: nobody serves" in str(self.failureResultOf(asking, KernelError).value)

    def test_a_pod_that_begins_at_the_same_time(self) -> None:
        """It is waited for: a lack that a peer learns of decides about the peering for good."""
        self.assertTrue(self.is_waiting())
        self.clock.advance(1.0)
        self.failure = None
        self.assertEqual(self.lacking(), "")

    def test_a_pod_that_does_not_come(self) -> None:
        """After a while it lacks; and so does at once what cannot come by itself."""
        self.assertTrue(self.is_waiting())
        self.clock.advance(STARTING)
        self.assertIn("nobody serves the device: modprobe wireguard", self.lacking())
        self.failure = KernelError("it is not permitted")
        self.agent = self.start()
        self.assertIn("it is not permitted", self.lacking())


class HandshakeTests(GatewayCase):
    """A gateway with one peer."""

    def setUp(self) -> None:
        super().setUp()
        self.converge(DESIRED)
        self.agent = self.start()

    def shake(self) -> None:
        """Let the kernel note a handshake, with the date of now."""
        self.kernel.links["liqod"].peers[KEY]["handshake"] = int(self.clock.wall().timestamp())

    def age(self) -> float | None:
        report = self.successResultOf(cast(Any, self.agent.observe()))
        return report.tunnels[KEY].age(self.clock.seconds())  # type: ignore[no-any-return]

    def test_a_date_that_is_set(self) -> None:
        """The age of a handshake runs with the agent's clock: a tunnel is neither dead nor alive for a set date."""
        self.assertIsNone(self.age())
        self.shake()
        self.assertEqual(self.age(), 0.0)
        for step in (3600.0, -7200.0):
            self.clock.set_date(step)
            self.clock.advance(10.0)
            self.assertEqual(self.age(), self.clock.seconds())
        self.shake()
        self.assertEqual(self.age(), 0.0)

    def test_a_date_that_was_set_back_before_the_start(self) -> None:
        """A handshake from the future was at the latest when it was seen first: a dead tunnel does not stay alive."""
        self.shake()
        self.clock.set_date(-3600.0)
        self.assertEqual(self.age(), 0.0)
        self.clock.advance(200.0)
        self.assertEqual(self.age(), 200.0)


class ClearTests(GatewayCase):
    """A gateway without peers."""

    def setUp(self) -> None:
        super().setUp()
        self.loads = 0
        self.patch(keyring, "load_or_create", self.load)
        self.agent = self.start()

    async def load(self, *_: object) -> TunnelKeys:
        """Return keys, as if they were read."""
        self.loads += 1
        return TunnelKeys(current=generate())

    def commands(self, *, prompted: bool = False) -> int:
        """Have one pass; return how many programs it ran."""
        before = len(self.kernel.commands)
        self.successResultOf(Deferred.fromCoroutine(self.agent.keep_clear(prompted=prompted)))
        return len(self.kernel.commands) - before

    def test_a_clear_host(self) -> None:
        """After one observation nothing is run until CLEAR_HOLD, then once again."""
        self.assertGreater(self.commands(prompted=True), 0)
        for _ in range(int(CLEAR_HOLD / PERIOD) - 1):
            self.clock.advance(PERIOD)
            self.assertEqual(self.commands(), 0)
        self.clock.advance(PERIOD)
        self.assertGreater(self.commands(), 0)
        self.assertEqual(self.commands(), 0)

    def test_a_start_with_many_peers(self) -> None:
        """A pass for each record of a peer, and nothing wanted in any of them: one observation."""
        self.commands(prompted=True)
        for _ in range(16):
            self.clock.advance(0.1)
            self.assertEqual(self.commands(prompted=True), 0)
        self.clock.advance(PERIOD)
        self.assertGreater(self.commands(prompted=True), 0)

    def test_what_an_earlier_daemon_left(self) -> None:
        """What is removed is looked for once more in the next pass, before the host counts as clear."""
        self.converge(DESIRED)
        self.commands(prompted=True)
        self.assertEqual(self.kernel.state(), self.before)
        self.assertGreater(self.commands(), 0)
        self.assertEqual(self.commands(), 0)

    def test_what_somebody_else_makes(self) -> None:
        """It is found after CLEAR_HOLD at the latest."""
        self.commands()
        self.converge(DESIRED)
        self.clock.advance(CLEAR_HOLD)
        self.commands()
        self.assertEqual(self.kernel.state(), self.before)

    def test_removing_all(self) -> None:
        """What is asked for by ``clear`` itself always looks at the host."""
        self.commands()
        self.converge(DESIRED)
        self.successResultOf(Deferred.fromCoroutine(self.agent.clear()))
        self.assertEqual(self.kernel.state(), self.before)

    def test_an_agent_that_was_stopped(self) -> None:
        """Another may have led on this host meanwhile."""
        self.commands()
        self.agent.close()
        self.assertGreater(self.commands(), 0)

    def test_an_observation_that_fails(self) -> None:
        """What was found before it does not count any more."""
        self.commands()
        run = self.kernel.run
        self.clock.advance(CLEAR_HOLD)
        self.patch(self.kernel, "run", _fail)
        self.failureResultOf(Deferred.fromCoroutine(self.agent.keep_clear(prompted=False)), KernelError)
        self.patch(self.kernel, "run", run)
        self.assertGreater(self.commands(), 0)

    def test_a_key_that_changed(self) -> None:
        """It is read at once, without a look at the host."""
        self.commands()
        self.agent._keys._keys = None
        self.assertEqual((self.commands(prompted=True), self.loads), (0, 2))


async def _fail(*_: object) -> None:
    """Do as a host whose programs cannot be run."""
    raise KernelError("ip cannot be run")
