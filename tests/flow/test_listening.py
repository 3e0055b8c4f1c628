"""Where servers listen: at all addresses of both IP versions, unless configured otherwise."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any, cast

from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SkipTest, SynchronousTestCase, TestCase

from liqod.flow.connections.listening import address_text, is_everywhere, plain_host, server_endpoint

reactor = cast(Any, _reactor)


class WithoutSix(MemoryReactor):
    """A host whose kernel knows no IPv6, or where something else is wrong with its addresses."""

    number = errno.EAFNOSUPPORT

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        if ":" in interface:
            raise CannotListenError(interface, port, OSError(self.number, "it does not work"))
        return super().listenTCP(port, factory, backlog, interface)


class DescriptionTests(SynchronousTestCase):
    """Which descriptions are of all addresses, and what becomes of them."""

    def test_which_are_everywhere(self) -> None:
        """A port alone is; whatever names an address, or is no TCP, is as it says."""
        for text, wanted in (
            ("tcp:5872", True),
            ("tcp:port=5872", True),
            ("tcp:5872:backlog=9", True),
            ("tcp:5872:interface=10.0.0.1", False),
            ("tcp:interface=10.0.0.1:port=5872", False),
            ("tcp:5872:10.0.0.1", False),
            ("tcp6:5872", False),
            ("unix:/run/socket", False),
            ("systemd:domain=INET:name=liqod", False),
        ):
            self.assertEqual(is_everywhere(text), wanted, text)

    def test_both_versions_in_one_socket(self) -> None:
        """All addresses of IPv6 are listened at, and with them those of IPv4; a named address is taken as it is."""
        memory: Any = MemoryReactor()
        for text in ("tcp:5872", "tcp:5873:interface=192.0.2.1"):
            self.successResultOf(server_endpoint(memory, text).listen(Factory()))
        self.assertEqual([(one[0], one[3]) for one in memory.tcpServers], [(5872, "::"), (5873, "192.0.2.1")])

    def test_a_host_without_six(self) -> None:
        """There IPv4 is listened at."""
        memory: Any = WithoutSix()
        self.successResultOf(server_endpoint(memory, "tcp:5872").listen(Factory()))
        self.assertEqual([(one[0], one[3]) for one in memory.tcpServers], [(5872, "")])

    def test_a_port_that_is_taken(self) -> None:
        """Every other failure is reported, and nothing is listened at."""
        memory: Any = WithoutSix()
        memory.number = errno.EADDRINUSE
        self.failureResultOf(server_endpoint(memory, "tcp:5872").listen(Factory()), CannotListenError)
        self.assertEqual(memory.tcpServers, [])

    def test_nonsense_is_refused(self) -> None:
        """What is no description raises ValueError."""
        self.assertRaises(ValueError, server_endpoint, MemoryReactor(), "nonsense:5872")

    def test_callers(self) -> None:
        """One that came by IPv4 has its address of IPv4; what only looks like it stays."""
        self.assertEqual(plain_host("::ffff:192.0.2.1"), "192.0.2.1")
        for host in ("192.0.2.1", "2001:db8::1", "::ffff:1:2", "a local socket"):
            self.assertEqual(plain_host(host), host)


class AddressTextTests(SynchronousTestCase):
    """Addresses as the log shows them."""

    def test_forms(self) -> None:
        """Host and port, IPv6 in brackets, the path of a socket, and nothing for one without a name."""
        for address, text in (
            (IPv4Address("TCP", "192.0.2.1", 5872), "192.0.2.1:5872"),
            (IPv6Address("TCP", "2001:db8::1", 5872), "[2001:db8::1]:5872"),
            (UNIXAddress(b"/run/liqod.sock"), "/run/liqod.sock"),
            (UNIXAddress(None), ""),
        ):
            self.assertEqual(address_text(address), text)


class CallTests(TestCase):
    """Real sockets of this host."""

    async def test_both_versions_are_received(self) -> None:
        """One port answers at the loopback addresses of both IP versions."""
        if not _has_six():
            raise SkipTest("this host has no IPv6")
        port: Any = await server_endpoint(reactor, "tcp:0").listen(Factory.forProtocol(Protocol))
        self.addCleanup(port.stopListening)
        for make, host in ((TCP4ClientEndpoint, "127.0.0.1"), (TCP6ClientEndpoint, "::1")):
            connected: Any = await make(reactor, host, port.getHost().port).connect(Factory.forProtocol(Protocol))
            connected.transport.abortConnection()


def _has_six() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.bind(("::1", 0))
        return True
    return False
