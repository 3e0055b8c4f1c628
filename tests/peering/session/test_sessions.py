"""Whose connection becomes the session of a peer, and what is kept of those that do not: without a network."""

from __future__ import annotations

import datetime
from collections.abc import Coroutine
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Settings
from liqod.identity.certs import generate
from liqod.identity.pairing import Token
from liqod.identity.tls import PeerCertificate, PeerTLS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import Endpoint, ForeignCluster, ForeignClusterSpec
from liqod.peering.ports import OwnCluster
from liqod.peering.records.foreignclusters import PendingPin
from liqod.peering.session.dialer import NO_ADDRESS, Dialer
from liqod.peering.session.liveness import Heartbeat
from liqod.peering.session.peer import ConnectionProblem, Peer
from liqod.peering.session.protocol import JOINING
from liqod.peering.session.usage import PeerUsage
from liqod.peering.sessions import Sessions
from liqod.peering.trust.records import TrustRecords
from liqod.wire.events import Bye, Hello, Join
from tests.peering.clusters import FakeSighting, context_of

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ME, ROME = ClusterID("milan"), ClusterID("rome")
OWN_TLS = PeerTLS(generate(ME, NOW))
KEY, OTHER = (Fingerprint("sha256:" + letter * 64) for letter in "ab")
CERTIFICATE = PeerCertificate(KEY, False, ROME, NOW, NOW)
HELLO = Hello(ROME, "Rome", 1, 0, 0, [])
PLACE = Endpoint("192.0.2.1:5872", "Manual")
INVITED = Token("0a1b", ROME, "Rome", KEY, ["192.0.2.1:5872"], bytes(32))


@attrs.define(eq=False, kw_only=True)
class Connection:
    """A connection as its owner sees it; ``said``: the Bye with which the owner ended it."""

    role: str = "listener"
    expected: ClusterID | None = None
    certificate: PeerCertificate | None = CERTIFICATE
    own_key: Fingerprint = OWN_TLS.keypair.fingerprint
    peer_hello: Hello | None = HELLO
    peer_id: ClusterID | None = ROME
    expected_key: str = ""
    address: str = "192.0.2.1:5872"
    established_at: float | None = None
    heartbeat: Heartbeat = attrs.field(factory=Heartbeat)
    ended_by_peer: bool = False
    ending: Bye | None = None
    usage: PeerUsage | None = None
    token_id: str = ""
    said: Bye | None = None
    probed: int = 0

    @property
    def established(self) -> bool:
        return self.established_at is not None and self.ending is None

    def binding(self) -> bytes:
        return bytes(32)

    def probe(self) -> None:
        self.probed += 1

    def end(self, bye: Bye) -> None:
        self.said = bye


class Around:
    """The records, the tombstones, the tokens, the invitations, the tasks, and who is notified of sessions, in one."""

    def __init__(self) -> None:
        self.pins: dict[ClusterID, Fingerprint] = {}
        self.pinning: dict[ClusterID, PendingPin] = {}
        self.records: dict[ClusterID, ForeignCluster] = {}
        self.invitation: Token | None = None
        self.next: Fingerprint | None = None
        self.trace: list[str] = []
        self.peering = True

    def get(self, peer: ClusterID) -> ForeignCluster | None:
        return self.records.get(peer)

    def next_key(self, peer: ClusterID) -> Fingerprint | None:
        return self.next

    def has_room_for(self, peer: ClusterID, network: str) -> bool:
        return True

    def is_sighted(self, peer: ClusterID) -> bool:
        return False

    def enqueue(self, peer: ClusterID) -> None:
        self.trace.append(f"shown {peer}")

    def refuses(self, peer: ClusterID, key: str) -> bool:
        return False

    def of(self, issuer: ClusterID) -> Token | None:
        return self.invitation if issuer == ROME else None

    def join(self, issuer: ClusterID, binding: bytes) -> Join | None:
        return Join(self.invitation.id, "proof") if self.invitation is not None and issuer == ROME else None

    async def delete(self, issuer: ClusterID, token_id: str = "") -> None:
        self.trace.append(f"forgot the invitation of {issuer}")

    def spawn(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        Deferred.fromCoroutine(work)

    def key_mismatch(self, peer: ClusterID, seen: Fingerprint) -> None:
        self.trace.append("mismatch")

    def has_peering(self, peer: Peer) -> bool:
        return self.peering

    def session_opened(self, peer: Peer) -> None:
        self.trace.append("opened")

    def session_closed(self, peer: Peer, connection: Any, *, unresponsive: bool) -> None:
        self.trace.append("fell silent" if unresponsive else "closed")

    def session_replaced(self, peer: Peer, connection: Any) -> None:
        self.trace.append("replaced")

    def peer_unpeered(self, peer: Peer) -> None:
        self.trace.append("unpeered")


class SessionsCase(SynchronousTestCase):
    """The sessions of milan, which knows nobody."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.clock.advance(1e9)
        self.around = Around()
        around = cast(Any, self.around)
        self.peers: dict[ClusterID, Peer] = {}
        self.context = context_of(self.clock, self.peers)
        self.sessions = Sessions(
            reactor=cast(Any, self.clock),
            context=self.context,
            settings=Settings(),
            cluster=OwnCluster(id=ME, name="Milan", tls=OWN_TLS, epoch=1),
            records=around,
            trust=TrustRecords(tombstones=around, tokens=around, invitations=around),
            tasks=around,
            subscriber=around,
            random=lambda: 0.5,
        )
        self.sessions.start()

    def pin(self, key: Fingerprint = KEY) -> None:
        self.around.pins[ROME] = key
        spec = ForeignClusterSpec(cluster_id=ROME, fingerprint=key)
        self.around.records[ROME] = ForeignCluster(metadata=ObjectMeta(name=ROME), spec=spec)

    def answer(self, connection: Connection) -> Bye | None:
        """Return the Bye for a connection after its Hello; None: it may become a session."""
        hello = connection.peer_hello
        assert hello is not None
        work = self.sessions.authenticate(cast(Any, connection), hello, None)
        return self.successResultOf(Deferred.fromCoroutine(work))

    def reason(self, connection: Connection) -> str:
        bye = self.answer(connection)
        return bye.reason if bye is not None else ""

    def opens(self, connection: Connection) -> bool:
        """Establish a connection; return whether it is the peer's session then."""
        connection.established_at = self.clock.seconds()
        self.sessions.established(cast(Any, connection))
        return connection.said is None and self.peers[ROME].session is cast(Any, connection)

    def closes(self, connection: Connection, ending: Bye | None, *, by_peer: bool = False) -> None:
        connection.ending, connection.ended_by_peer = ending, by_peer
        self.sessions.closed(cast(Any, connection))

    @property
    def problem(self) -> str:
        """Why there is no session with rome, in one word."""
        problem = self.peers[ROME].problem
        return problem.reason if problem is not None else ""


class AuthenticateTests(SessionsCase):
    """What a connection is answered."""

    def test_only_a_trusted_key_goes_on(self) -> None:
        """The pinned key may become a session; a stranger and an impostor get a reason why they may not."""
        self.assertEqual(self.reason(Connection()), "TrustPending")
        self.pin()
        self.assertEqual(self.reason(Connection()), "")
        self.pin(OTHER)
        self.assertEqual(self.reason(Connection()), "ClusterIDRepetition")

    def test_nobody_is_judged_before_the_records_are_known_or_after_the_end(self) -> None:
        """A pin that was not read yet is no pin that is missing: the peer comes again soon."""
        self.pin()
        self.sessions.ready = False
        self.assertEqual(self.reason(Connection()), "Starting")
        self.sessions.ready = True
        self.assertEqual(self.reason(Connection(certificate=None)), "Starting")
        self.sessions.stop()
        self.assertEqual(self.reason(Connection()), "Stopping")

    def test_a_second_session_is_refused_while_the_first_one_lives(self) -> None:
        """And the first one is asked whether it does; one with the peer's new key takes its place."""
        self.pin()
        first, second = Connection(role="dialer", expected=ROME), Connection()
        self.assertTrue(self.opens(first))
        self.clock.advance(3600)
        self.assertEqual((self.reason(second), first.probed), ("Duplicate", 1))
        first.heartbeat = Heartbeat(missed=1)
        self.assertEqual(self.reason(second), "")
        first.heartbeat = Heartbeat()
        self.pin(OTHER)
        renewed = Connection(certificate=PeerCertificate(OTHER, False, ROME, NOW, NOW))
        self.assertEqual(self.reason(renewed), "")

    def test_that_there_is_a_token_only_its_issuer_learns(self) -> None:
        """Who dialled the issuer and met the issuer's key announces it; nobody else hears of it."""
        self.around.invitation = INVITED
        other = PeerCertificate(OTHER, False, ROME, NOW, NOW)
        table = [
            (Connection(role="dialer", expected=ROME), True),
            (Connection(role="dialer", expected=ROME, certificate=other), False),
            (Connection(role="dialer", expected=ROME, certificate=None), False),
            (Connection(role="dialer", expected=ClusterID("turin")), False),
            (Connection(role="dialer"), False),
            (Connection(), False),
        ]
        for connection, announced in table:
            hello = self.sessions.hello(cast(Any, connection))
            self.assertEqual(JOINING in hello.features, announced, connection)

    def test_an_invitation_to_another_key_than_the_trusted_one_is_none(self) -> None:
        """A token from before the peer changed its key keeps nobody from the session with the key that is pinned."""
        self.around.invitation = INVITED
        dialled = Connection(role="dialer", expected=ROME)
        for pinned, used in ((None, True), (KEY, True), (OTHER, False)):
            if pinned is not None:
                self.pin(pinned)
            said = (
                self.sessions.invited_key(ROME),
                JOINING in self.sessions.hello(cast(Any, dialled)).features,
                self.sessions.join(cast(Any, dialled)) is not None,
            )
            self.assertEqual(said, (KEY, True, True) if used else ("", False, False), pinned)


class EstablishedTests(SessionsCase):
    """What becomes of a session."""

    def test_a_pin_that_went_meanwhile_opens_nothing(self) -> None:
        """The key is judged once more when Welcome was sent, by what is pinned then."""
        self.pin()
        self.around.pins[ROME] = OTHER
        late = Connection()
        self.assertFalse(self.opens(late))
        self.assertEqual(late.said and late.said.reason, "TrustPending")
        self.assertNotIn("opened", self.around.trace)

    def test_a_session_settles_what_was_wrong_and_the_invitation(self) -> None:
        """It has the name that the peer gave itself, and no problem any more."""
        self.pin()
        self.around.invitation = INVITED
        self.sessions.set_problem(self.sessions.peer(ROME), ConnectionProblem("Unreachable", "no answer"))
        self.assertTrue(self.opens(Connection()))
        peer = self.peers[ROME]
        self.assertEqual((peer.name, peer.seen, peer.problem), ("Rome", KEY, None))
        self.assertIn(f"forgot the invitation of {ROME}", self.around.trace)

    def test_a_successor_replaces_the_session_and_ends_it(self) -> None:
        """Who follows learns of one replacement, and of no end when the former connection closes."""
        self.pin()
        first, second = Connection(), Connection()
        self.assertTrue(self.opens(first))
        self.assertTrue(self.opens(second))
        self.assertEqual(first.said and first.said.reason, "Duplicate")
        self.closes(first, first.said)
        self.assertEqual([word for word in self.around.trace if word in ("replaced", "closed")], ["replaced"])
        self.assertIs(self.peers[ROME].session, second)


class UnnamedAddressTests(SessionsCase):
    """A configured address without an ID, at which anybody may answer with any."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.update_sightings([FakeSighting("192.0.2.1", 5872)])

    def claims(self, cluster_id: str) -> None:
        """Have a cluster answer there, and be refused."""
        claimed = ClusterID(cluster_id)
        dialled = Connection(role="dialer", peer_id=claimed, peer_hello=Hello(claimed, "", 1, 0, 0, []))
        self.closes(dialled, self.answer(dialled))

    def test_each_answer_replaces_the_one_before(self) -> None:
        """Who claims another ID each time fills no memory, and the address is dialled for the newest one only."""
        for number in range(20):
            self.claims(f"c{number}")
        self.assertEqual({peer.id: peer.sightings for peer in self.peers.values()}, {"c19": (PLACE,)})

    def test_who_is_no_longer_there_is_forgotten(self) -> None:
        """When another cluster answers than the one that did before; one with a record only loses the address."""
        for recorded in (False, True):
            if recorded:
                self.pin()
            self.claims(ROME)
            self.assertEqual(self.peers[ROME].sightings, (PLACE,))
            self.closes(Connection(role="dialer", expected=ROME, peer_id=None), Bye("UnexpectedIdentity", "another"))
            left = {peer.id: peer.sightings for peer in self.peers.values()}
            self.assertEqual(left, {ROME: ()} if recorded else {})


class FormerKeyTests(SessionsCase):
    """A handshake that began before this cluster took another key."""

    def test_it_is_not_answered_with_welcome(self) -> None:
        """The answer makes the peer dial again, although its own key is the right one."""
        self.pin()
        self.assertEqual(self.reason(Connection(own_key=OTHER)), "KeyRotated")

    def test_it_becomes_no_session(self) -> None:
        """The key may change while Welcome is on its way; what is the session then stays."""
        self.pin()
        present, late = Connection(role="dialer", expected=ROME), Connection(own_key=OTHER)
        self.assertTrue(self.opens(present))
        self.assertFalse(self.opens(late))
        self.assertEqual(late.said and late.said.reason, "KeyRotated")
        self.assertIs(self.peers[ROME].session, present)


class ClosedTests(SessionsCase):
    """What is remembered of a connection that ended."""

    def test_an_end_without_a_word_is_a_lost_connection(self) -> None:
        """The peer has a reason for what it does not say, and who follows sessions hears of the end."""
        self.pin()
        lost = Connection()
        self.assertTrue(self.opens(lost))
        self.closes(lost, None)
        self.assertEqual((self.problem, self.peers[ROME].session), ("ConnectionLost", None))
        self.assertIn("closed", self.around.trace)

    def test_who_falls_silent_is_not_one_who_says_that_we_did(self) -> None:
        """Only pings of ours without an answer say that the peer is unresponsive."""
        for by_peer, word in ((False, "fell silent"), (True, "closed")):
            self.setUp()
            self.pin()
            session = Connection()
            self.opens(session)
            self.closes(session, Bye("Unresponsive", "no answer to pings"), by_peer=by_peer)
            self.assertIn(word, self.around.trace)

    def test_the_end_of_a_peering_is_one_where_there_is_one(self) -> None:
        """A late Unpeered about an earlier peering ends no later one; what we said ourselves ends nothing here."""
        for peering, by_peer, ended in ((True, True, True), (False, True, False), (True, False, False)):
            self.setUp()
            self.pin()
            self.around.peering = peering
            session = Connection()
            self.opens(session)
            self.closes(session, Bye("Unpeered", "the peering ended"), by_peer=by_peer)
            self.assertEqual("unpeered" in self.around.trace, ended, (peering, by_peer))
            if by_peer and not peering:
                self.assertEqual(self.problem, "TrustPending")

    def test_the_word_of_a_key_that_is_not_pinned_is_no_reason(self) -> None:
        """What a peer says instead of Welcome is shown, if its key is the trusted one and there is no session."""
        refusal = Bye("TrustPending", "unknown key")
        for pinned, shown in ((KEY, "WaitingForPeerTrust"), (OTHER, "")):
            self.setUp()
            self.pin(pinned)
            self.sessions.peer(ROME)
            self.closes(Connection(role="dialer", expected=ROME), refusal, by_peer=True)
            self.assertEqual(self.problem, shown)
        self.setUp()
        self.pin()
        self.opens(Connection())
        self.closes(Connection(role="dialer", expected=ROME), refusal, by_peer=True)
        self.assertEqual(self.problem, "")

    def test_what_passes_by_itself_is_no_problem(self) -> None:
        """That a peer starts, stops, or has a session already is nothing for a user; any other word is."""
        for reason, shown in (("Starting", ""), ("Stopping", ""), ("Duplicate", ""), ("TooMany", "TooMany")):
            self.setUp()
            self.pin()
            self.sessions.peer(ROME)
            self.closes(Connection(role="dialer", expected=ROME), Bye(reason, "later"), by_peer=True)
            self.assertEqual(self.problem, shown)

    def test_the_word_about_a_former_key_of_ours_is_none_about_us(self) -> None:
        """Who refuses the key that we had is dialled again soon, with the present one, and nothing is shown."""
        for former, shown, soon in ((OTHER, "", True), (OWN_TLS.keypair.fingerprint, "ClusterIDRepetition", False)):
            self.setUp()
            self.pin()
            self.sessions.peer(ROME)
            refused = Connection(role="dialer", expected=ROME, own_key=former)
            self.closes(refused, Bye("ClusterIDRepetition", "another key is pinned"), by_peer=True)
            self.assertEqual(self.problem, shown)
            waits = [call.getTime() - self.clock.seconds() for call in self.clock.getDelayedCalls()]
            self.assertEqual(0 < min(waits) < 10, soon)

    def test_an_abandoned_attempt_with_a_former_key_is_not_dialled_again(self) -> None:
        """A session has taken its place, so that it needs no other."""
        self.pin()
        peer = self.sessions.peer(ROME)
        self.closes(Connection(role="dialer", expected=ROME, own_key=OTHER), Bye("NotNeeded", "the peer was faster"))
        self.assertEqual(peer.dialer.retry_within, 0)


class StrangerTests(SessionsCase):
    """Another key than the pinned one answers where a trusted peer is dialled: a forged record, a former address."""

    def refused(self, ending: Bye, *, by: Fingerprint = OTHER) -> float | None:
        """Have rome dialled and the connection ended by a key; return the seconds to the next attempt, if any."""
        self.setUp()
        self.patch(Dialer, "_begin", lambda dialer: None)  # the connection is the test's own
        self.pin()
        self.around.next = Fingerprint("sha256:" + "c" * 64)
        peer = self.sessions.peer(ROME)
        peer.dialer.link.wake()
        self.clock.advance(0.0)
        certificate = PeerCertificate(by, False, ROME, NOW, NOW)
        dialled = Connection(role="dialer", expected=ROME, certificate=certificate, peer_id=None, peer_hello=None)
        self.closes(dialled, ending, by_peer=True)
        waits = [call.getTime() - self.clock.seconds() for call in self.clock.getDelayedCalls()]
        return min(waits, default=None)

    def test_its_bye_does_not_decide_when_the_peer_is_dialled(self) -> None:
        """Whatever it says, the next attempt follows soon, and nothing that it says is shown."""
        for reason in ("NotNeeded", "Self", "Unpeered", "TokenRefused", "UnexpectedKey", "Stopping"):
            for after in (0.0, 86400.0):
                wait = self.refused(Bye(reason, "go away", after))
                self.assertTrue(wait is not None and wait < 60, (reason, after, wait))
                self.assertEqual(self.problem, "")

    def test_the_bye_of_the_peer_does(self) -> None:
        """The pinned key, and the one that it announced, may say for how long they are not to be dialled."""
        for key in (KEY, Fingerprint("sha256:" + "c" * 64)):
            self.assertIsNone(self.refused(Bye("Self"), by=key))
            self.assertEqual(self.refused(Bye("Stopping", "an hour of rest", 3600.0), by=key), 3600.0)

    def test_a_peer_that_needs_no_session_is_dialled_again(self) -> None:
        """NotNeeded is our own word for an attempt that another one made superfluous."""
        self.assertIsNotNone(self.refused(Bye("NotNeeded"), by=KEY))


class UnreachableTests(SessionsCase):
    """Who cannot be dialled."""

    def after(self, why: str, before: ConnectionProblem | None) -> ConnectionProblem | None:
        peer = self.sessions.peer(ROME)
        peer.problem = before
        self.sessions.peer_unreachable(ROME, why)
        return peer.problem

    def test_the_first_cause_stays(self) -> None:
        """A key, a silence, a refusal: that the peer cannot be dialled either comes after them."""
        self.pin()
        key = ConnectionProblem("WaitingForPeerTrust", "it does not trust us", about_key=True)
        silent = ConnectionProblem("Unresponsive", "no answer to pings")
        full = ConnectionProblem("TooMany", "it has enough peers")
        table = [
            ("timeout", None, ConnectionProblem("Unreachable", "timeout")),
            ("timeout", key, key),
            ("timeout", silent, attrs.evolve(silent, attempt="timeout")),
            ("timeout", full, ConnectionProblem("Unreachable", "timeout")),
            (NO_ADDRESS, None, ConnectionProblem("Unreachable", NO_ADDRESS)),
            (NO_ADDRESS, full, full),
            (NO_ADDRESS, ConnectionProblem("Unreachable", "timeout"), ConnectionProblem("Unreachable", NO_ADDRESS)),
        ]
        for why, before, expected in table:
            self.assertEqual(self.after(why, before), expected, (why, before))

    def test_a_peer_with_a_session_is_reached(self) -> None:
        """An attempt beside the session that failed says nothing."""
        self.pin()
        self.opens(Connection())
        self.assertIsNone(self.after("timeout", None))

    def test_an_unknown_cluster_is_noted_without_a_peer(self) -> None:
        """What was dialled and forgotten meanwhile leaves a line for the user, and no peer."""
        self.sessions.peer_unreachable(ROME, "timeout")
        self.assertEqual(self.peers, {})
        self.assertEqual(self.context.refusals.counts, {"Unreachable": 1})
