"""Probes peers' gateways through the tunnel: UDP datagrams of several sizes that the far end sends back unchanged."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

import attrs
from twisted.internet.error import InvalidAddressError, MessageLengthError
from twisted.internet.interfaces import IListeningPort, IReactorTime
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from liqod.fabric.agent.probing.health import INTERVAL, Health
from liqod.flow.clocks import Reactor
from liqod.flow.observe import Latest

HEAD: Final = struct.Struct("!5scQ")
"""The header of every probe: a magic number, request or reply, and a token."""
_MAGIC: Final = b"liqod"
_PING: Final = b"?"
_PONG: Final = b"!"
_PLAIN: Final = b"\0"
_NOT_FORWARDING: Final = b"\1"
"""The byte after the header of an answer: an earlier release sends back the zero that came, and looks at none."""
HEADERS: Final = {4: 28, 6: 48}
"""Bytes of IP and UDP headers, by IP version."""
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_PROBE: Final = 3
_IPV6_MTU_DISCOVER: Final = 23
"""From linux/in.h and linux/in6.h (ip(7), IP_MTU_DISCOVER): never fragment, and ignore the path MTU that the kernel has
cached. An ICMP message that a host on the way forged, or sent for another path, would hide what really passes."""


def probe_packet(token: int, length: int) -> bytes:
    """Return a probe; ``length`` is that of the datagram's content."""
    return HEAD.pack(_MAGIC, _PING, token) + bytes(max(0, length - HEAD.size))


def reply_token(datagram: bytes) -> int | None:
    """Return the token of the probe that a datagram answers; None for anything else."""
    if len(datagram) < HEAD.size:
        return None
    magic, kind, token = HEAD.unpack_from(datagram)
    return int(token) if (magic, kind) == (_MAGIC, _PONG) else None


def forbid_fragments(sock: socket.socket | None) -> None:
    """Set a socket to send no fragments, regardless of the path MTU that the kernel has cached."""
    if sock is None:
        return
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)


@attrs.frozen
class Target:
    """An address that is probed, and what is known about it."""

    address: str
    health: Health


class Prober(DatagramProtocol):
    """Sends probes to the ``targets``, by their names, and answers those of others.

    ``paths`` says of each whether it is reachable, its path MTU, and whether it forwards packets.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._port: IListeningPort | None = None
        self._bound_to: tuple[str, int] | None = None
        self.targets: dict[str, Target] = {}
        self._tokens: dict[int, str] = {}
        self._loop = LoopingCall(self._send_round)
        self._loop.clock = clock
        self.paths: Latest[Mapping[str, tuple[bool, int, bool]]] = Latest({})
        self.is_forwarding = True
        """Whether this host forwards packets; its answers tell the peers where it does not."""

    def bind(self, reactor: Reactor, address: str, port: int) -> None:
        """Listen at an address and probe from it; replaces another one. Raises Twisted's CannotListenError."""
        if self._bound_to == (address, port) and self._port is not None:
            return
        self.close()
        self._port = reactor.listenUDP(port, self, interface=address, maxPacketSize=65535)
        self._bound_to = (address, port)
        self._loop.start(INTERVAL, now=True).addErrback(lambda failure: self._log.failure("probing stopped", failure))

    def close(self) -> None:
        """Close the socket and stop probing; what is known is kept."""
        if self._loop.running:
            self._loop.stop()
        if self._port is not None:
            self._port.stopListening()
            self._port = None

    def set_targets(self, targets: Mapping[str, str], largest: int) -> None:
        """Probe these addresses by name from now on; ``largest`` is the MTU of the tunnel's device."""
        self.targets = {name: Target(address, self._health_of(name, largest)) for name, address in targets.items()}
        known = self.paths.value
        # Assigned without a notification: the caller, who sets the targets, knows the change already.
        self.paths.value = {name: known[name] for name in targets if name in known}

    def _health_of(self, name: str, largest: int) -> Health:
        known = self.targets.get(name)
        if known is not None and known.health.largest == largest:
            return known.health
        return Health(largest, self._clock.seconds())

    def startProtocol(self) -> None:
        forbid_fragments(getattr(self.transport, "socket", None))

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        if len(datagram) < HEAD.size:
            return
        magic, kind, token = HEAD.unpack_from(datagram)
        if magic != _MAGIC:
            return
        if kind == _PING:
            state = _PLAIN if self.is_forwarding else _NOT_FORWARDING
            # An answer is as long as its question: one without room for the byte has none.
            answer = HEAD.pack(_MAGIC, _PONG, token) + state + datagram[HEAD.size + 1 :]
            self._write(answer[: len(datagram)], addr)
        elif kind == _PONG:
            name = self._tokens.pop(token, "")
            target = self.targets.get(name)
            if target is not None and target.health.answered(token, self._clock.seconds()):
                target.health.is_forwarding = datagram[HEAD.size : HEAD.size + 1] != _NOT_FORWARDING
                self._refresh(name, target.health)

    def _send_round(self) -> None:
        now = self._clock.seconds()
        if self._bound_to is None:
            return
        if len(self._tokens) > 16 * max(1, len(self.targets)):
            self._tokens = dict(list(self._tokens.items())[-8 * len(self.targets) :])
        for name, target in self.targets.items():
            address, health = target.address, target.health
            size = health.next_size()
            token = secrets.randbits(64)
            health.sent(token, size, now)
            self._tokens[token] = name
            self._write(probe_packet(token, size - HEADERS[6 if ":" in address else 4]), (address, self._bound_to[1]))
            self._refresh(name, health)

    def _refresh(self, name: str, health: Health) -> None:
        state = (health.result.is_reachable(self._clock.seconds()), health.mtu, health.is_forwarding)
        self.paths.set({**self.paths.value, name: state})

    def _write(self, data: bytes, to: tuple[str, int]) -> None:
        transport: Any = self.transport
        if transport is None:
            return
        try:
            transport.write(data, to)
        except (OSError, MessageLengthError, InvalidAddressError) as error:
            # EMSGSIZE: too large for the device; ENETUNREACH: no route now; an address of the other IP version, which
            # records can name. Either way it counts as lost, and the other targets are probed.
            self._log.debug("a probe to {address} was not sent: {error}", address=to[0], error=error)
