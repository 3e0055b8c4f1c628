"""Echo requests (ICMP) to pods of peers: whether the path behind a peer's gateway carries packets to its pods.

A raw socket hears every echo reply of the host; those that answer none of ours are not ours. Without the capability
CAP_NET_RAW there are no such probes, and nothing is concluded from that.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from liqod.fabric.health import INTERVAL
from liqod.fabric.podpath import PodPath

_HEAD: Final = struct.Struct("!BBHHH")
_REQUEST: Final = 8
_REPLY: Final = 0
_TOKEN: Final = 16
_AT_ONCE: Final = 64
"""Replies that are read in one turn of the reactor."""


@implementer(IReadDescriptor)
class Pinger:
    """Pings one pod of each peer; ``paths`` is what is known, ``changed`` is called when a path turns."""

    _log = Logger()

    def __init__(self, reactor: Any, changed: Callable[[], None]) -> None:
        self._reactor = reactor
        self._changed = changed
        self._socket: socket.socket | None = None
        self._source = ""
        self._sequence = 0
        self._waiting: dict[bytes, str] = {}
        self._beat = LoopingCall(self._round)
        self._beat.clock = reactor
        self._crossing: dict[str, bool] = {}
        self.paths: dict[str, PodPath] = {}

    def open(self, source: str) -> None:
        """Begin, with echo requests from an address of this host."""
        if self._source == source or ":" in source:
            return
        self.close()
        self._source = source
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        except PermissionError:
            self._log.warn("pods of peers are not probed: that needs the capability CAP_NET_RAW")
            return
        sock.setblocking(False)
        sock.bind((source, 0))
        self._socket = sock
        self._reactor.addReader(self)
        self._beat.start(INTERVAL, now=False).addErrback(
            lambda failure: self._log.failure("probing pods stopped", failure)
        )

    def close(self) -> None:
        """End; what is known is kept."""
        self._source = ""
        if self._beat.running:
            self._beat.stop()
        if self._socket is not None:
            self._reactor.removeReader(self)
            self._socket.close()
            self._socket = None

    def aim(self, targets: Mapping[str, str]) -> None:
        """Ping these pods, one of each peer, from now on; another pod than before is judged anew."""
        now = self._reactor.seconds()
        for name in [one for one in self.paths if one not in targets]:
            del self.paths[name]
            self._crossing.pop(name, None)
        for name, pod in targets.items():
            if name not in self.paths or self.paths[name].pod != pod:
                self.paths[name] = PodPath(pod, now)

    # What the reactor asks for (IReadDescriptor).

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
                packet, (sender, _) = self._socket.recvfrom(2048)
            except OSError:
                return
            header = (packet[0] & 15) * 4 if packet else 0
            if len(packet) >= header + _HEAD.size + _TOKEN and packet[header] == _REPLY:
                self._heard(sender, packet[header + _HEAD.size :][:_TOKEN])

    def _heard(self, sender: str, token: bytes) -> None:
        name = self._waiting.pop(token, "")
        path = self.paths.get(name)
        if path is not None and path.pod == sender:
            path.heard = self._reactor.seconds()
            self._look(name, path)

    def _round(self) -> None:
        # Late replies are worth nothing: what was not answered by the next round but two is forgotten.
        keep = 3 * max(1, len(self.paths))
        self._waiting = dict(list(self._waiting.items())[-keep:])
        self._sequence = (self._sequence + 1) & 0xFFFF
        for name, path in self.paths.items():
            token = secrets.token_bytes(_TOKEN)
            self._waiting[token] = name
            self._send(path.pod, token)
            self._look(name, path)

    def _send(self, pod: str, token: bytes) -> None:
        head = _HEAD.pack(_REQUEST, 0, 0, 0x6C71, self._sequence)
        packet = _HEAD.pack(_REQUEST, 0, checksum(head + token), 0x6C71, self._sequence) + token
        if self._socket is None:
            return
        try:
            self._socket.sendto(packet, (pod, 0))
        except OSError as error:
            self._log.debug("no echo request to {pod}: {error}", pod=pod, error=error)

    def _look(self, name: str, path: PodPath) -> None:
        cut = path.cut(self._reactor.seconds())
        if self._crossing.get(name, False) != cut:
            self._crossing[name] = cut
            self._changed()


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
