"""The kernel's word, at once, when this host loses an address: rtnetlink(7), without a program that runs for it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

# From linux/rtnetlink.h and linux/netlink.h; messages are in the host's byte order.
_GROUPS: Final = 0x10 | 0x100  # RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_DELADDR: Final = 21
_HEAD: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ADDRESS: Final = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface
_UNIVERSE: Final = 0
_LARGEST: Final = 65536
_AT_ONCE: Final = 64
"""How many datagrams are read before the reactor has its turn again."""


def tells_loss(datagram: bytes) -> bool:
    """Tell whether one of the messages of a datagram says that an address of the widest scope went.

    Link-local addresses come and go with every pod's cable, and no tunnel is bound to them.
    """
    at = 0
    while at + _HEAD.size <= len(datagram):
        length, kind, *_ = _HEAD.unpack_from(datagram, at)
        if length < _HEAD.size:
            return False
        body = at + _HEAD.size
        if kind == _DELADDR and body + _ADDRESS.size <= len(datagram):
            _, _, _, scope, _ = _ADDRESS.unpack_from(datagram, body)
            if scope == _UNIVERSE:
                return True
        at += (length + 3) & ~3
    return False


@implementer(IReadDescriptor)
class AddressWatch(Service):
    """Calls ``lost`` when an address went; where the kernel tells nothing, the regular look has to do."""

    _log = Logger()

    def __init__(self, reactor: Any, lost: Callable[[], None]) -> None:
        self._reactor = reactor
        self._lost = lost
        self._socket: socket.socket | None = None

    def startService(self) -> None:
        super().startService()
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        made = None
        try:
            made = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            made.bind((0, _GROUPS))
        except OSError as error:
            if made is not None:
                made.close()
            self._log.warn("changes of this host's addresses are seen late: {error}", error=str(error))
            return
        self._socket = made
        self._reactor.addReader(self)

    def stopService(self) -> None:
        super().stopService()
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._reactor.removeReader(self)
            self._socket.close()
            self._socket = None

    # IReadDescriptor.

    def fileno(self) -> int:
        """Return the socket's number for the reactor."""
        return self._socket.fileno() if self._socket is not None else -1

    def doRead(self) -> None:
        """Read what the kernel told; when it told more than there was room for, something may have gone."""
        lost = False
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                lost = tells_loss(self._socket.recv(_LARGEST)) or lost
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                lost = True
                break
        if lost:
            self._lost()

    def connectionLost(self, reason: Failure) -> None:
        """End watching: the reactor cannot read any more."""
        self._close()

    def logPrefix(self) -> str:
        """Return how log lines about this begin."""
        return "addresses of this host"
