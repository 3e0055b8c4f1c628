"""What a stranger can make a handshake cost: counted in signatures that are verified and in bytes, never in time."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.test.iosim import connectedServerAndClient
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.connections.admission import (
    HANDSHAKES,
    HANDSHAKES_BURST,
    HANDSHAKES_BURST_PER_ADDRESS,
    HANDSHAKES_PER_ADDRESS,
    KNOWN_FOR,
    MAX_KNOWN,
    MAX_WAIT,
    Admission,
    PortLimits,
)
from liqod.flow.connections.handshake import MAX_HANDSHAKE, BoundedTLS
from liqod.identity import certs, tls
from liqod.model.ids import ClusterID
from liqod.model.records.offer import Refusal
from tests.identity.hostile_chains import Shows, chain, doubled, exponent_rsa, slow_rsa, unreadable
from tests.identity.tls_pair import NOW, Authority, Recorder

ALPHA = ClusterID("alpha")


class Counting:
    """Counts the certificates whose signatures OpenSSL got to verify with a context."""

    def __init__(self, side: tls.PeerTLS) -> None:
        self.verified: list[int] = []
        side.use(side.keypair)  # a context that made a connection cannot be changed any more
        context: Any = side.context
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, self._asked)

    def _asked(self, connection: Any, certificate: Any, error: int, depth: int, ok: int) -> bool:
        if ok:
            self.verified.append(depth)
        return tls._accept(connection, certificate, error, depth, ok)


def bounded(ours: Any, theirs: Any, *, dialling: bool) -> tuple[Recorder, Any]:
    """Run a handshake as far as it goes; returns our end, and what is below it."""
    clock, mine, other = Clock(), Recorder(), Recorder()
    made: list[Any] = []

    def our_end() -> Any:
        factory = Factory.forProtocol(lambda: mine)
        made.append(BoundedTLS(ours, dialling, factory, clock).buildProtocol(None))
        return made[0]

    def their_end() -> Any:
        factory: Any = BoundedTLS(theirs, not dialling, Factory.forProtocol(lambda: other), clock)
        return factory.buildProtocol(None)

    pair = (their_end, our_end) if dialling else (our_end, their_end)
    _, _, pump = connectedServerAndClient(*pair, clock=clock)
    for _ in range(20):
        pump.flush()
        clock.advance(0)
    return mine, made[0]


class CostTests(SynchronousTestCase):
    """Chains that are dear to verify, shown to both sides of a handshake."""

    def setUp(self) -> None:
        own = certs.generate(ALPHA, NOW)
        self.sides = [tls.PeerTLS(own), tls.PeerTLS(own, Authority().pem, now=lambda: NOW)]

    def creators(self, side: tls.PeerTLS) -> list[tuple[Any, bool]]:
        return [(side.server_creator(), False), (side.client_creator(), True)]

    def test_at_most_one_signature_of_a_chain_is_verified(self) -> None:
        """However many certificates there are, of whatever kind: OpenSSL looks at the first, and at its issuer."""
        keys: list[Any] = [
            ed25519.Ed25519PrivateKey.generate(),
            ec.generate_private_key(ec.SECP521R1()),
            rsa.generate_private_key(65537, 2048),
        ]
        for side in self.sides:
            for key in keys:
                for creator, dialling in self.creators(side):
                    counting = Counting(side)
                    bounded(creator, Shows(key, chain(key, 9, now=NOW)), dialling=dialling)
                    self.assertLessEqual(len(counting.verified), 2, key)

    def test_no_signature_is_verified_with_a_costly_key(self) -> None:
        """An exponent as long as the modulus ends the handshake before its key is used, first or further up."""
        cheap = rsa.generate_private_key(65537, 2048)
        slow = slow_rsa()
        shapes = [chain(slow, 1, now=NOW), chain(slow, 9, now=NOW)]
        for side in self.sides:
            for certificates in shapes:
                for creator, dialling in self.creators(side):
                    counting = Counting(side)
                    mine, _ = bounded(creator, Shows(slow, certificates), dialling=dialling)
                    self.assertNotIn("handshake", mine.seen)
                    self.assertEqual(counting.verified[1:], [])
        mixed = [*chain(cheap, 1, now=NOW), *chain(slow, 3, now=NOW)[1:]]
        counting = Counting(self.sides[0])
        bounded(self.sides[0].server_creator(), Shows(cheap, mixed), dialling=False)
        self.assertLessEqual(len(counting.verified), 2)

    def test_certificates_beyond_the_limit_are_not_given_to_openssl(self) -> None:
        """30 KB of certificates end the connection before the message is whole."""
        key = ed25519.Ed25519PrivateKey.generate()
        many = Shows(key, chain(key, 100, now=NOW))
        for creator, dialling in self.creators(self.sides[0]):
            counting = Counting(self.sides[0])
            mine, below = bounded(creator, many, dialling=dialling)
            self.assertNotIn("handshake", mine.seen)
            self.assertIn("lost", mine.seen)
            self.assertEqual(counting.verified, [])
            self.assertLessEqual(below._received, MAX_HANDSHAKE)

    def test_ordinary_chains_pass(self) -> None:
        """A leaf, two intermediates and a root of 4096 bits are well within all limits."""
        authority = Authority()
        middle = authority.delegate("middle")
        leaf = middle.issue("beta")
        knows = tls.PeerTLS(certs.generate(ALPHA, NOW), authority.pem, now=lambda: NOW)
        shown = [leaf.certificate, middle.certificate, authority.certificate]
        for creator, dialling in self.creators(knows):
            mine, _ = bounded(creator, Shows(leaf.key, shown), dialling=dialling)
            self.assertTrue(knows.peer_certificate(mine.transport).chains_to_ca)
            self.assertIsNone(knows.refusal(mine.transport))

    def test_paths_with_costly_parts_are_not_validated(self) -> None:
        """Neither a costly key in the middle nor names by the hundred get as far as OpenSSL's path validation."""
        authority = Authority()
        knows = tls.PeerTLS(certs.generate(ALPHA, NOW), authority.pem, now=lambda: NOW)
        leaf = authority.issue("beta").certificate
        self.assertTrue(knows.read_chain([leaf], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)
        costly = chain(slow_rsa(), 2, now=NOW)[1]
        self.assertFalse(knows.read_chain([leaf, costly], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)
        key = ed25519.Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "beta")])
        builder = authority._builder(
            subject, key.public_key(), NOW - datetime.timedelta(1), NOW + datetime.timedelta(1), False
        )
        # The subject is a name as well: with it there are as many as may be, or one more.
        for count, good in ((tls.MAX_NAMES - 1, True), (tls.MAX_NAMES, False), (100, False)):
            names = x509.SubjectAlternativeName([x509.DNSName(f"n{number}.example") for number in range(count)])
            wide = builder.add_extension(names, critical=False).sign(authority.key, None)
            self.assertEqual(knows.read_chain([wide], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca, good, count)

    def test_exponents(self) -> None:
        """3 and 65537 are ordinary; what has more than 32 bits is refused, by its own reason."""
        authority = Authority()
        knows = tls.PeerTLS(certs.generate(ALPHA, NOW), authority.pem, now=lambda: NOW)
        for exponent, good in ((3, True), (65537, True), ((1 << 32) + 15, False), ((1 << 62) + 1, False)):
            leaf = authority.issue("beta", key=exponent_rsa(exponent)).certificate
            if good:
                self.assertTrue(knows.read_chain([leaf], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)
            else:
                with self.assertRaisesRegex(Refusal, "exponent"):
                    knows.read_chain([leaf], ExtendedKeyUsageOID.CLIENT_AUTH)


class UnreadableTests(SynchronousTestCase):
    """Certificates that the library does not read."""

    def test_anything_odd_is_a_refusal(self) -> None:
        """An extension twice is nothing that a CA vouches for, and no other error than a refusal comes out."""
        authority = Authority()
        for side in (tls.PeerTLS(certs.generate(ALPHA, NOW)), tls.PeerTLS(certs.generate(ALPHA, NOW), authority.pem)):
            for extension in (ExtensionOID.EXTENDED_KEY_USAGE, ExtensionOID.SUBJECT_ALTERNATIVE_NAME):
                pair = doubled("beta", NOW, extension)
                shown = Shows(pair.key, list(pair.chain))
                mine, _ = bounded(side.server_creator(), shown, dialling=False)
                self.assertFalse(side.peer_certificate(mine.transport).chains_to_ca)
                self.assertFalse(certs.serves_as(pair.certificate, ExtendedKeyUsageOID.CLIENT_AUTH) and extension)

    def test_versions_that_are_none(self) -> None:
        """They end the handshake."""
        side = tls.PeerTLS(certs.generate(ALPHA, NOW))
        for pair in unreadable("beta", NOW):
            shown = Shows(pair.key, [pair.certificate_pem])
            mine, _ = bounded(side.server_creator(), shown, dialling=False)
            self.assertNotIn("handshake", mine.seen)


class Guest:
    """A connection that may be evicted."""

    evicted = False

    def evict(self, reason: str, message: str) -> None:
        self.evicted = True


class PaceTests(SynchronousTestCase):
    """How many handshakes begin."""

    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.refused: list[str] = []
        self.admission = Admission(
            self.clock, PortLimits(512), lambda reason, source, message: self.refused.append(reason)
        )

    def test_one_address_has_its_pace(self) -> None:
        """So many at once, then one after the other, then none; others do not notice."""
        at_once = [self.admission.handshake("192.0.2.1") for _ in range(HANDSHAKES_BURST_PER_ADDRESS)]
        self.assertEqual(set(at_once), {0.0})
        waits = [self.admission.handshake("192.0.2.1") for _ in range(200)]
        self.assertEqual(len([wait for wait in waits if wait is not None]), int(MAX_WAIT * HANDSHAKES_PER_ADDRESS))
        self.assertEqual(set(self.refused), {"TooManyHandshakes"})
        self.assertEqual(self.admission.handshake("192.0.2.2"), 0.0)
        self.clock.advance(MAX_WAIT)
        self.assertIsNotNone(self.admission.handshake("192.0.2.1"))

    def test_all_addresses_together_have_theirs(self) -> None:
        """From ten thousand addresses no more begin than one daemon can bear."""
        begun = [self.admission.handshake(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}") for n in range(10_000)]
        allowed = len([wait for wait in begun if wait is not None])
        self.assertLessEqual(allowed, HANDSHAKES_BURST + MAX_WAIT * HANDSHAKES + 1)
        self.assertLessEqual(len(self.admission._paces), 4096)

    def test_who_had_a_session_has_a_pace_beside_all_others(self) -> None:
        """From as many addresses as one likes nobody keeps peers from coming back."""
        admission = Admission(
            self.clock, PortLimits(512), lambda reason, source, message: self.refused.append(reason), remembers=True
        )
        peer, guest = Guest(), Guest()
        admission.enters(peer, "192.0.2.1")
        admission.served(peer)
        admission.closed(peer)
        for number in range(10_000):
            admission.handshake(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
        self.assertIsNone(admission.handshake("198.51.100.1"))
        self.assertEqual(admission.handshake("192.0.2.1"), 0.0)
        admission.enters(guest, "192.0.2.1")
        for number in range(1000):
            self.assertTrue(admission.has_room(f"10.0.{number // 256}.{number % 256}"))
            admission.enters(Guest(), f"10.0.{number // 256}.{number % 256}")
        self.assertFalse(guest.evicted)
        self.clock.advance(KNOWN_FOR + 1)
        for number in range(10_000):
            admission.handshake(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
        self.assertIsNone(admission.handshake("192.0.2.1"))

    def test_peers_do_not_outpace_the_daemon(self) -> None:
        """One with many addresses has no more than those whom nobody knows."""
        admission = Admission(
            self.clock, PortLimits(512), lambda reason, source, message: self.refused.append(reason), remembers=True
        )
        sources = [f"10.0.{number // 256}.{number % 256}" for number in range(2 * MAX_KNOWN)]
        for source in sources:
            peer = Guest()
            admission.enters(peer, source)
            admission.served(peer)
            admission.closed(peer)
        self.assertEqual(len(admission._known), MAX_KNOWN)
        begun = [admission.handshake(source) for source in sources[-MAX_KNOWN:]]
        allowed = len([wait for wait in begun if wait is not None])
        self.assertLessEqual(allowed, HANDSHAKES_BURST + MAX_WAIT * HANDSHAKES + 1)

    def test_a_handshake_is_put_off_until_its_turn(self) -> None:
        """What came is kept until then, and goes on as if nothing had been."""
        side, peer = tls.PeerTLS(certs.generate(ALPHA, NOW)), tls.PeerTLS(certs.generate(ClusterID("beta"), NOW))
        for _ in range(HANDSHAKES_BURST_PER_ADDRESS + 8):
            self.admission.handshake("192.0.2.1")
        mine = Recorder()
        factory = BoundedTLS(
            side.server_creator(), False, Factory.forProtocol(lambda: mine), self.clock, admission=self.admission
        )
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 1))
        transport = StringTransport(peerAddress=IPv4Address("TCP", "192.0.2.1", 1))
        protocol.makeConnection(transport)
        client: Any = peer.client_creator().clientConnectionForTLS(None)  # type: ignore[arg-type]
        client.set_connect_state()
        with self.assertRaises(SSL.WantReadError):
            client.do_handshake()
        protocol.dataReceived(client.bio_read(1 << 16))
        self.assertEqual((transport.value(), transport.producerState), (b"", "paused"))
        self.clock.advance(1.0)
        client.bio_write(transport.value())
        client.do_handshake()
        protocol.dataReceived(client.bio_read(1 << 16))
        self.assertEqual(mine.seen, ["made", "handshake"])
        self.assertEqual(transport.producerState, "producing")
