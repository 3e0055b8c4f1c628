"""Probes through the tunnel: datagrams of several sizes that the far end sends back unchanged."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.error import MessageLengthError
from twisted.internet.interfaces import IListeningPort, IReactorTime
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from liqod.fabric.probing.health import INTERVAL, Health

HEAD: Final = struct.Struct("!5scQ")
_WORD: Final = b"liqod"
_PING: Final = b"?"
_PONG: Final = b"!"
HEADERS: Final = {4: 28, 6: 48}
"""Bytes of IP and UDP headers, by IP version."""
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_PROBE: Final = 3
_IPV6_MTU_DISCOVER: Final = 23
"""From linux/in.h and linux/in6.h: never fragment, and do not believe the path MTU that the kernel remembers."""


def question(token: int, length: int) -> bytes:
    """Return a probe; ``length`` is that of the datagram's content."""
    return HEAD.pack(_WORD, _PING, token) + bytes(max(0, length - HEAD.size))


def answer_of(datagram: bytes) -> int | None:
    """Return the token of the probe that a datagram answers, None where it answers none."""
    if len(datagram) < HEAD.size:
        return None
    word, kind, token = HEAD.unpack_from(datagram)
    return int(token) if (word, kind) == (_WORD, _PONG) else None


def forbid_fragments(sock: socket.socket | None) -> None:
    """Have a socket send nothing in fragments, whatever the kernel remembers of the path."""
    if sock is None:
        return
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)


class Prober(DatagramProtocol):
    """Sends probes to the targets and answers those of others; ``changed`` is called when a peer's path turns.

    ``targets`` maps a name to an address; ``health`` is what is known about each.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._port: IListeningPort | None = None
        self._where: tuple[str, int] | None = None
        self._targets: dict[str, str] = {}
        self._tokens: dict[int, str] = {}
        self._beat = LoopingCall(self._round)
        self._beat.clock = clock
        self._crossing: dict[str, tuple[bool, int]] = {}
        self.health: dict[str, Health] = {}

    def bind(self, reactor: Any, address: str, port: int) -> None:
        """Listen at an address; another one than before replaces it. Raises twisted's CannotListenError."""
        if self._where == (address, port) and self._port is not None:
            return
        self.close()
        self._port = reactor.listenUDP(port, self, interface=address, maxPacketSize=65535)
        self._where = (address, port)
        self._beat.start(INTERVAL, now=True).addErrback(lambda failure: self._log.failure("probing stopped", failure))

    def close(self) -> None:
        """Stop probing; what is known is kept."""
        if self._beat.running:
            self._beat.stop()
        if self._port is not None:
            self._port.stopListening()
            self._port = None

    def aim(self, targets: Mapping[str, str], largest: int) -> None:
        """Probe these from now on."""
        self._targets = dict(targets)
        for name in [one for one in self.health if one not in targets]:
            del self.health[name]
            self._crossing.pop(name, None)
        for name in targets:
            if name not in self.health or self.health[name].largest != largest:
                self.health[name] = Health(largest, self._clock.seconds())

    def startProtocol(self) -> None:
        forbid_fragments(getattr(self.transport, "socket", None))

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        if len(datagram) < HEAD.size:
            return
        word, kind, token = HEAD.unpack_from(datagram)
        if word != _WORD:
            return
        if kind == _PING:
            self._write(HEAD.pack(_WORD, _PONG, token) + datagram[HEAD.size :], addr)
        elif kind == _PONG:
            name = self._tokens.pop(token, "")
            health = self.health.get(name)
            if health is not None and health.answered(token, self._clock.seconds()):
                self._look(name, health)

    def _round(self) -> None:
        now = self._clock.seconds()
        if self._where is None:
            return
        if len(self._tokens) > 16 * max(1, len(self._targets)):
            self._tokens = dict(list(self._tokens.items())[-8 * len(self._targets) :])
        for name, address in self._targets.items():
            health = self.health[name]
            size = health.next_size()
            token = secrets.randbits(64)
            health.sent(token, size, now)
            self._tokens[token] = name
            self._write(question(token, size - HEADERS[6 if ":" in address else 4]), (address, self._where[1]))
            self._look(name, health)

    def _look(self, name: str, health: Health) -> None:
        state = (health.crosses(self._clock.seconds()), health.mtu)
        if self._crossing.get(name) != state:
            self._crossing[name] = state
            self._changed()

    def _write(self, data: bytes, where: tuple[str, int]) -> None:
        transport: Any = self.transport
        if transport is None:
            return
        try:
            transport.write(data, where)
        except (OSError, MessageLengthError) as error:
            # Too large for the device, or no route now: it counts as lost.
            self._log.debug("a probe to {where} was not sent: {error}", where=where[0], error=error)
