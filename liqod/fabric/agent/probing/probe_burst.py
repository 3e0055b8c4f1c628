"""Probes a peer's gateway on demand, in several sizes: what is answered, how fast, how large it may be."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from typing import Any

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.error import MessageLengthError
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater

from liqod.fabric.agent.probing.probe import HEADERS, forbid_fragments, probe_packet, reply_token
from liqod.flow.clocks import Reactor


@attrs.define
class SizeResult:
    """The probes of one size (bytes of the whole IP packet), and the seconds that the answered ones took."""

    size: int
    sent: int = 0
    times: list[float] = attrs.field(factory=list)

    @property
    def loss(self) -> float:
        """The share that was not answered."""
        return 1 - len(self.times) / self.sent if self.sent else 1.0


class ProbeBurst(DatagramProtocol):
    """Probes one address, from this host's own end of the tunnel: cryptokey routing drops other sources."""

    def __init__(self, reactor: Reactor, target: str, port: int) -> None:
        self._reactor = reactor
        self._target = target
        self._port = port
        self._waiting: dict[int, tuple[SizeResult, float]] = {}

    def startProtocol(self) -> None:
        forbid_fragments(getattr(self.transport, "socket", None))

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        token = reply_token(datagram)
        waiting = self._waiting.pop(token, None) if token is not None and addr[0] == self._target else None
        if waiting is not None:
            waiting[0].times.append(self._reactor.seconds() - waiting[1])

    async def run(self, sizes: Sequence[int], count: int, interval: float, timeout: float) -> list[SizeResult]:
        """Send ``count`` of each size, ``interval`` seconds apart; wait ``timeout`` seconds for the last answers."""
        rounds = [SizeResult(size) for size in sizes]
        for _ in range(count):
            for one in rounds:
                self._send(one)
                await deferLater(self._reactor, interval)
        await deferLater(self._reactor, timeout)
        return rounds

    def _send(self, one: SizeResult) -> None:
        token = secrets.randbits(64)
        one.sent += 1
        self._waiting[token] = (one, self._reactor.seconds())
        padding = one.size - HEADERS[6 if ":" in self._target else 4]
        transport: Any = self.transport
        try:
            transport.write(probe_packet(token, padding), (self._target, self._port))
        except (OSError, MessageLengthError):
            # EMSGSIZE: too large for the device, which counts as lost.
            self._waiting.pop(token, None)


async def measure_sizes(
    reactor: Reactor,
    source: str,
    target: str,
    port: int,
    sizes: Sequence[int],
    *,
    count: int = 3,
    interval: float = 0.05,
    timeout: float = 1.0,
) -> list[SizeResult]:
    """Return what became of probes from one end of a tunnel to the other; OSError where ``source`` is not ours."""
    burst = ProbeBurst(reactor, target, port)
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))  # raises EADDRNOTAVAIL, where listenUDP would only say that it cannot listen
    listening = reactor.listenUDP(0, burst, interface=source, maxPacketSize=65535)
    try:
        return await burst.run(sizes, count, interval, timeout)
    finally:
        await maybeDeferred(listening.stopListening)
