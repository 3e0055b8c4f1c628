"""Pings pods of peers (ICMP, ICMPv6) to check the path behind a peer's gateway.

A raw socket receives every echo reply that reaches the host (raw(7)): those without one of our tokens are ignored.
Without the capability CAP_NET_RAW there are no such probes, and nothing is concluded from that.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from liqod.fabric.agent.probing.health import INTERVAL
from liqod.fabric.state.network import PathKey
from liqod.fabric.state.report import PodPath
from liqod.flow.clocks import Reactor
from liqod.flow.observe import Latest

_HEAD: Final = struct.Struct("!BBHHH")
_REQUEST: Final = {4: 8, 6: 128}
_REPLY: Final = {4: 0, 6: 129}
"""The types of messages, by IP version (RFC 792, RFC 4443)."""
_ICMP6_FILTER: Final = 1
"""From linux/icmpv6.h: which types a raw socket is not given (RFC 3542, section 3.2)."""
_TOKEN: Final = 16
_IP_HEADER: Final = {4: 20, 6: 40}
LARGE_EVERY: Final = 2
"""Every so many rounds a packet as large as the path to the gateway carries is sent as well."""
_AT_ONCE: Final = 64
"""Replies that are read before the reactor may do something else."""


@implementer(IReadDescriptor)
class _IcmpSocket:
    """The raw socket of one IP version, bound to an address; ``on_reply`` gets sender and token of each reply."""

    def __init__(self, reactor: Reactor, source: str, on_reply: Callable[[str, bytes], None]) -> None:
        self._reactor = reactor
        self._on_reply = on_reply
        self._version = 6 if ":" in source else 4
        family = (
            (socket.AF_INET6, socket.IPPROTO_ICMPV6) if self._version == 6 else (socket.AF_INET, socket.IPPROTO_ICMP)
        )
        self._socket: socket.socket | None = socket.socket(family[0], socket.SOCK_RAW, family[1])
        try:
            self._socket.setblocking(False)
            if self._version == 6:
                self._socket.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, icmp6_filter(_REPLY[6]))
            # A bound raw socket receives only packets to this address (raw(7)), and sends from it.
            self._socket.bind((source, 0))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._reactor.removeReader(self)
            # The reactor must drop the descriptor before its number is reused.
            self._socket.close()
            self._socket = None

    def send(self, pod: str, sequence: int, data: bytes) -> None:
        """Send one request; raises OSError."""
        if self._socket is not None:
            self._socket.sendto(echo_request(self._version, sequence, data), (pod, 0))

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def logPrefix(self) -> str:
        return "Pinger"

    def connectionLost(self, reason: object) -> None:
        self.close()

    def doRead(self) -> None:
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                packet, (sender, *_) = self._socket.recvfrom(2048)
            except OSError:
                return
            # Raw IPv4 sockets get the IP header too (raw(7)), raw IPv6 ones do not (RFC 3542, section 3).
            header = (packet[0] & 15) * 4 if packet and self._version == 4 else 0
            if len(packet) >= header + _HEAD.size + _TOKEN and packet[header] == _REPLY[self._version]:
                self._on_reply(sender, packet[header + _HEAD.size :][:_TOKEN])


class Pinger:
    """Pings one pod of each peer and IP version; ``paths`` has each of them, ``silent`` those that went silent."""

    _log = Logger()

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._sockets: dict[int, _IcmpSocket] = {}
        self._sources: tuple[str, ...] = ()
        self._sequence = 0
        self._waiting: dict[bytes, tuple[PathKey, int]] = {}
        self._sizes: Mapping[str, int] = {}
        self._loop = LoopingCall(self._send_round)
        self._loop.clock = reactor
        self.paths: dict[PathKey, PodPath] = {}
        self.silent: Latest[frozenset[PathKey]] = Latest(frozenset())

    def open(self, sources: Sequence[str]) -> None:
        """Send echo requests from these addresses of this host, by IP version one at most."""
        if self._sources == tuple(sources):
            return
        self.close()
        self._sources = tuple(sources)
        for source in sources:
            try:
                opened = _IcmpSocket(self._reactor, source, self._on_reply)
            except PermissionError:
                self._log.warn("pods of peers are not probed: that needs the capability CAP_NET_RAW")
                return
            except OSError as error:
                # EADDRNOTAVAIL: the address was removed; the next pass restores it and opens the socket again.
                self._sources = ()
                self._log.debug("no probes from {address}: {error}", address=source, error=error)
                continue
            self._sockets[6 if ":" in source else 4] = opened
            self._reactor.addReader(opened)
        if not self._loop.running:
            self._loop.start(INTERVAL, now=False).addErrback(
                lambda failure: self._log.failure("probing pods stopped", failure)
            )

    def close(self) -> None:
        """Close the sockets and stop pinging; what is known is kept."""
        self._sources = ()
        if self._loop.running:
            self._loop.stop()
        sockets, self._sockets = self._sockets, {}
        for one in sockets.values():
            one.close()

    def set_targets(self, targets: Mapping[PathKey, str], sizes: Mapping[str, int]) -> None:
        """Ping these pods from now on; what is known of one pod is not used for another.

        ``sizes`` are the bytes that a whole packet has on the path to the gateway of a peer; absent where unknown.
        """
        now = self._reactor.seconds()
        self._sizes = sizes
        for name in [one for one in self.paths if one not in targets]:
            del self.paths[name]
        self.silent.value = self.silent.value & self.paths.keys()
        for name, pod in targets.items():
            if name not in self.paths or self.paths[name].pod != pod:
                self.paths[name] = PodPath(pod, now)

    def _on_reply(self, sender: str, token: bytes) -> None:
        name, size = self._waiting.pop(token, (None, 0))
        path = self.paths.get(name) if name is not None else None
        if name is None or path is None or path.pod != sender:
            return
        if not size:
            self.paths[name] = attrs.evolve(path, answered_at=self._reactor.seconds())
        elif size == path.size:
            self.paths[name] = attrs.evolve(path, large_since=None)
        self._refresh(name)

    def _send_round(self) -> None:
        # A reply after three rounds counts as lost; else pods that never answer would fill the table.
        keep = 6 * max(1, len(self.paths))
        self._waiting = dict(list(self._waiting.items())[-keep:])
        self._sequence = (self._sequence + 1) & 0xFFFF
        for name, path in list(self.paths.items()):
            self._send(name, path.pod, 0)
            if self._sequence % LARGE_EVERY == 0 and (size := self._sizes.get(name[0], 0)):
                begun = path.large_since if path.size == size else None
                now = self._reactor.seconds()
                self.paths[name] = attrs.evolve(path, size=size, large_since=now if begun is None else begun)
                self._send(name, path.pod, size)
            self._refresh(name)

    def _send(self, name: PathKey, pod: str, size: int) -> None:
        token = secrets.token_bytes(_TOKEN)
        raw = self._sockets.get(6 if ":" in pod else 4)
        if raw is None:
            return
        self._waiting[token] = name, size
        try:
            raw.send(pod, self._sequence, token + bytes(padding(6 if ":" in pod else 4, size)))
        except OSError as error:
            self._log.debug("no echo request to {address}: {error}", address=pod, error=error)

    def _refresh(self, name: PathKey) -> None:
        silent = self.paths[name].is_silent(self._reactor.seconds())
        self.silent.set(self.silent.value | {name} if silent else self.silent.value - {name})


def padding(version: int, size: int) -> int:
    """Return how many bytes follow the token in a packet of ``size`` bytes as a whole: an even number, or none."""
    left = size - _IP_HEADER[version] - _HEAD.size - _TOKEN
    return max(0, left - left % 2)


def echo_request(version: int, sequence: int, data: bytes) -> bytes:
    """Return an echo request with an even number of bytes of data; for ICMPv6 the kernel fills the checksum in."""
    head = _HEAD.pack(_REQUEST[version], 0, 0, 0x6C71, sequence)
    if version == 6:
        return head + data
    return _HEAD.pack(_REQUEST[version], 0, checksum(head + data), 0x6C71, sequence) + data


def icmp6_filter(kind: int) -> bytes:
    """Return an ICMP6_FILTER that passes one type of message: a bit for each of 256 types, set for those to block."""
    words = [0xFFFFFFFF] * 8
    words[kind >> 5] &= ~(1 << (kind & 31))
    return struct.pack("=8I", *words)


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
