"""Probes of a peer's gateway on demand, in several sizes: what crosses, how fast, how large."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from typing import Any

import attrs
from twisted.internet.error import MessageLengthError
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater

from liqod.fabric.probing.probe import HEADERS, answer_of, forbid_fragments, question


@attrs.define
class Round:
    """The probes of one size (bytes of the whole IP packet), and the seconds that the answered ones took."""

    size: int
    sent: int = 0
    times: list[float] = attrs.field(factory=list)

    @property
    def loss(self) -> float:
        """The share that was not answered."""
        return 1 - len(self.times) / self.sent if self.sent else 1.0


class Volley(DatagramProtocol):
    """Asks one address; bound to this host's end of the tunnel, as the peer only answers that."""

    def __init__(self, reactor: Any, target: str, port: int) -> None:
        self._reactor = reactor
        self._target = target
        self._port = port
        self._waiting: dict[int, tuple[Round, float]] = {}

    def startProtocol(self) -> None:
        forbid_fragments(getattr(self.transport, "socket", None))

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        token = answer_of(datagram)
        waiting = self._waiting.pop(token, None) if token is not None and addr[0] == self._target else None
        if waiting is not None:
            waiting[0].times.append(self._reactor.seconds() - waiting[1])

    async def fire(self, sizes: Sequence[int], count: int, interval: float, patience: float) -> list[Round]:
        """Send so many of each size, and wait for the last answers."""
        rounds = [Round(size) for size in sizes]
        for _ in range(count):
            for one in rounds:
                self._ask(one)
                await deferLater(self._reactor, interval)
        await deferLater(self._reactor, patience)
        return rounds

    def _ask(self, one: Round) -> None:
        token = secrets.randbits(64)
        one.sent += 1
        self._waiting[token] = (one, self._reactor.seconds())
        padding = one.size - HEADERS[6 if ":" in self._target else 4]
        transport: Any = self.transport
        try:
            transport.write(question(token, padding), (self._target, self._port))
        except (OSError, MessageLengthError):
            # Too large for the device: that is an answer too.
            self._waiting.pop(token, None)


async def survey(
    reactor: Any,
    source: str,
    target: str,
    port: int,
    sizes: Sequence[int],
    *,
    count: int = 3,
    interval: float = 0.05,
    patience: float = 1.0,
) -> list[Round]:
    """Return what became of probes from one end of a tunnel to the other; OSError where ``source`` is not here."""
    volley = Volley(reactor, target, port)
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))  # says plainly when the address is not this host's
    listening = reactor.listenUDP(0, volley, interface=source, maxPacketSize=65535)
    try:
        return await volley.fire(sizes, count, interval, patience)
    finally:
        await listening.stopListening()
