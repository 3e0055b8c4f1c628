"""Messages of DNS whose names are long, and pointed to again and again."""

from __future__ import annotations

import struct

from twisted.internet.testing import StringTransport
from twisted.names import dns
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.clocks import installed_reactor
from liqod.flow.connections.dns_reading import BoundedResolver, TooManyNames, decoded

_HEAD = struct.Struct("!HHHHHH")
_ADDRESS = struct.pack("!HHIH", dns.A, dns.IN, 5, 4) + b"\xc0\x00\x02\x01"
_QUESTION = b"\1a\0" + struct.pack("!HH", dns.A, dns.IN)


def costly(records: int, labels: int) -> bytes:
    """Return an answer of so many records that lead to one name, which has so many labels."""
    first = b"\1x" * labels + b"\0" + _ADDRESS
    more = struct.pack("!H", 0xC000 | _HEAD.size + len(_QUESTION)) + _ADDRESS
    return _HEAD.pack(7, 0x8180, 1, records + 1, 0, 0) + _QUESTION + first + more * records


def of_endpoints(count: int) -> bytes:
    """Return the answer for a service with so many endpoints, with their addresses."""
    name = "web.shop-rome.svc.cluster.local"
    message = dns.Message(7, answer=1, maxSize=0)
    message.addQuery(f"_http._tcp.{name}", dns.SRV)
    for number in range(count):
        end = f"web-{number}.{name}"
        record = dns.Record_SRV(0, 1, 80, end, 5)
        message.answers.append(dns.RRHeader(f"_http._tcp.{name}", dns.SRV, dns.IN, 5, record))
        message.additional.append(dns.RRHeader(end, dns.A, dns.IN, 5, dns.Record_A("192.0.2.1", 5)))
    return message.toStr()


class DecodedTests(SynchronousTestCase):
    """What is read of a message."""

    def test_costly(self) -> None:
        """One long name, many records that lead to it, and many to the longest that there may be are not read."""
        for records, labels in ((0, 32_000), (900, 8_000), (900, 127)):
            data = costly(records, labels)
            self.assertLess(len(data), 65_536)
            self.assertRaises(TooManyNames, decoded, data)

    def test_large(self) -> None:
        """An answer that is as large as it is passed on to a pod is read."""
        data = of_endpoints(300)
        self.assertGreater(len(data), 16_384)
        message = decoded(data)
        self.assertEqual((len(message.answers), len(message.additional)), (300, 300))


class ResolverTests(SynchronousTestCase):
    """What a server answers by TCP."""

    def received(self, data: bytes) -> tuple[StringTransport, list[dns.Message]]:
        """Return the connection, and what the resolver was given, after a message."""
        resolver = BoundedResolver(servers=[("192.0.2.53", 53)], reactor=installed_reactor())
        given: list[dns.Message] = []
        self.patch(resolver, "messageReceived", lambda message, *_: given.append(message))
        assert resolver.factory is not None
        protocol = resolver.factory.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        protocol.dataReceived(struct.pack("!H", len(data)) + data)
        return transport, given

    def test_ordinary(self) -> None:
        """A message is read, and the connection stays."""
        transport, given = self.received(of_endpoints(1))
        self.assertEqual((transport.disconnected, len(given)), (False, 1))

    def test_costly(self) -> None:
        """The connection is cut, and nothing is read."""
        transport, given = self.received(costly(900, 8_000))
        self.assertEqual((transport.disconnected, given), (True, []))
