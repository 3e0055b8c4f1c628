"""The two sides of streams, in memory: who gets one, and what becomes of attackers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.peering.relay.splice.home import HomeStreams, OwnApiServer
from liqod.peering.relay.splice.lender import LenderStreams
from liqod.peering.relay.splice.limits import (
    ASKED_AT_ONCE,
    CONNECT,
    FIRST_BYTE,
    IDLE,
    IDLE_AT_HOME,
    KEPT,
    MOST_OPEN,
    PER_POD,
    UNASKED,
    WAIT,
    WAITING,
)
from liqod.peering.session.protocol import SPLICE
from liqod.wire.events import KeepStreams, StreamsKept
from tests.peering.relay.splice.cases import HELLO, KEYS, MILAN, ROME, Reactor, Session, Wire, World, connected

PODS = {"10.1.0.1": ROME, "10.1.0.2": MILAN}
API = ("192.0.2.9", 6443)


class Tenants:
    """Whose pods have which addresses, and who has a tunnel."""

    def __init__(self) -> None:
        self.pods = dict(PODS)
        self.tunnels: set[ClusterID] = set()

    def tenant_at(self, address: str) -> ClusterID | None:
        return self.pods.get(address)

    def has_tunnel(self, peer: ClusterID) -> bool:
        return peer in self.tunnels


class LenderTests(SynchronousTestCase):
    """Two tenants, rome and milan, whose homes dialled the sessions."""

    def setUp(self) -> None:
        self.reactor = Reactor()
        self.world = World(self.reactor, ROME, MILAN)
        self.tenants = Tenants()
        self.streams = LenderStreams(self.world.known, self.tenants, "tcp:5869:interface=127.0.0.1")
        self.streams.startService()
        self.addCleanup(self.streams.stopService)
        (server,) = self.reactor.tcpServers
        self.factory: Any = server[1]

    def grant(self, who: ClusterID = ROME, count: int = KEPT) -> None:
        """Let a home grant what it was asked for."""
        peer, session = self.world.peers[who], self.world.sessions[who]
        self.streams.session_opened(peer)
        self.streams.answered(peer, cast(Any, session), StreamsKept(count))

    def stream(self, who: ClusterID = ROME) -> Wire:
        """Let a home dial a stream that is kept ready."""
        return self.world.accepted(self.streams, KEYS[who])

    def pod(self, host: str = "10.1.0.1") -> Wire | None:
        """Let a pod connect; None where it is turned away."""
        protocol = self.factory.buildProtocol(IPv4Address("TCP", host, 40000))
        return None if protocol is None else connected(protocol)

    def test_asks_who_needs_them(self) -> None:
        """A tenant without a tunnel whose home knows streams is asked once in a session; with a tunnel for none."""
        peer, session = self.world.peers[ROME], self.world.sessions[ROME]
        self.streams.session_opened(peer)
        self.streams.session_opened(peer)
        self.assertEqual([one for one in session.sent if isinstance(one, KeepStreams)], [KeepStreams(KEPT)])
        self.tenants.tunnels.add(ROME)
        self.streams.session_opened(peer)
        self.assertEqual(session.sent[-1], KeepStreams(0))

    def test_nobody_else_is_asked(self) -> None:
        """Neither an older release nor who has no pods here."""
        for change in ("features", "namespace"):
            who = MILAN if change == "features" else ROME
            peer = self.world.peers[who]
            session = peer.session = Session(features=() if change == "features" else (SPLICE,))
            if change == "namespace":
                peer.lending.namespace = ""
            self.streams.session_opened(peer)
            self.assertEqual([one for one in session.sent if one == KeepStreams(KEPT)], [])

    def test_a_pod_gets_a_stream(self) -> None:
        """Its bytes go to the home of its tenant, and the answer back; the stream is nobody else's any more."""
        self.grant()
        stream, pod = self.stream(), self.pod()
        assert pod is not None
        pod.protocol.dataReceived(HELLO)
        self.assertEqual(stream.written, HELLO)
        stream.protocol.dataReceived(b"answer")
        self.assertEqual(pod.written, b"answer")
        other = self.pod()
        assert other is not None
        other.protocol.dataReceived(HELLO)
        self.assertEqual(stream.written, HELLO)

    def test_a_pod_waits_for_a_stream(self) -> None:
        """The next one that comes is its; nothing came in time: it is closed."""
        self.grant()
        pod, late = self.pod(), self.pod()
        assert pod is not None and late is not None
        for one in (pod, late):
            one.protocol.dataReceived(HELLO)
        stream = self.stream()
        self.assertEqual(stream.written, HELLO)
        self.reactor.advance(WAIT + 1)
        self.assertTrue(pod.connected)
        self.assertFalse(late.connected)

    # Attacks.

    def test_another_tenants_pod(self) -> None:
        """A pod of another tenant gets no stream of this one, whatever it sends: its address says whose it is."""
        self.grant()
        stream, pod = self.stream(), self.pod("10.1.0.2")
        assert pod is not None
        pod.protocol.dataReceived(HELLO)
        self.assertEqual(stream.written, b"")
        self.assertFalse(pod.connected)
        self.assertEqual(self.world.refused["StreamWithoutSession"], 1)

    def test_a_stranger(self) -> None:
        """An address that is no pod's of a tenant is turned away before a byte of it is read."""
        self.grant()
        self.stream()
        self.assertIsNone(self.pod("203.0.113.1"))
        self.assertEqual(self.world.refused["StreamStranger"], 1)

    def test_an_address_of_a_pod_that_is_gone(self) -> None:
        """It is nobody's, until another pod has it."""
        self.grant()
        self.tenants.pods.clear()
        self.assertIsNone(self.pod())

    def test_a_stream_without_a_session(self) -> None:
        """Who has a pinned key and no session keeps no streams here, nor who was asked for none."""
        self.grant()
        self.world.sessions[ROME].established = False
        self.assertFalse(self.stream().connected)
        self.assertEqual(self.world.refused["StreamWithoutSession"], 1)
        self.assertFalse(self.stream(MILAN).connected)
        self.assertEqual(self.world.refused["StreamNotAsked"], 1)

    def test_a_stream_by_an_unknown_key(self) -> None:
        """A stranger that speaks the protocol is cut off."""
        for key in ("", "sha256:" + "c" * 64):
            self.assertFalse(self.world.accepted(self.streams, key).connected)
        self.assertEqual(sum(self.world.refused.values()), 2)

    def test_a_home_that_opens_many_streams(self) -> None:
        """No more idle ones are kept than were agreed on, and one."""
        self.grant(count=64)
        streams = [self.stream() for _ in range(20)]
        self.assertEqual(sum(one.connected for one in streams), KEPT + 1)

    def test_a_flood_of_connections(self) -> None:
        """One pod has so many connections, one tenant so many that wait; another tenant's pods still get theirs."""
        self.grant()
        self.grant(MILAN)
        pods = [self.pod() for _ in range(PER_POD + 10)]
        self.assertEqual(sum(one is not None for one in pods), PER_POD)
        for number in range(WAITING + 10):
            self.tenants.pods[f"10.1.1.{number}"] = ROME
            pod = self.pod(f"10.1.1.{number}")
            if pod is not None:
                pod.protocol.dataReceived(HELLO)
        self.assertGreater(self.world.refused["TooManyStreams"], 10)
        stream, other = self.stream(MILAN), self.pod("10.1.0.2")
        assert other is not None
        other.protocol.dataReceived(HELLO)
        self.assertEqual(stream.written, HELLO)

    def test_connections_that_were_closed(self) -> None:
        """They count no more: a pod may open and close as many as it likes, one after the other."""
        for _ in range(PER_POD + 1):
            pod = self.pod()
            assert pod is not None
            pod.abortConnection()

    def test_silent_connections(self) -> None:
        """Who connects and says nothing takes no stream, and is closed after seconds."""
        self.grant()
        stream, pod = self.stream(), self.pod()
        assert pod is not None
        self.reactor.advance(FIRST_BYTE + 1)
        self.assertFalse(pod.connected)
        self.assertTrue(stream.connected)

    def test_a_home_that_speaks_first(self) -> None:
        """Bytes on an idle stream would be somebody's answer: it is closed."""
        self.grant()
        stream = self.stream()
        stream.protocol.dataReceived(b"x")
        self.assertFalse(stream.connected)

    def test_old_idle_streams_are_renewed(self) -> None:
        """Middle boxes forget silent connections, so the lender ends them before."""
        self.grant()
        stream = self.stream()
        self.reactor.advance(IDLE + 1)
        self.assertFalse(stream.connected)

    def test_the_end_of_trust(self) -> None:
        """Everything of the peer ends with its key, in the same moment; what is another's stays."""
        self.grant()
        self.grant(MILAN)
        stream, pod, other = self.stream(), self.pod(), self.stream(MILAN)
        assert pod is not None
        pod.protocol.dataReceived(HELLO)
        del self.world.pins[ROME]
        self.streams.review(ROME)
        self.assertFalse(pod.connected or stream.connected)
        self.assertTrue(other.connected)


class Dialled:
    """The peers of a world, where everything that is dialled is open at once; ``wires`` are the other ends."""

    def __init__(self, world: World) -> None:
        self._known = world.known
        self.wires: list[Wire] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name)

    def dial(self, peer: ClusterID, protocol: bytes, make: Callable[[], Any]) -> Callable[[], Deferred[Any]]:
        def opened() -> Deferred[Any]:
            end = make()
            self.wires.append(connected(end))
            return succeed(end)

        return opened


class HomeTests(SynchronousTestCase):
    """A home of two lenders, which dialled the sessions."""

    def setUp(self) -> None:
        self.reactor = Reactor()
        self.world = World(self.reactor, ROME, MILAN)
        self.place: tuple[str, int] | None = API
        called = ("kubernetes.default",)
        self.own = OwnApiServer(place=lambda: self.place, names=lambda: called, called=called)
        self.streams = HomeStreams(self.world.known, self.own, 16)

    def ask(self, who: ClusterID = ROME, count: int = KEPT) -> StreamsKept:
        """Let a lender ask, and return the answer."""
        session = self.world.sessions[who]
        self.streams.asked(self.world.peers[who], cast(Any, session), KeepStreams(count))
        answer = session.sent[-1]
        assert isinstance(answer, StreamsKept)
        return answer

    def stream(self, who: ClusterID = ROME) -> Wire:
        return self.world.accepted(self.streams, KEYS[who])

    def api(self) -> Wire:
        """Let the API server accept the connection that was asked for last."""
        host, port, factory = self.reactor.tcpClients[-1][:3]
        self.assertEqual((host, port), API)
        return connected(factory.buildProtocol(IPv4Address("TCP", host, port)))

    def test_a_stream_leads_to_the_api_server(self) -> None:
        """Nothing is connected before the first byte; from then on all bytes pass."""
        self.assertEqual(self.ask(), StreamsKept(KEPT))
        stream = self.stream()
        self.assertEqual(self.reactor.tcpClients, [])
        stream.protocol.dataReceived(HELLO)
        self.assertTrue(stream.paused)
        server = self.api()
        self.assertEqual(server.written, HELLO)
        server.protocol.dataReceived(b"answer")
        self.assertEqual(stream.written, b"answer")

    def test_what_is_granted_is_known(self) -> None:
        """Virtual kubelets see what the lender got, and that it asks for none any more."""
        state = self.streams.state(ROME)
        self.assertIsNone(state.value)
        self.ask()
        self.assertEqual(state.value and state.value.count, KEPT)
        self.ask(count=0)
        self.assertIsNone(state.value)

    def test_refusals_are_said(self) -> None:
        """To whom nothing is lent back, and where there is no address: a reason, and no streams."""
        self.world.peers[ROME].credential = None
        self.assertEqual(self.ask().reason, "NotBorrowing")
        self.place = None
        self.assertEqual(self.ask(MILAN).reason, "NoAddress")
        self.assertFalse(self.stream(MILAN).connected)

    # Attacks.

    def test_a_stream_without_a_session(self) -> None:
        """A pinned key alone opens no way to the API server, neither before a session nor after it."""
        self.assertFalse(self.stream().connected)
        self.ask()
        stream = self.stream()
        self.world.sessions[ROME].established = False
        stream.protocol.dataReceived(HELLO)
        self.assertFalse(stream.connected)
        self.assertEqual(self.reactor.tcpClients, [])
        self.assertFalse(self.stream().connected)

    def test_a_stranger(self) -> None:
        """Neither no key nor an unknown one."""
        self.ask()
        for key in ("", "sha256:" + "c" * 64):
            self.assertFalse(self.world.accepted(self.streams, key).connected)

    def test_what_is_not_tls(self) -> None:
        """A lender's daemon that speaks HTTP to the API server by a stream gets nowhere."""
        self.ask()
        stream = self.stream()
        stream.protocol.dataReceived(b"GET /api HTTP/1.1\r\n\r\n")
        self.assertFalse(stream.connected)
        self.assertEqual(self.reactor.tcpClients, [])

    def test_a_flood(self) -> None:
        """More idle streams than were granted are closed, and idle ones do not stay for good."""
        self.ask()
        streams = [self.stream() for _ in range(20)]
        self.assertEqual(sum(one.connected for one in streams), KEPT + 1)
        self.reactor.advance(IDLE_AT_HOME + 1)
        self.assertFalse(any(one.connected for one in streams))

    def test_the_end_of_trust(self) -> None:
        """A stream that is used ends with the key; one of another lender goes on."""
        for who in (ROME, MILAN):
            self.ask(who)
        stream, other = self.stream(), self.stream(MILAN)
        stream.protocol.dataReceived(HELLO)
        server = self.api()
        del self.world.pins[ROME]
        self.streams.review(ROME)
        self.assertFalse(stream.connected or server.connected)
        self.assertTrue(other.connected)
        self.assertIsNone(self.streams.state(ROME).value)

    def test_asking_without_end(self) -> None:
        """A lender that asks for streams and takes it back in a loop is not answered any more, until it has waited."""
        for number in range(100):
            self.streams.asked(
                self.world.peers[ROME], cast(Any, self.world.sessions[ROME]), KeepStreams(KEPT * (number % 2))
            )
        self.assertEqual(len(self.world.sessions[ROME].sent), ASKED_AT_ONCE)
        self.assertEqual(self.world.refused["TooManyStreams"], 100 - ASKED_AT_ONCE)
        self.reactor.advance(60)
        self.assertEqual(self.ask(), StreamsKept(KEPT))

    def test_streams_that_are_closing_are_not_idle(self) -> None:
        """Pods that come and go one after the other have a stream each, though the last ones are still closing."""
        self.ask()
        for _ in range(KEPT + 5):
            stream = self.stream()
            self.assertTrue(stream.connected)
            stream.lingers = True
            stream.protocol.dataReceived(HELLO)
            self.api().abortConnection()

    def test_a_stream_that_ends_meanwhile(self) -> None:
        """One that ends before the API server answered is no failure of that: nothing is logged."""
        self.ask()
        stream = self.stream()
        with capturedLogs() as events:
            stream.protocol.dataReceived(HELLO)
            stream.abortConnection()
            self.reactor.advance(2 * CONNECT)
        self.assertEqual([one for one in events if one.get("log_level") is LogLevel.warn], [])

    def test_a_lender_that_uses_each_stream_at_once(self) -> None:
        """Where home dials, a lender that takes every stream has as many used ones as any other, and no more."""
        dialled = Dialled(self.world)
        self.streams = HomeStreams(cast(Any, dialled), self.own, 16)
        self.world.sessions[ROME].role = "dialer"
        self.ask()
        spoken = 0
        for _ in range(60):
            while spoken < min(len(dialled.wires), 1000):
                connecting = len(self.reactor.tcpClients)
                dialled.wires[spoken].protocol.dataReceived(HELLO)
                spoken += 1
                if len(self.reactor.tcpClients) > connecting:
                    self.api()
            self.reactor.advance(1.0)
        self.assertGreater(spoken, MOST_OPEN)
        self.assertLessEqual(sum(one.connected for one in dialled.wires), MOST_OPEN + KEPT)
        self.assertGreater(self.world.refused["TooManyStreams"], 0)

    def test_a_lender_that_asks_no_more(self) -> None:
        """What it got stays known while it is away; in a new session it has to ask again."""
        self.ask()
        state = self.streams.state(ROME)
        for asks_again in (True, False):
            self.streams.session_closed(ROME)
            self.reactor.advance(2 * UNASKED)
            self.assertIsNotNone(state.value)
            self.streams.session_opened(ROME)
            if asks_again:
                self.ask()
            self.reactor.advance(UNASKED + 1)
            self.assertEqual(state.value is not None, asks_again)
