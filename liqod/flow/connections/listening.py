"""Server endpoints: a port without an address listens on all addresses of both IP versions.

Twisted's TCP endpoint listens on IPv4 only, and nodes may have only IPv6 addresses. One IPv6 socket accepts both (RFC
3493, section 3.7); IPv4 clients then appear as ``::ffff:192.0.2.1``, which ``plain_host`` converts back.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.clocks import Reactor
from liqod.model.host_port import join_address

_MAPPED: Final = "::ffff:"
_WITHOUT_SIX: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_SIX_ALONE: Final = Path("/proc/sys/net/ipv6/bindv6only")
"""sysctl with the default of IPV6_V6ONLY (RFC 3493, section 5.3)."""


def server_endpoint(reactor: Reactor, description: str) -> IStreamServerEndpoint:
    """Return the endpoint of a description; TCP without an address listens on all addresses of the host.

    Raises ValueError, like ``serverFromString``, for an invalid description.
    """
    endpoint: IStreamServerEndpoint = serverFromString(reactor, description)
    if not is_everywhere(description) or _hears_six_alone():
        return endpoint
    return _Everywhere(serverFromString(reactor, f"tcp6:{description.partition(':')[2]}"), endpoint)


def is_everywhere(description: str) -> bool:
    """Return whether a description is TCP without an address."""
    kind, _, rest = description.partition(":")
    port, *others = rest.split(":")
    return kind == "tcp" and not port.startswith("interface=") and all(_names_no_address(one) for one in others)


def plain_host(host: str) -> str:
    """Return a client's address, an IPv4-mapped IPv6 address as IPv4."""
    rest = host.removeprefix(_MAPPED)
    return rest if "." in rest else host


def address_text(address: object) -> str:
    """Return an address of a socket as people write it: ``host:port``, IPv6 in brackets, or the path of a socket."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    if host is None or port is None:
        name = getattr(address, "name", None) or ""
        return os.fsdecode(name) if isinstance(name, str | bytes) else ""
    return join_address(str(host), port)


def _names_no_address(part: str) -> bool:
    return part.startswith(("backlog=", "port="))


def _hears_six_alone() -> bool:
    try:
        return _SIX_ALONE.read_text().strip() == "1"
    except OSError:
        return False


@implementer(IStreamServerEndpoint)
class _Everywhere:
    """Listens on all addresses of both IP versions; on a host without IPv6, on IPv4 only."""

    def __init__(self, both: IStreamServerEndpoint, four: IStreamServerEndpoint) -> None:
        self._both = both
        self._four = four

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        listening: Deferred[IListeningPort] = self._both.listen(protocolFactory)
        return listening.addErrback(self._without_six, protocolFactory)

    def _without_six(self, failure: Failure, factory: IProtocolFactory) -> Any:
        cause = getattr(failure.value, "socketError", None)
        if failure.check(CannotListenError) is None or getattr(cause, "errno", None) not in _WITHOUT_SIX:
            return failure
        return self._four.listen(factory)
