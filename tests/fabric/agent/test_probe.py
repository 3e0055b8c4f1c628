"""The probes of peers' gateways, by real datagrams on this host."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import TestCase

from liqod.fabric.agent.probing.health import INTERVAL
from liqod.fabric.agent.probing.probe import HEAD, Prober, probe_packet
from tests.ports import free_ports

REACTOR: Any = reactor


class Echo(DatagramProtocol):
    """A gateway of an earlier release: it sends back what came, and asks nothing."""

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        transport: Any = self.transport
        transport.write(datagram[:5] + b"!" + datagram[6:], addr)


class Asker(DatagramProtocol):
    """Keeps what comes back."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        self.answers.append(datagram)


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

    async def test_a_host_that_forwards_nothing(self) -> None:
        """Its answers say so as long as it holds; those of an earlier release say nothing."""
        clock = Clock()
        gateway, asking = Prober(Clock()), Prober(clock)
        for one in (gateway, asking):
            self.addCleanup(one.close)
        (port,) = free_ports(1, socket.SOCK_DGRAM)
        earlier = REACTOR.listenUDP(port, Echo(), interface="127.0.0.2")
        self.addCleanup(earlier.stopListening)
        gateway.bind(REACTOR, "127.0.0.1", port)
        asking.set_targets({"milan": "127.0.0.1", "turin": "127.0.0.2"}, 1420)
        asking.bind(REACTOR, "127.0.0.3", port)
        for turn, is_forwarding in enumerate((False, True, False)):
            gateway.is_forwarding = is_forwarding
            clock.advance(INTERVAL)
            milan, turin = (asking.targets[name].health for name in ("milan", "turin"))
            while {milan.answered_at, turin.answered_at} != {(turn + 1) * INTERVAL}:
                await deferLater(REACTOR, 0.01)
            self.assertEqual((milan.is_forwarding, turin.is_forwarding), (is_forwarding, True))

    async def test_the_length_of_an_answer(self) -> None:
        """Is that of its question, also where that has no room for what a host says of itself."""
        gateway, asker = Prober(Clock()), Asker()
        self.addCleanup(gateway.close)
        (port,) = free_ports(1, socket.SOCK_DGRAM)
        gateway.bind(REACTOR, "127.0.0.1", port)
        asking = REACTOR.listenUDP(0, asker, interface="127.0.0.1")
        self.addCleanup(asking.stopListening)
        lengths = (HEAD.size, HEAD.size + 1, 1372)
        for length in lengths:
            asking.write(probe_packet(7, length), ("127.0.0.1", port))
        while len(asker.answers) < len(lengths):
            await deferLater(REACTOR, 0.01)
        self.assertEqual([len(one) for one in asker.answers], list(lengths))
