"""The ports of tenants, over the loopback interface: answers, limits, and what a pod may send to break them."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import DatagramProtocol, Factory
from twisted.internet.task import deferLater
from twisted.names import dns
from twisted.protocols.basic import Int16StringReceiver
from twisted.trial.unittest import TestCase

from liqod.flow.connections.admission import GRACE
from liqod.names import server as server_module
from liqod.names.resolver import IN_FLIGHT, Resolver
from liqod.names.server import CONNECTIONS, PIPELINED, Server
from liqod.names.translation import TenantView
from liqod.names.upstream import UpstreamServers
from tests.names.cases import VIEW, Authority, address, answer_to, contents, decoded, query

reactor: Any = _reactor
LOCAL = "127.0.0.1"
SHOP, HERE = "shop.svc.home.example", "shop-rome.svc.cluster.local"


class Pod(DatagramProtocol):
    """Sends messages and collects what comes back."""

    noisy = False
    transport: Any

    def __init__(self, port: int) -> None:
        self._port = port
        self.got: list[bytes] = []
        self._wanted: list[tuple[int, Deferred[None]]] = []

    def startProtocol(self) -> None:
        self.transport.connect(LOCAL, self._port)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        self.got.append(datagram)
        for number, waiting in self._wanted:
            if len(self.got) >= number and not waiting.called:
                waiting.callback(None)

    async def answers(self, number: int) -> list[bytes]:
        """Wait until so many messages came."""
        if len(self.got) < number:
            waiting: Deferred[None] = Deferred()
            self._wanted.append((number, waiting))
            await waiting
        return self.got

    async def ask(self, data: bytes) -> dns.Message:
        """Send one message, and return the next one that comes."""
        before = len(self.got)
        self.send(data)
        return decoded((await self.answers(before + 1))[before])


class Connection(Int16StringReceiver):
    """A connection of a pod's."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.arrived: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.awaited = 1

    def stringReceived(self, string: bytes) -> None:
        self.got.append(string)
        if len(self.got) == self.awaited:
            self.arrived.callback(None)

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.callback(None)


class ServerTests(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.upstream = UpstreamServers(reactor)
        self.addCleanup(self.upstream.close)
        self.authority = self.dns({f"cache.{HERE}": [address(f"cache.{HERE}", "10.96.0.7")]})

    def dns(self, table: dict[str, list[dns.RRHeader]]) -> Authority:
        """Start a DNS of the cluster and ask it from now on, too."""
        authority = Authority(table)
        listening = reactor.listenUDP(0, authority, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        self.upstream.use([*self.upstream.servers, (LOCAL, listening.getHost().port)])
        return authority

    def server(self, rate: int = 10000) -> Server[Resolver]:
        """Start a tenant's port, and return it."""
        server = Server(reactor, Resolver(reactor, self.upstream, VIEW, rate), [LOCAL], 0)
        server.listen()
        self.addCleanup(lambda: gatherResults(server.close()))
        return server

    def pod(self, server: Server[Resolver]) -> Pod:
        """Return a pod that asks a server by UDP."""
        pod = Pod(server._listening[0].getHost().port)
        listening = reactor.listenUDP(0, pod, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        return pod

    async def connection(self, server: Server[Resolver]) -> Connection:
        """Return a connection to a server."""
        endpoint = TCP4ClientEndpoint(reactor, LOCAL, server._listening[1].getHost().port)
        made: Any = await endpoint.connect(Factory.forProtocol(Connection))
        self.addCleanup(lambda: made.transport.abortConnection())
        connection: Connection = made
        return connection

    async def test_translated(self) -> None:
        """A question for a name of home is asked for as here, and answered as at home; then from memory."""
        pod = self.pod(self.server())
        for _ in range(2):
            answer = await pod.ask(query(f"cache.{SHOP}"))
            self.assertEqual(contents(answer), [(f"cache.{SHOP}", "10.96.0.7")])
            self.assertEqual((answer.id, answer.rCode, answer.answers[0].ttl), (7, 0, 5))
        self.assertEqual(self.authority.asked, [f"cache.{HERE}"])

    async def test_case(self) -> None:
        """The question comes back in the letters that it was asked in, as clients check that use them as a secret."""
        answer = await self.pod(self.server()).ask(query("cAcHe.sHop.svc.home.example"))
        self.assertEqual(str(answer.queries[0].name), "cAcHe.sHop.svc.home.example")
        self.assertEqual(contents(answer)[0][1], "10.96.0.7")

    async def test_targets(self) -> None:
        """Names inside of records are those of home; records of other namespaces are left out, with what follows."""
        here = self.authority.table
        srv = dns.Record_SRV(0, 100, 6379, f"cache.{HERE}", 30)
        here[f"_redis._tcp.cache.{HERE}"] = [dns.RRHeader(f"_redis._tcp.cache.{HERE}", dns.SRV, dns.IN, 30, srv)]
        alias = dns.Record_CNAME("secret.own.svc.cluster.local", 30)
        here[f"alias.{HERE}"] = [
            dns.RRHeader(f"alias.{HERE}", dns.CNAME, dns.IN, 30, alias),
            address("secret.own.svc.cluster.local", "10.96.0.66"),
        ]
        pod = self.pod(self.server())
        answer = await pod.ask(query(f"_redis._tcp.cache.{SHOP}", dns.SRV))
        self.assertEqual(contents(answer), [(f"_redis._tcp.cache.{SHOP}", f"cache.{SHOP}")])
        answer = await pod.ask(query(f"alias.{SHOP}"))
        self.assertEqual((contents(answer), answer.rCode), ([], dns.ENAME))

    async def test_others_are_not_asked_for(self) -> None:
        """A question for another namespace, or the lender's own domain, reaches no server."""
        pod = self.pod(self.server())
        for name in ("secret.own.svc.cluster.local", "secret.own.svc.home.example", f"cache.{HERE}"):
            answer = await pod.ask(query(name))
            self.assertEqual((answer.rCode, contents(answer)), (dns.ENAME, []))
            self.assertEqual(str(answer.authority[0].name), "home.example")
        self.assertEqual(self.authority.asked, [])

    async def test_reverse(self) -> None:
        """Whose an address is, is answered where it is the tenant's own, under its name at home."""
        for number, target in (("7", f"cache.{HERE}"), ("8", "secret.own.svc.cluster.local"), ("9", "node.corp")):
            name = f"{number}.0.96.10.in-addr.arpa"
            self.authority.table[name] = [dns.RRHeader(name, dns.PTR, dns.IN, 30, dns.Record_PTR(target, 30))]
        pod = self.pod(self.server())
        answer = await pod.ask(query("7.0.96.10.in-addr.arpa", dns.PTR))
        self.assertEqual(contents(answer), [("7.0.96.10.in-addr.arpa", f"cache.{SHOP}")])
        for number in ("8", "9"):
            answer = await pod.ask(query(f"{number}.0.96.10.in-addr.arpa", dns.PTR))
            self.assertEqual((contents(answer), answer.rCode), ([], dns.ENAME))

    async def test_public(self) -> None:
        """The answer to a public name is passed on unread, under the client's ID."""
        text = dns.RRHeader("example.com", dns.TXT, dns.IN, 300, dns.Record_TXT(b"hello"))
        self.authority.table["example.com"] = [text]
        answer = await self.pod(self.server()).ask(query("example.com", dns.TXT, number=77))
        payload: Any = answer.answers[0].payload
        self.assertEqual((answer.id, answer.answers[0].ttl, payload.data), (77, 300, [b"hello"]))

    async def test_by_tcp(self) -> None:
        """An answer that is too large by UDP says so, and comes whole by TCP, several on one connection."""
        many = [address(f"many.{HERE}", f"10.0.{n}.1") for n in range(60)]
        self.authority.table[f"many.{HERE}"] = many
        server = self.server()
        answer = await self.pod(server).ask(query(f"many.{SHOP}"))
        self.assertEqual((answer.trunc, contents(answer)), (1, []))
        answer = await self.pod(server).ask(query(f"many.{SHOP}", size=1232))
        self.assertEqual((answer.trunc, len(answer.answers)), (0, 60))
        connection = await self.connection(server)
        connection.awaited = 3
        for number in (1, 2, 3):
            connection.sendString(query(f"many.{SHOP}", number=number))
        await connection.arrived
        self.assertEqual({decoded(one).id for one in connection.got}, {1, 2, 3})
        self.assertEqual([len(decoded(one).answers) for one in connection.got], [60, 60, 60])

    async def test_truncated_upstream(self) -> None:
        """What the cluster's DNS truncates is asked for by TCP, on the same port."""
        whole = [address(f"big.{HERE}", "10.0.0.1")]

        class ByTcp(Int16StringReceiver):
            def stringReceived(self, string: bytes) -> None:
                self.sendString(answer_to(string, whole))

        class Truncating(Authority):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                self.transport.write(datagram[:2] + b"\x83\x80" + datagram[4:], addr)  # type: ignore[union-attr]

        by_tcp = reactor.listenTCP(0, Factory.forProtocol(ByTcp), interface=LOCAL)
        self.addCleanup(by_tcp.stopListening)
        by_udp = reactor.listenUDP(by_tcp.getHost().port, Truncating({}), interface=LOCAL)
        self.addCleanup(by_udp.stopListening)
        # A server that truncates, and then takes no connection: the next one is asked.
        elsewhere = reactor.listenUDP(0, Truncating({}), interface=LOCAL)
        self.addCleanup(elsewhere.stopListening)
        self.upstream.use([(LOCAL, elsewhere.getHost().port), (LOCAL, by_tcp.getHost().port)])
        server = self.server()
        answer = await self.pod(server).ask(query(f"big.{SHOP}"))
        self.assertEqual((answer.trunc, contents(answer)), (1, []))
        connection = await self.connection(server)
        connection.sendString(query(f"big.{SHOP}"))
        await connection.arrived
        self.assertEqual(contents(decoded(connection.got[0])), [(f"big.{SHOP}", "10.0.0.1")])

    async def test_silence(self) -> None:
        """Where the first server is silent the second one is asked; where all are, that is the answer."""
        self.authority.silent = True
        pod = self.pod(self.server())
        self.assertEqual((await pod.ask(query(f"cache.{SHOP}"))).rCode, dns.ESERVER)
        self.dns({f"cache.{HERE}": [address(f"cache.{HERE}", "10.96.0.7")]})
        self.assertEqual(contents(await pod.ask(query(f"cache.{SHOP}"))), [(f"cache.{SHOP}", "10.96.0.7")])

    async def test_a_server_without_a_way_to_it(self) -> None:
        """Where the kernel refuses to send to a server, or to connect to it (broadcast: EACCES), the next one is asked
        at once."""
        self.patch(self.upstream, "_silence", self.timeout)
        first = self.upstream.servers
        pod = self.pod(self.server())
        for servers in ((("255.255.255.255", 53), *first), (*first, *first)):
            self.upstream.use(servers)
            self.assertEqual((await pod.ask(query(f"cache.{SHOP}"))).rCode, dns.OK)

    async def test_a_send_that_fails(self) -> None:
        """EPERM of a firewall of this host, say: the next server is asked at once, and nobody waits for an answer."""
        self.patch(self.upstream, "_silence", self.timeout)
        pod = self.pod(self.server())
        reachable = self.upstream.servers[0]
        closed = (LOCAL, 9)
        self.upstream.use([closed, reachable])
        self.upstream._socket(closed)

        def fail(*given: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        for one in self.upstream._sockets[closed]:
            self.patch(one.transport, "write", fail)
        self.assertEqual((await pod.ask(query(f"cache.{SHOP}"))).rCode, dns.OK)

    async def test_sockets_that_are_lost(self) -> None:
        """Twisted closes a socket on which reading fails (a firewall answers by ICMP): others take their place."""
        pod = self.pod(self.server())
        await pod.ask(query(f"cache.{SHOP}"))
        for one in self.upstream._sockets[self.upstream.servers[0]]:
            transport = one.transport
            transport.stopReading()
            transport.connectionLost(None)
        for name in (f"cache.{SHOP}", f"other.{SHOP}"):
            self.assertIn((await pod.ask(query(name))).rCode, (dns.OK, dns.ENAME))

    async def test_forged_answers(self) -> None:
        """An answer counts under the ID and with the question that were sent only; what cannot be read is a failure."""

        class Forger(Authority):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                forged = answer_to(datagram, [address(f"cache.{HERE}", "10.6.6.6")])
                other = answer_to(query("other.example"), [address("other.example", "10.6.6.6")])
                wrong = bytes([forged[0] ^ 1]) + forged[1:]
                for data in (wrong, datagram[:2] + other[2:], datagram, b"", b"\0", forged[:5]):
                    self.transport.write(data, addr)  # type: ignore[union-attr]
                super().datagramReceived(datagram, addr)

        forger = Forger(self.authority.table)
        listening = reactor.listenUDP(0, forger, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        self.upstream.use([(LOCAL, listening.getHost().port)])
        answer = await self.pod(self.server()).ask(query(f"cache.{SHOP}"))
        self.assertEqual(contents(answer), [(f"cache.{SHOP}", "10.96.0.7")])

    async def test_answers_of_others(self) -> None:
        """What another one sends to the socket that asked is not taken, though ID and question are the right ones."""

        class Overheard(Authority):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                assert stranger.transport is not None
                stranger.transport.write(answer_to(datagram, [address(f"cache.{HERE}", "10.6.6.6")]), addr)
                reactor.callLater(0.1, super().datagramReceived, datagram, addr)

        stranger, overheard = Authority({}), Overheard(self.authority.table)
        for protocol in (stranger, overheard):
            listening = reactor.listenUDP(0, protocol, interface=LOCAL)
            self.addCleanup(listening.stopListening)
        self.upstream.use([(LOCAL, listening.getHost().port)])
        answer = await self.pod(self.server()).ask(query(f"cache.{SHOP}"))
        self.assertEqual(contents(answer), [(f"cache.{SHOP}", "10.96.0.7")])

    async def test_connections_are_bounded(self) -> None:
        """Who holds the connections of an address gets no further one, and after a second the oldest one makes room."""
        server = self.server()
        held = [await self.connection(server) for _ in range(CONNECTIONS.per_address)]
        more = await self.connection(server)
        await more.ended
        self.assertEqual([one for one in held if one.ended.called], [])
        await deferLater(reactor, GRACE)
        asking = await self.connection(server)
        asking.sendString(query(f"cache.{SHOP}"))
        await asking.arrived
        await held[0].ended
        self.assertEqual([one for one in held[1:] if one.ended.called], [])

    async def test_loop_in_an_answer(self) -> None:
        """An answer with a name that points at itself is a failure, and nothing more."""

        class Looping(Authority):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                head = datagram[:2] + b"\x81\x80" + struct.pack("!4H", 1, 1, 0, 0)
                at = 0xC000 | len(datagram)
                loop = struct.pack("!HHHIH", at, 1, 1, 5, 4) + bytes(4)
                self.transport.write(head + datagram[12:] + loop, addr)  # type: ignore[union-attr]

        listening = reactor.listenUDP(0, Looping({}), interface=LOCAL)
        self.addCleanup(listening.stopListening)
        self.upstream.use([(LOCAL, listening.getHost().port)])
        pod = self.pod(self.server())
        self.assertEqual((await pod.ask(query(f"cache.{SHOP}"))).rCode, dns.ESERVER)
        self.assertEqual(self.flushLoggedErrors(), [])

    async def test_garbage(self) -> None:
        """What is no question does no harm: the next question is answered."""
        pod = self.pod(self.server())
        for size in (0, 1, 11, 12, 13, 100, 2000):
            pod.send(os.urandom(size))
        pod.send(query("x")[:12] + b"\xc0\x0c\0\x01\0\x01")
        while True:
            answer = await pod.ask(query(f"cache.{SHOP}", number=4242))
            if answer.id == 4242 and answer.answers:
                break
        self.assertEqual(self.flushLoggedErrors(), [])

    async def test_a_flood(self) -> None:
        """Who asks more than allowed is served at that rate; meanwhile nobody else waits for it."""
        flooded, other = self.server(rate=40), self.server()
        flood, quiet = self.pod(flooded), self.pod(other)
        for number in range(400):
            flood.send(query(f"cache.{SHOP}", number=number))
        for _ in range(20):
            self.assertEqual((await quiet.ask(query(f"cache.{SHOP}"))).rCode, 0)
        counts = flooded.resolver.counts
        self.assertLess(counts.answered + counts.from_cache, 100)
        while not flooded.resolver.counts.from_cache:
            await deferLater(reactor, 0.01)
        self.assertLessEqual(len(flood.got), 100)

    async def test_too_many_at_once(self) -> None:
        """Where the cluster's DNS is slow, a tenant's questions wait in a number that is bounded."""
        self.authority.silent = True
        server = self.server(rate=100000)
        pod = self.pod(server)
        reply: list[bytes] = []
        for number in range(IN_FLIGHT + 5):
            server.resolver.ask(query(f"n{number}.{SHOP}"), "udp", reply.append)
        self.assertEqual([decoded(one).rCode for one in reply], [dns.ESERVER] * 5)
        self.authority.silent = False
        while len(reply) < IN_FLIGHT + 5:
            await deferLater(reactor, 0.05)
        self.assertEqual((await pod.ask(query(f"cache.{SHOP}"))).rCode, 0)

    async def test_many_in_one_segment(self) -> None:
        """Of questions that arrive together a connection has so many answered at a time, and all in the end."""
        self.authority.silent = True
        connection = await self.connection(self.server())
        connection.awaited = 100
        asked = [query(f"n{number}.{SHOP}", number=number) for number in range(100)]
        connection.transport.write(b"".join(struct.pack("!H", len(one)) + one for one in asked))  # type: ignore[union-attr]
        while not self.authority.asked:
            await deferLater(reactor, 0.01)
        await deferLater(reactor, 0.3)
        self.assertLessEqual(len(set(self.authority.asked)), PIPELINED)
        self.authority.silent = False
        await connection.arrived
        self.assertEqual({decoded(one).id for one in connection.got}, set(range(100)))

    async def test_answers_that_are_not_read(self) -> None:
        """A client that asks on and reads nothing has no further questions read, and its connection is closed."""
        self.patch(server_module, "IDLE", 1.0)
        self.authority.table[f"many.{HERE}"] = [address(f"many.{HERE}", f"10.0.{n}.1") for n in range(60)]
        server = self.server()
        # Accepted sockets have the listening one's buffer (socket(7)), and little of the answers is the kernel's.
        server._listening[1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client = socket.socket()
        self.addCleanup(client.close)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((LOCAL, server._listening[1].getHost().port))
        asked, most = query(f"many.{SHOP}"), 0
        client.setblocking(False)
        client.send((struct.pack("!H", len(asked)) + asked) * 1000)
        while not len(server._admission):
            await deferLater(reactor, 0.01)
        (connection,) = server._admission._waiting
        while len(server._admission):
            transport: Any = connection.transport  # type: ignore[attr-defined]
            most = max(most, len(transport.dataBuffer) + transport._tempDataLen)
            await deferLater(reactor, 0.01)
        self.assertGreater(most, 50000)
        self.assertLess(most, 150000)

    async def test_answers_that_are_read_late(self) -> None:
        """All answers come in the end, however long the client did not read."""
        self.authority.table[f"many.{HERE}"] = [address(f"many.{HERE}", f"10.0.{n}.1") for n in range(60)]
        server = self.server()
        server._listening[1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection = await self.connection(server)
        connection.awaited = 1000
        transport: Any = connection.transport
        transport.pauseProducing()
        asked = query(f"many.{SHOP}")
        transport.write((struct.pack("!H", len(asked)) + asked) * 1000)
        await deferLater(reactor, 0.5)
        transport.resumeProducing()
        await connection.arrived

    async def test_too_large_by_tcp(self) -> None:
        """A message that is longer than any question ends the connection."""
        connection = await self.connection(self.server())
        connection.transport.write(b"\xff\xff" + bytes(100))  # type: ignore[union-attr]
        await connection.ended
        self.assertEqual(connection.got, [])

    async def test_other_tables(self) -> None:
        """What was kept is forgotten with the tables that it came from."""
        server = self.server()
        pod = self.pod(server)
        await pod.ask(query(f"cache.{SHOP}"))
        self.authority.table["cache.other.svc.cluster.local"] = [address("cache.other.svc.cluster.local", "10.96.0.8")]
        server.resolver.see(TenantView("home.example", "cluster.local", {"shop": "other"}))
        self.assertEqual(contents(await pod.ask(query(f"cache.{SHOP}"))), [(f"cache.{SHOP}", "10.96.0.8")])
