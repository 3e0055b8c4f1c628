"""The probes of peers' gateways, by real datagrams on this host."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import TestCase

from liqod.fabric.agent.probing.health import INTERVAL
from liqod.fabric.agent.probing.probe import Prober
from tests.ports import free_ports

REACTOR: Any = reactor


class ProberTests(TestCase):
    timeout = 10

    async def test_an_address_of_the_other_version(self) -> None:
        """A target that cannot be sent to counts as lost, and the others are probed on."""
        clock = Clock()
        prober = Prober(clock)
        self.addCleanup(prober.close)
        prober.set_targets({"milan": "::1", "turin": "127.0.0.1"}, 1420)
        prober.bind(REACTOR, "127.0.0.1", free_ports(1, socket.SOCK_DGRAM)[0])
        for turn in range(3):
            health = prober.targets["turin"].health
            while health.answered_at != turn * INTERVAL:
                await deferLater(REACTOR, 0.01)
            clock.advance(INTERVAL)
        self.assertIsNone(prober.targets["milan"].health.answered_at)
