"""Places for connections where API servers call: silent and slow ones do not keep them."""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.connections.admission import GRACE, OF_API_SERVERS, REQUEST
from liqod.flow.connections.handshake import https
from liqod.flow.connections.refused import LOG_INTERVAL, RefusedConnections
from liqod.identity import certs, tls
from liqod.model.ids import ClusterID
from tests.identity.tls_pair import NOW, Recorder


class HandshakeTests(SynchronousTestCase):
    """One port, and who holds it."""

    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.refused: list[str] = []
        self.made: list[Recorder] = []
        side = tls.PeerTLS(certs.generate(ClusterID("alpha"), NOW))
        self.caller = tls.PeerTLS(certs.generate(ClusterID("beta"), NOW))
        self.door = https(
            side.server_creator(),
            Factory.forProtocol(self.make),
            self.clock,
            lambda reason, source, message: self.refused.append(reason),
        )

    def make(self) -> Recorder:
        self.made.append(Recorder())
        return self.made[-1]

    def come(self, host: str) -> tuple[Any, StringTransport] | None:
        address = IPv4Address("TCP", host, 1)
        protocol = self.door.buildProtocol(address)
        if protocol is None:
            return None
        transport = StringTransport(peerAddress=address)
        protocol.makeConnection(transport)
        return protocol, transport

    def shake(self, protocol: Any, transport: StringTransport) -> Any:
        client: Any = self.caller.client_creator().clientConnectionForTLS(None)  # type: ignore[arg-type]
        client.set_connect_state()
        with self.assertRaises(SSL.WantReadError):
            client.do_handshake()
        protocol.dataReceived(client.bio_read(1 << 16))
        client.bio_write(transport.value())
        client.do_handshake()
        protocol.dataReceived(client.bio_read(1 << 16))
        return client

    def open(self) -> int:
        return len([one for one in self.made if "lost" not in one.seen])

    def test_silent_connections_lock_nobody_out(self) -> None:
        """A thousand from one address, and from many: another caller, and one of that very address, get in."""
        for number in range(1000):
            self.come("10.0.0.1" if number % 2 else f"10.1.{number // 250}.{number % 250}")
        self.clock.advance(GRACE)
        for host in ("10.0.0.1", "192.0.2.1"):
            came = self.come(host)
            assert came is not None
            self.shake(*came)
            self.assertEqual(self.made[-1].seen, ["made", "handshake"])

    def test_a_request_has_its_time(self) -> None:
        """Silent before, in and after the handshake, or a byte now and then: cut; who is served stays, also where more
        bytes come meanwhile.
        """
        silent, mute, served = self.come("10.0.0.1"), self.come("10.0.0.2"), self.come("10.0.0.3")
        assert silent and mute and served
        self.shake(*mute)
        client = self.shake(*served)
        served[0].serve()
        client.send(b"the next request")
        served[0].dataReceived(client.bio_read(1 << 16))
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(8)
        for number in range(int(REQUEST)):
            silent[0].dataReceived(hello[number : number + 1])
            self.clock.advance(1.0)
        self.assertEqual([pair[1].disconnecting for pair in (silent, mute, served)], [True, True, False])
        served[0].rest()
        self.clock.advance(REQUEST + 1)
        self.assertFalse(served[1].disconnecting)
        client.send(b"POST /mutate")
        served[0].dataReceived(client.bio_read(1 << 16))
        self.clock.advance(REQUEST + 1)
        self.assertTrue(served[1].disconnecting)

    def test_one_that_is_served_is_not_pushed_out(self) -> None:
        """All places are of those who are served: the next one is refused, and counted."""
        for number in range(OF_API_SERVERS.maximum):
            came = self.come(f"10.0.{number // 250}.{number % 250}")
            assert came is not None
            came[0].serve()
        self.assertIsNone(self.come("192.0.2.1"))
        self.assertEqual(self.refused, ["TooManyConnections"])

    def test_refusals_are_counted_and_logged_at_a_pace(self) -> None:
        """A thousand refused connections are a thousand in the count and one line a minute."""
        lines: list[str] = []

        observe: Any = lambda event: lines.append(formatEvent(event))  # noqa: E731
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        refused = RefusedConnections(self.clock, "tcp:5873")
        for number in range(1000):
            refused.record("TooManyConnections", f"10.0.0.{number % 250}", "all places are taken")
        self.assertEqual(refused.counts, {"TooManyConnections": 1000})
        self.assertEqual(len(lines), 1)
        self.clock.advance(LOG_INTERVAL)
        refused.record("TooManyHandshakes", "10.0.0.1", "later")
        self.assertEqual(len(lines), 2)
        self.assertIn("tcp:5873", lines[1])
        self.assertIn("since the last such line: 1000", lines[1])
