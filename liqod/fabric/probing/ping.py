"""Echo requests (ICMP, ICMPv6) to pods of peers: whether the path behind a peer's gateway carries packets to its pods.

A raw socket hears every echo reply of the host; those that answer none of ours are not ours. Without the capability
CAP_NET_RAW there are no such probes, and nothing is concluded from that.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from liqod.fabric.probing.health import INTERVAL
from liqod.fabric.probing.pod_reachability import PodPath

_HEAD: Final = struct.Struct("!BBHHH")
_REQUEST: Final = {4: 8, 6: 128}
_REPLY: Final = {4: 0, 6: 129}
"""The types of messages, by IP version (RFC 792, RFC 4443)."""
_ICMP6_FILTER: Final = 1
"""From linux/icmpv6.h: which types a raw socket is not given (RFC 3542, section 3.2)."""
_TOKEN: Final = 16
_AT_ONCE: Final = 64
"""Replies that are read in one turn of the reactor."""


@implementer(IReadDescriptor)
class _Ear:
    """The raw socket of one IP version, bound to an address; ``heard`` gets the sender and the token of each reply."""

    def __init__(self, reactor: Any, source: str, heard: Callable[[str, bytes], None]) -> None:
        self._reactor = reactor
        self._heard = heard
        self._version = 6 if ":" in source else 4
        family = (
            (socket.AF_INET6, socket.IPPROTO_ICMPV6) if self._version == 6 else (socket.AF_INET, socket.IPPROTO_ICMP)
        )
        self._socket: socket.socket | None = socket.socket(family[0], socket.SOCK_RAW, family[1])
        try:
            self._socket.setblocking(False)
            if self._version == 6:
                self._socket.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, only(_REPLY[6]))
            self._socket.bind((source, 0))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Hear nothing more."""
        if self._socket is not None:
            self._reactor.removeReader(self)
            self._socket.close()
            self._socket = None

    def send(self, pod: str, sequence: int, token: bytes) -> None:
        """Send one request; raises OSError."""
        if self._socket is not None:
            self._socket.sendto(request(self._version, sequence, token), (pod, 0))

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
            # Of IPv6 the kernel gives what comes after the header.
            header = (packet[0] & 15) * 4 if packet and self._version == 4 else 0
            if len(packet) >= header + _HEAD.size + _TOKEN and packet[header] == _REPLY[self._version]:
                self._heard(sender, packet[header + _HEAD.size :][:_TOKEN])


Way = tuple[str, int]
"""A peer, and an IP version."""


class Pinger:
    """Pings one pod of each peer and IP version; ``paths`` is what is known, ``changed`` is called when one turns."""

    _log = Logger()

    def __init__(self, reactor: Any, changed: Callable[[], None]) -> None:
        self._reactor = reactor
        self._changed = changed
        self._ears: dict[int, _Ear] = {}
        self._sources: tuple[str, ...] = ()
        self._sequence = 0
        self._waiting: dict[bytes, Way] = {}
        self._beat = LoopingCall(self._round)
        self._beat.clock = reactor
        self._crossing: dict[Way, bool] = {}
        self.paths: dict[Way, PodPath] = {}

    def open(self, sources: Sequence[str]) -> None:
        """Begin, with echo requests from addresses of this host, by IP version one at most."""
        if self._sources == tuple(sources):
            return
        self.close()
        self._sources = tuple(sources)
        for source in sources:
            try:
                ear = _Ear(self._reactor, source, self._heard)
            except PermissionError:
                self._log.warn("pods of peers are not probed: that needs the capability CAP_NET_RAW")
                return
            except OSError as error:
                # An address that is gone again: the next turn puts it back, and comes here once more.
                self._sources = ()
                self._log.debug("no probes from {source}: {error}", source=source, error=error)
                continue
            self._ears[6 if ":" in source else 4] = ear
            self._reactor.addReader(ear)
        if not self._beat.running:
            self._beat.start(INTERVAL, now=False).addErrback(
                lambda failure: self._log.failure("probing pods stopped", failure)
            )

    def close(self) -> None:
        """End; what is known is kept."""
        self._sources = ()
        if self._beat.running:
            self._beat.stop()
        ears, self._ears = self._ears, {}
        for ear in ears.values():
            ear.close()

    def paths_to(self, peer: str) -> list[PodPath]:
        """Return what is known of a peer's pods, by IP version."""
        return [path for way, path in sorted(self.paths.items()) if way[0] == peer]

    def present(self, peer: str) -> dict[int, str]:
        """Return the pods of a peer that are pinged, by IP version."""
        return {version: path.pod for (name, version), path in self.paths.items() if name == peer}

    def aim(self, targets: Mapping[Way, str]) -> None:
        """Ping these pods, one of each peer and IP version, from now on; another pod than before is judged anew."""
        now = self._reactor.seconds()
        for name in [one for one in self.paths if one not in targets]:
            del self.paths[name]
            self._crossing.pop(name, None)
        for name, pod in targets.items():
            if name not in self.paths or self.paths[name].pod != pod:
                self.paths[name] = PodPath(pod, now)

    def _heard(self, sender: str, token: bytes) -> None:
        name = self._waiting.pop(token, None)
        path = self.paths.get(name) if name is not None else None
        if name is not None and path is not None and path.pod == sender:
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
        ear = self._ears.get(6 if ":" in pod else 4)
        if ear is None:
            return
        try:
            ear.send(pod, self._sequence, token)
        except OSError as error:
            self._log.debug("no echo request to {pod}: {error}", pod=pod, error=error)

    def _look(self, name: Way, path: PodPath) -> None:
        cut = path.cut(self._reactor.seconds())
        if self._crossing.get(name, False) != cut:
            self._crossing[name] = cut
            self._changed()


def request(version: int, sequence: int, token: bytes) -> bytes:
    """Return an echo request with a token of an even number of bytes; for IPv6 the kernel adds the checksum."""
    head = _HEAD.pack(_REQUEST[version], 0, 0, 0x6C71, sequence)
    if version == 6:
        return head + token
    return _HEAD.pack(_REQUEST[version], 0, checksum(head + token), 0x6C71, sequence) + token


def only(kind: int) -> bytes:
    """Return the filter that lets one type of ICMPv6 message pass: a bit for each of 256, set for those to drop."""
    words = [0xFFFFFFFF] * 8
    words[kind >> 5] &= ~(1 << (kind & 31))
    return struct.pack("=8I", *words)


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
