"""One connection under a clock: its time-outs, its pings, and what it does when the peer does not read."""

from __future__ import annotations

import datetime
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import PeeringSettings
from liqod.identity.certs import generate
from liqod.identity.tls import PeerCertificate
from liqod.model.ids import ClusterID, Fingerprint
from liqod.peering.session.protocol import CLOSING, JOINING, MAX_RATE, MAX_UNREAD, PROBE, SLOW_READER, PeerConnection
from liqod.peering.session.usage import REACTOR_TIME, SHARES, PeerUsage
from liqod.wire.events import Bye, Event, Hello, Join, Ping, Pong, RemoveSlice, Verdict, Welcome
from liqod.wire.session import NEED_DATA, SessionProtocol

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
KEY = "sha256:" + "0" * 64
TIMES = PeeringSettings(ping_interval=10.0, handshake_timeout=5.0)


class ReadsCertificates:
    """A TLS side in which every handshake went well."""

    keypair = generate(ClusterID("us"), NOW)

    def peer_certificate(self, transport: object) -> PeerCertificate:
        return PeerCertificate(Fingerprint(KEY), False, "peer", NOW, NOW)

    def refusal(self, transport: object) -> None:
        return None


class Transport(StringTransport):
    """A transport that can be aborted."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True

    def unregisterProducer(self) -> None:
        # That of TLS has nothing to do without a producer (twisted.protocols.tls).
        if self.producer is not None:
            super().unregisterProducer()


class RecordingOwner:
    """An owner that records its calls; ``answer`` is its decision, for which it waits until ``pending`` fires."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.answer: Bye | None = None
        self.pending: Deferred[None] | None = None

    def hello(self, connection: PeerConnection) -> Hello:
        return Hello("us", "us", 1, 0, 0, [])

    def join(self, connection: PeerConnection) -> None:
        return None

    async def authenticate(self, connection: PeerConnection, hello: Hello, join: Join | None) -> Bye | None:
        self.trace.append(f"authenticate {hello.cluster_id}")
        if self.pending is not None:
            await self.pending
        return self.answer

    def established(self, connection: PeerConnection) -> None:
        self.trace.append("established")

    def received(self, connection: PeerConnection, event: Event) -> None:
        self.trace.append(type(event).__name__)

    def closed(self, connection: PeerConnection) -> None:
        self.trace.append(f"closed {connection.ending.reason if connection.ending else ''}")


class ConnectionTests(SynchronousTestCase):
    """A listener's connection, and the other end of the protocol in the test's hands."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.owner = RecordingOwner()
        self.transport = Transport()
        self.connection = PeerConnection(
            "listener", self.owner, tls=cast(Any, ReadsCertificates()), clock=self.clock, times=TIMES
        )
        self.connection.makeConnection(self.transport)
        self.peer = SessionProtocol("dialer")

    def lose(self) -> None:
        self.connection.connectionLost()

    def says(self, event: Event) -> None:
        self.connection.dataReceived(self.peer.send(event))

    def answers(self) -> list[Event]:
        self.peer.receive_data(self.transport.value())
        self.transport.clear()
        events: list[Event] = []
        while (event := self.peer.next_event()) is not NEED_DATA:
            events.append(cast(Event, event))
        return events

    def establish(self) -> None:
        self.connection.handshakeCompleted()
        self.says(Hello("peer", "peer", 1, 0, 0, []))
        self.assertEqual([type(event) for event in self.answers()], [Hello, Welcome])
        self.says(self.peer.welcome())

    def test_nothing_is_said_before_the_handshake(self) -> None:
        """Bytes that come before the certificate was read are dropped, and nothing is written."""
        self.connection.dataReceived(b"anything")
        self.assertEqual(self.transport.value(), b"")
        self.clock.advance(TIMES.handshake_timeout)
        self.assertTrue(self.transport.aborted)
        self.lose()
        self.assertEqual(self.owner.trace, ["closed HandshakeTimeout"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def hold(self) -> PeerUsage:
        """Have the peer say something once it has taken a second more than its share."""
        self.establish()
        self.connection.usage = usage = PeerUsage()
        usage.worked(sum(SHARES[REACTOR_TIME]), self.clock.seconds())
        self.says(Ping(1))
        self.assertEqual(self.transport.producerState, "paused")
        return usage

    def test_a_peer_that_had_its_share(self) -> None:
        """Nothing is read of it for the time of the excess; then reading goes on."""
        usage = self.hold()
        self.assertEqual([type(event) for event in self.answers()], [Pong])
        self.clock.advance(1.01)
        self.assertEqual(self.transport.producerState, "producing")
        self.says(Ping(2))
        self.assertEqual((usage.events, dict(usage.held)), (2, {REACTOR_TIME: 1}))

    def test_the_end_of_one_that_is_held(self) -> None:
        """Its transport reads again, so that it notices the end, and no timer stays."""
        self.hold()
        self.connection.end(Bye("Stopping", "the daemon is stopping"))
        self.assertEqual(self.transport.producerState, "producing")
        self.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_dialer_that_expects_a_key(self) -> None:
        """It greets only a listener with that key; another one gets not a byte, and without expectation any is met."""
        table = (("", Hello, ""), (KEY, Hello, ""), ("sha256:" + "1" * 64, None, "closed UnexpectedKey"))
        for expected, greeting, end in table:
            owner, transport, listener = RecordingOwner(), Transport(), SessionProtocol("listener")
            connection = PeerConnection(
                "dialer",
                owner,
                tls=cast(Any, ReadsCertificates()),
                clock=self.clock,
                times=TIMES,
                expected_key=expected,
            )
            connection.makeConnection(transport)
            connection.handshakeCompleted()
            if greeting is None:
                self.assertEqual(transport.value(), b"")
                self.assertTrue(transport.aborted)
            else:
                listener.receive_data(transport.value())
                self.assertIsInstance(listener.next_event(), greeting)
                self.assertFalse(transport.aborted)
            connection.connectionLost()
            self.assertEqual(owner.trace, [end or "closed ConnectionLost"])

    def test_a_check_of_the_peer_that_fails(self) -> None:
        """The peer gets a Bye, and the log the failure; only a check that the connection's end stopped is no failure,
        one that fails by itself after that end is logged all the same.
        """
        for lost, fails, logged in ((False, True, 1), (True, False, 0), (True, True, 1)):
            self.setUp()
            check: Deferred[None] = Deferred((lambda one: one.errback(KeyError("x"))) if fails else None)
            self.owner.pending = check
            self.connection.handshakeCompleted()
            self.says(Hello("peer", "peer", 1, 0, 0, []))
            if lost:
                self.lose()
            else:
                check.errback(KeyError("x"))
                self.assertEqual([type(event) for event in self.answers()], [Hello, Bye])
                self.lose()
            self.assertEqual(len(self.flushLoggedErrors(KeyError)), logged)

    def test_events_reach_the_owner_only_in_an_established_session(self) -> None:
        """Judged, then established, then events; the end is reported once, and no timer is left."""
        self.establish()
        self.says(Verdict(1, 1, "Accepted"))
        self.lose()
        self.assertEqual(self.owner.trace, ["authenticate peer", "established", "Verdict", "closed ConnectionLost"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_key_that_is_not_trusted_gets_a_reason(self) -> None:
        """Hello and Bye, then the connection closes, at the latest after a moment."""
        self.owner.answer = Bye("TrustPending", "not yet")
        self.connection.handshakeCompleted()
        self.says(Hello("peer", "peer", 1, 0, 0, []))
        self.assertEqual([type(event) for event in self.answers()], [Hello, Bye])
        self.assertTrue(self.transport.disconnecting)
        self.clock.advance(CLOSING)
        self.assertTrue(self.transport.aborted)

    def test_one_token_is_judged_in_a_session(self) -> None:
        """However many Joins come, while the first is judged and after it: a session is one attempt to use a token."""
        judged: list[Deferred[None]] = []

        async def authenticate(connection: object, hello: Hello, join: Join | None) -> None:
            judged.append(Deferred())
            await judged[-1]

        self.patch(self.owner, "authenticate", authenticate)
        self.connection.handshakeCompleted()
        self.says(Hello("peer", "peer", 1, 0, 0, [JOINING]))
        self.assertEqual([type(event) for event in self.answers()], [Hello])
        self.assertEqual(judged, [])
        for number in range(5):
            self.says(Join(f"{number:04x}", "0" * 64))
        self.assertEqual(len(judged), 1)
        judged[0].callback(None)
        self.assertEqual([type(event) for event in self.answers()], [Welcome])
        self.says(Join("ffff", "0" * 64))
        self.assertEqual(len(judged), 1)

    def test_an_invitation_that_went_during_the_handshake(self) -> None:
        """The connection ends with a reason after which the peer is dialled again."""
        owner, transport, listener = RecordingOwner(), Transport(), SessionProtocol("listener")
        self.patch(owner, "hello", lambda connection: Hello("us", "us", 1, 0, 0, [JOINING]))
        connection = PeerConnection("dialer", owner, tls=cast(Any, ReadsCertificates()), clock=self.clock, times=TIMES)
        connection.makeConnection(transport)
        connection.handshakeCompleted()
        listener.receive_data(transport.value())
        listener.next_event()
        connection.dataReceived(listener.send(Hello("peer", "peer", 1, 0, 0, [])))
        connection.connectionLost()
        self.assertEqual(owner.trace, ["authenticate peer", "closed Duplicate"])

    def test_a_token_that_was_not_announced_is_not_judged(self) -> None:
        """A peer that did not say that it brings a token is judged by its key alone."""
        self.connection.handshakeCompleted()
        self.says(Hello("peer", "peer", 1, 0, 0, []))
        self.answers()
        self.says(Join("0000", "0" * 64))
        self.assertEqual(self.owner.trace, ["authenticate peer"])

    def test_three_unanswered_pings_end_it(self) -> None:
        """A ping each interval; three without any sign of life, and the session is given up."""
        self.establish()
        for _ in range(3):
            self.clock.advance(TIMES.ping_interval)
            self.assertEqual([type(event) for event in self.answers()], [Ping])
            self.assertFalse(self.transport.aborted)
        self.clock.advance(TIMES.ping_interval)
        self.assertTrue(self.transport.aborted)
        self.lose()
        self.assertEqual(self.owner.trace[-1], "closed Unresponsive")

    def test_an_answered_ping_keeps_it(self) -> None:
        """Pongs count as signs of life, for as long as they come."""
        self.establish()
        for _ in range(20):
            self.clock.advance(TIMES.ping_interval)
            self.says(Pong(0))
        self.assertFalse(self.transport.aborted)

    def test_who_dialled_is_asked_and_asks_only_in_silence(self) -> None:
        """The listener's ping each interval is a sign of life for both; without it the dialer asks, and gives up."""
        dialer = PeerConnection("dialer", self.owner, tls=cast(Any, ReadsCertificates()), clock=self.clock, times=TIMES)
        transport = Transport()
        dialer.makeConnection(transport)
        dialer.handshakeCompleted()
        listener = SessionProtocol("listener")

        def reported() -> list[Event]:
            listener.receive_data(transport.value())
            transport.clear()
            events: list[Event] = []
            while (event := listener.next_event()) is not NEED_DATA:
                events.append(cast(Event, event))
            return events

        self.assertEqual([type(event) for event in reported()], [Hello])
        dialer.dataReceived(listener.send(Hello("peer", "peer", 1, 0, 0, [])))
        dialer.dataReceived(listener.send(listener.welcome()))
        self.assertEqual([type(event) for event in reported()], [Welcome])
        for _ in range(5):
            self.clock.advance(TIMES.ping_interval)
            dialer.dataReceived(listener.send(Ping(0)))
            self.assertEqual(reported(), [Pong(0)])
        self.clock.advance(TIMES.ping_interval)
        for missed in (1, 2):
            self.clock.advance(TIMES.ping_interval)
            self.assertEqual(reported(), [Ping(missed)])
        self.clock.advance(TIMES.ping_interval)
        self.assertTrue(transport.aborted)
        dialer.connectionLost()
        self.assertEqual(self.owner.trace[-1], "closed Unresponsive")

    def test_a_probe_wants_an_answer_soon(self) -> None:
        """Unanswered it ends the session, answered it leaves no trace."""
        self.establish()
        self.connection.probe()
        self.clock.advance(PROBE / 2)
        self.says(Pong(0))
        self.clock.advance(PROBE)
        self.assertFalse(self.transport.aborted)
        self.connection.probe()
        self.clock.advance(PROBE)
        self.assertTrue(self.transport.aborted)

    def test_a_peer_that_does_not_read_is_cut_off(self) -> None:
        """After a while of unread bytes; reading in time is forgiven."""
        self.establish()
        self.connection.pauseProducing()
        self.clock.advance(SLOW_READER / 2)
        self.connection.resumeProducing()
        for _ in range(5):
            self.clock.advance(SLOW_READER / 5)
            self.says(Pong(0))
        self.assertFalse(self.transport.aborted)
        self.connection.pauseProducing()
        for _ in range(5):
            self.clock.advance(SLOW_READER / 5)
        self.assertTrue(self.transport.aborted)
        self.lose()
        self.assertIn(self.owner.trace[-1], ("closed SlowReader", "closed Unresponsive"))

    def test_an_answered_probe_is_answered_whatever_waits(self) -> None:
        """A peer that answers a probe is there, also where it has not yet read all that was sent to it."""
        self.establish()
        self.connection.probe()
        self.connection.pauseProducing()
        self.says(Pong(0))
        self.clock.advance(PROBE)
        self.assertFalse(self.transport.aborted)
        self.clock.advance(SLOW_READER - PROBE)
        self.assertTrue(self.transport.aborted)

    def test_who_stops_reading_before_the_session_is_cut_off_too(self) -> None:
        """What waited when a session began must be read in time as well."""
        self.connection.pauseProducing()
        self.establish()
        for _ in range(10):
            self.clock.advance(SLOW_READER / 10)
            self.says(Pong(0))
        self.assertTrue(self.transport.aborted)

    def test_who_talks_and_does_not_read_is_cut_off_too(self) -> None:
        """Signs of life are no reading: what waits for such a peer would wait for ever."""
        self.establish()
        self.connection.pauseProducing()
        for _ in range(10):
            self.clock.advance(SLOW_READER / 10)
            self.says(Pong(0))
        self.assertTrue(self.transport.aborted)
        self.lose()
        self.assertEqual(self.owner.trace[-1], "closed SlowReader")

    def test_a_peer_may_say_so_much_in_a_second(self) -> None:
        """A thousand events pass; one more ends the session, whatever it is, and the next second is another one."""
        for last in (Pong(0), Bye("Stopping", "later")):
            self.setUp()
            self.establish()
            self.clock.advance(1)
            for _ in range(2):
                for _ in range(MAX_RATE):
                    self.says(Pong(0))
                self.assertFalse(self.transport.disconnecting)
                self.clock.advance(1)
            for _ in range(MAX_RATE):
                self.says(Pong(0))
            self.says(last)
            self.assertTrue(self.transport.disconnecting)
            self.lose()
            self.assertEqual(self.owner.trace[-1], "closed TooFast")

    def test_nothing_is_sent_outside_a_session(self) -> None:
        """Before it is established and after its end an event is not sent, and the caller learns it."""
        event = Verdict(1, 1, "Accepted")
        self.connection.handshakeCompleted()
        self.answers()
        self.assertFalse(self.connection.send(event))
        self.assertEqual(self.transport.value(), b"")
        self.says(Hello("peer", "peer", 1, 0, 0, []))
        self.answers()
        self.says(self.peer.welcome())
        self.assertTrue(self.connection.send(event))
        self.assertEqual(self.answers(), [event])
        self.connection.end(Bye("Stopping", "later"))
        self.transport.clear()
        self.assertFalse(self.connection.send(event))
        self.assertEqual(self.transport.value(), b"")

    def test_an_older_peer_is_sent_nothing_that_came_later(self) -> None:
        """The caller learns that the peer does not know the event; the session goes on."""
        self.establish()
        self.assertFalse(self.connection.send(RemoveSlice("gpu", 1)))
        self.assertEqual(self.answers(), [])
        self.assertTrue(self.connection.send(Ping(1)))
        self.assertEqual(self.answers(), [Ping(1)])

    def test_what_waits_unread_is_bounded(self) -> None:
        """More than a mebibyte for a peer that does not read: the session ends."""
        self.establish()
        self.connection.pauseProducing()
        sent = 0
        while self.connection.send(Verdict(1, 1, "Refused", "NoRoom", "x" * 1000)):
            sent += 1000
            self.assertLess(sent, 2 * MAX_UNREAD)
        self.assertTrue(self.transport.aborted)
