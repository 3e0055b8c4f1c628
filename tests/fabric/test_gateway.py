"""Tests of liqod.fabric.agent.gateway: what it reports of a kernel in memory."""

from __future__ import annotations

from typing import Any, cast

import attrs

from liqod.config.schema import NetworkSettings, Settings
from liqod.fabric.agent.gateway import GatewayAgent
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from tests.clocks import HostClock
from tests.fabric.cases import NOW, HostCase, fabric_host
from tests.fabric.test_plan import DESIRED, KEY


class HandshakeTests(HostCase):
    """A gateway with one peer, on a host whose clock is set."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = HostClock(NOW)
        self.converge(DESIRED)
        self.agent = self.start()

    def start(self) -> GatewayAgent:
        reactor: Any = self.clock
        client = Client(ClientConfig("https://192.0.2.1:6443"), reactor)
        settings = Settings(network=NetworkSettings(mode="wireguard"))
        host = fabric_host(client, Informers(client, reactor), settings, self.kernel)
        return GatewayAgent(attrs.evolve(host, reactor=reactor, wall=self.clock.wall))

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
