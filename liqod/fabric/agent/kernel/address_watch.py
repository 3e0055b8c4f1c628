"""Detects when this host loses an address, or a policy rule of ours, from multicast messages of rtnetlink(7)."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

from twisted.application.service import Service
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.fabric.agent.kernel.model import TABLE
from liqod.flow.clocks import Reactor
from liqod.flow.observe import Latest

# From linux/rtnetlink.h, linux/netlink.h and linux/fib_rules.h; messages are in the host's byte order.
_ADDRESSES: Final = 0x10 | 0x100  # RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_RULES: Final = 1 << 7 | 1 << 18  # RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE
_DELADDR: Final = 21
_DELRULE: Final = 33
_RULE_SIZE: Final = 12  # fib_rule_hdr
_ATTRIBUTE: Final = struct.Struct("=HH")  # rtattr: length, type
_FRA_TABLE: Final = 15
_HEAD: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ADDRESS: Final = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface
_UNIVERSE: Final = 0
_LARGEST: Final = 65536
_AT_ONCE: Final = 64
"""Datagrams that are read before the reactor may do something else."""


def reports_removal(datagram: bytes) -> bool:
    """Return whether a datagram says that an address of global scope, or a rule that leads to our table, was removed.

    Link-local addresses come and go with the veth of every pod, and no tunnel is bound to them.
    """
    at = 0
    while at + _HEAD.size <= len(datagram):
        length, kind, *_ = _HEAD.unpack_from(datagram, at)
        if length < _HEAD.size:
            return False
        body = datagram[at + _HEAD.size : at + length]
        if kind == _DELADDR and len(body) >= _ADDRESS.size:
            _, _, _, scope, _ = _ADDRESS.unpack_from(body)
            if scope == _UNIVERSE:
                return True
        if kind == _DELRULE and _table_of(body) == TABLE:
            return True
        at += (length + 3) & ~3  # NLMSG_ALIGN
    return False


def _table_of(rule: bytes) -> int:
    """Return the table that a rule leads to, 0 where it says none: the head has room for those below 256 only."""
    at = _RULE_SIZE
    while at + _ATTRIBUTE.size <= len(rule):
        length, kind = _ATTRIBUTE.unpack_from(rule, at)
        if length < _ATTRIBUTE.size:
            return 0
        value = rule[at + _ATTRIBUTE.size : at + length]
        if kind == _FRA_TABLE and len(value) == 4:
            return int.from_bytes(value, sys.byteorder)
        at += (length + 3) & ~3  # RTA_ALIGN
    return 0


@implementer(IReadDescriptor)
class AddressWatch(Service):
    """Counts in ``removals`` how often an address was removed, or a rule of ours.

    Where there is no such socket, a removal is seen by the next regular pass of the converge loop.
    """

    _log = Logger()

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.removals = Latest(0)
        self._socket: socket.socket | None = None

    def startService(self) -> None:
        super().startService()
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        made = None
        try:
            made = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            # Port ID 0: the kernel assigns a unique one (netlink(7)).
            made.bind((0, _ADDRESSES | _RULES))
        except OSError as error:
            if made is not None:
                made.close()
            self._log.warn(
                "no netlink socket: lost addresses and policy rules of this host are seen late: {error}",
                error=str(error),
            )
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
        """Return the file descriptor, for the reactor."""
        return self._socket.fileno() if self._socket is not None else -1

    def doRead(self) -> None:
        """Read what the kernel sent. ENOBUFS: messages were dropped (netlink(7)), and any may have been a removal."""
        removed = False
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                removed = reports_removal(self._socket.recv(_LARGEST)) or removed
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                removed = True
                break
        if removed:
            self.removals.set(self.removals.value + 1)

    def connectionLost(self, reason: Failure) -> None:
        """Close the socket: the reactor cannot read from it any more."""
        self._close()

    def logPrefix(self) -> str:
        """Return the prefix of log lines."""
        return "addresses of this host"
