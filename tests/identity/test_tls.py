"""TLS between peers, over real handshakes in memory."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from liqod.identity import certs, tls
from liqod.identity.certs import KeyPair
from liqod.model.ids import ClusterID
from liqod.model.records.offer import Refusal
from tests.identity.tls_pair import BOTH, DAY, NOW, Authority, join

ALPHA, BETA = ClusterID("alpha"), ClusterID("beta")
# The library signs nothing with SHA-1 any more, so the certificate is a finished one; its key is gone.
SIGNED_WITH_SHA1 = b"""\
-----BEGIN CERTIFICATE-----
MIIBczCCARqgAwIBAgIUYJB/RHAe6wT9ezd7KLoGY4iF7xUwCQYHKoZIzj0EATAP
MQ0wCwYDVQQDDARiZXRhMCAXDTI2MTEyMTEzMTMxMFoYDzIxMjYxMDI4MTMxMzEw
WjAPMQ0wCwYDVQQDDARiZXRhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwrVz
k3yZoNY3FplsoKyAlilHRaWdf9+pMv7Wb9OsGJlcbJbhbtYdxc3m1aTCJnYIc4Tj
cJyVwtixdLkVsWNXGaNTMFEwHQYDVR0OBBYEFEXEAH8aWCKICF3w6yzhnxqZ6W1P
MB8GA1UdIwQYMBaAFEXEAH8aWCKICF3w6yzhnxqZ6W1PMA8GA1UdEwEB/wQFMAMB
Af8wCQYHKoZIzj0EAQNIADBFAiAT3EpwFsPkHLK5BWhdw1RR43quuIAaiXaSFmIV
5310KgIhAJ6HuTMjUHqCc+BZtKYGHpJ+ZidT92hKOUB8ZFAUqXnN
-----END CERTIFICATE-----
"""


@implementer(IOpenSSLServerConnectionCreator, IOpenSSLClientConnectionCreator)
class Foreign:
    """A connection creator that is not ours: any context, such as an attacker or another program would use."""

    def __init__(self, keypair: KeyPair | None, **options: Any) -> None:
        context: Any = SSL.Context(SSL.TLS_METHOD)
        self.context = context
        if keypair is not None:
            context.use_privatekey(keypair.key)
            context.use_certificate(keypair.certificate)
            for extra in keypair.chain[1:]:
                context.add_extra_chain_cert(extra)
        if "newest" in options:
            context.set_max_proto_version(options["newest"])
        if options.get("alpn"):
            context.set_alpn_protos(options["alpn"])

    def clientConnectionForTLS(self, protocol: object) -> SSL.Connection:
        return SSL.Connection(self.context, None)

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        return SSL.Connection(self.context, None)


class HandshakeTests(SynchronousTestCase):
    """What two ends see of each other."""

    def setUp(self) -> None:
        self.alpha = certs.generate(ALPHA, NOW)
        self.beta = certs.generate(BETA, NOW)
        self.at_alpha = tls.PeerTLS(self.alpha, now=lambda: NOW)
        self.at_beta = tls.PeerTLS(self.beta, now=lambda: NOW)

    def refusal(self, peer: tls.PeerTLS, transport: object) -> str:
        with self.assertRaises(Refusal) as caught:
            peer.peer_certificate(transport)
        self.assertGreater(len(caught.exception.message), 20)
        return str(caught.exception.reason)

    def test_both_ends_see_the_others_key(self) -> None:
        """Each end gets the fingerprint of the other's key, over TLS 1.3 with our protocol."""
        server, client, _ = join(self.at_alpha.server_creator(), self.at_beta.client_creator())
        self.assertEqual((server.seen, client.seen), (["made", "handshake"], ["made", "handshake"]))
        seen_by_server = self.at_alpha.peer_certificate(server.transport)
        seen_by_client = self.at_beta.peer_certificate(client.transport)
        self.assertEqual(seen_by_server.fingerprint, self.beta.fingerprint)
        self.assertEqual(seen_by_client.fingerprint, self.alpha.fingerprint)
        self.assertEqual((seen_by_server.subject_cn, seen_by_server.chains_to_ca), ("beta", False))
        connection: Any = server.transport
        self.assertEqual(connection.getHandle().get_protocol_version_name(), "TLSv1.3")
        self.assertEqual(connection.negotiatedProtocol, tls.ALPN)

    def test_creators_are_what_twisted_asks_for(self) -> None:
        """The creators provide Twisted's interfaces in full."""
        verifyObject(IOpenSSLServerConnectionCreator, self.at_alpha.server_creator())
        verifyObject(IOpenSSLClientConnectionCreator, self.at_alpha.client_creator())

    def test_older_tls_is_refused(self) -> None:
        """A client that speaks TLS 1.2 at most never completes a handshake."""
        server, client, _ = join(self.at_alpha.server_creator(), Foreign(self.beta, newest=SSL.TLS1_2_VERSION))
        self.assertNotIn("handshake", server.seen + client.seen)
        self.assertIn("lost", server.seen)

    def test_client_without_certificate_is_refused(self) -> None:
        """The server's handshake fails when the client shows no certificate."""
        server, _, _ = join(self.at_alpha.server_creator(), Foreign(None, alpn=[tls.ALPN]))
        self.assertNotIn("handshake", server.seen)
        self.assertIn("lost", server.seen)

    def test_another_protocol_is_refused_with_a_reason(self) -> None:
        """A TLS client without our ALPN gets through the handshake, and is recognized then."""
        for offered in ([], [b"h2"]):
            server, _, _ = join(self.at_alpha.server_creator(), Foreign(self.beta, alpn=offered))
            self.assertEqual(self.refusal(self.at_alpha, server.transport), "NoCommonProtocol")

    def test_plain_transport_is_refused(self) -> None:
        """What is not a TLS transport has no peer certificate."""
        self.assertEqual(self.refusal(self.at_alpha, object()), "NotTLS")

    def test_long_chain_is_refused(self) -> None:
        """Both ends count alike: a peer may show MAX_CHAIN certificates, its own included, and not one more."""
        extra = [certs.generate(ALPHA, NOW).certificate_pem for _ in range(tls.MAX_CHAIN)]
        for shown, is_refused in ((tls.MAX_CHAIN, False), (tls.MAX_CHAIN + 1, True)):
            other = tls.PeerTLS(
                KeyPair(self.beta.key_pem, self.beta.certificate_pem + b"".join(extra[: shown - 1])), now=lambda: NOW
            )
            server, _, _ = join(self.at_alpha.server_creator(), other.client_creator())
            _, client, _ = join(other.server_creator(), self.at_alpha.client_creator())
            for end in (server, client):
                if is_refused:
                    self.assertEqual(self.refusal(self.at_alpha, end.transport), "ChainTooLong")
                else:
                    seen = self.at_alpha.peer_certificate(end.transport)
                    self.assertEqual(seen.fingerprint, self.beta.fingerprint)

    def test_enormous_chain_breaks_the_handshake(self) -> None:
        """OpenSSL ends a handshake whose certificates pass 100 KB, so that a stranger cannot fill memory."""
        extra = b"".join(certs.generate(ALPHA, NOW).certificate_pem for _ in range(400))
        other = tls.PeerTLS(KeyPair(self.beta.key_pem, self.beta.certificate_pem + extra))
        server, _, _ = join(self.at_alpha.server_creator(), other.client_creator())
        self.assertNotIn("handshake", server.seen)

    def test_weak_keys_are_refused(self) -> None:
        """Small RSA keys and unusual curves are no identity, though TLS itself would take them."""
        authority = Authority()
        for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256K1())):
            weak = authority.issue("beta", key=key)
            with self.assertRaises(Refusal) as caught:
                self.at_alpha.read_chain(weak.chain, ExtendedKeyUsageOID.CLIENT_AUTH)
            self.assertEqual(caught.exception.reason, "KeyTypeRefused")

    def test_other_keys_are_for_members_of_a_ca(self) -> None:
        """ECDSA and RSA keys of ordinary size are read where a configured CA signed them, and refused elsewhere."""
        authority = Authority()
        knows = tls.PeerTLS(self.alpha, authority.pem, now=lambda: NOW + 10 * DAY)
        for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())):
            pair = authority.issue("beta", key=key)
            server, _, _ = join(knows.server_creator(), tls.PeerTLS(pair).client_creator())
            seen = knows.peer_certificate(server.transport)
            # Expired, it vouches for nobody; the one that pinned the key knows it all the same.
            self.assertEqual((seen.fingerprint, seen.chains_to_ca), (pair.fingerprint, False))
            for stranger in (pair, certs.certify(key, BETA, NOW), Authority().issue("beta", key=key)):
                server, _, _ = join(self.at_alpha.server_creator(), tls.PeerTLS(stranger).client_creator())
                self.assertEqual(self.refusal(self.at_alpha, server.transport), "KeyTypeRefused")
                _, client, _ = join(tls.PeerTLS(stranger).server_creator(), self.at_alpha.client_creator())
                self.assertEqual(self.refusal(self.at_alpha, client.transport), "KeyTypeRefused")

    def test_expired_self_signed_certificate_is_still_that_key(self) -> None:
        """Dates of a self-signed certificate are read but do not refuse it: the pin decides."""
        old = certs.generate(BETA, NOW - 5000 * DAY)
        server, _, _ = join(self.at_alpha.server_creator(), tls.PeerTLS(old).client_creator())
        seen = self.at_alpha.peer_certificate(server.transport)
        self.assertEqual((seen.fingerprint, seen.chains_to_ca), (old.fingerprint, False))
        self.assertLess(seen.not_after, NOW)

    def test_nothing_is_resumed(self) -> None:
        """A second connection with the first one's session still shows a certificate."""
        creator = Foreign(self.beta, alpn=[tls.ALPN])
        server, client, _ = join(self.at_alpha.server_creator(), creator)
        first: Any = client.transport
        session = first.getHandle().get_session()

        class Resuming(Foreign):
            def clientConnectionForTLS(self, protocol: object) -> SSL.Connection:
                connection = SSL.Connection(self.context, None)
                connection.set_session(session)
                return connection

        resuming = Resuming(self.beta, alpn=[tls.ALPN])
        resuming.context = creator.context
        server, _, _ = join(self.at_alpha.server_creator(), resuming)
        self.assertEqual(self.at_alpha.peer_certificate(server.transport).fingerprint, self.beta.fingerprint)


class AuthorityTests(SynchronousTestCase):
    """Certificates that a configured CA signed, or seems to have."""

    def setUp(self) -> None:
        self.authority = Authority()
        self.moment = NOW
        self.ours = tls.PeerTLS(certs.generate(ALPHA, NOW), self.authority.pem, now=lambda: self.moment)

    def seen(self, pair: KeyPair) -> tls.PeerCertificate:
        server, _, _ = join(self.ours.server_creator(), tls.PeerTLS(pair).client_creator())
        return self.ours.peer_certificate(server.transport)

    def test_member_is_vouched_for_under_its_own_name_only(self) -> None:
        """The CA speaks for the ID that it wrote into the certificate, and for no other."""
        seen = self.seen(self.authority.issue("beta"))
        self.assertTrue(seen.chains_to_ca)
        self.assertTrue(seen.vouches_for(BETA))
        self.assertFalse(seen.vouches_for(ALPHA))

    def test_intermediate_is_followed(self) -> None:
        """A chain over an intermediate that the peer sends along ends at the CA."""
        middle = self.authority.delegate("middle")
        leaf = middle.issue("beta")
        self.assertFalse(self.seen(leaf).chains_to_ca)
        self.assertTrue(self.seen(KeyPair(leaf.key_pem, leaf.certificate_pem + middle.pem)).chains_to_ca)

    def test_a_constrained_intermediate_vouches_for_permitted_ids_only(self) -> None:
        """OpenSSL checks name constraints against alternative names, so there the ID must be one."""
        middle = self.authority.delegate("middle", permitted="beta")

        def vouched(cluster_id: ClusterID, **more: Any) -> bool:
            leaf = middle.issue(cluster_id, **more)
            return self.seen(KeyPair(leaf.key_pem, leaf.certificate_pem + middle.pem)).vouches_for(cluster_id)

        self.assertFalse(vouched(ALPHA))
        self.assertFalse(vouched(ALPHA, dns=("beta",)))
        self.assertFalse(vouched(ALPHA, dns=("alpha",)))
        self.assertFalse(vouched(BETA))
        self.assertTrue(vouched(BETA, dns=("beta",)))

    def test_an_intermediate_for_other_purposes_vouches_for_nobody(self) -> None:
        """One that is for signing code, or for servers only, says nothing of which cluster somebody is."""
        for usages, good in (
            ((ExtendedKeyUsageOID.CODE_SIGNING,), False),
            ((ExtendedKeyUsageOID.SERVER_AUTH,), False),
            ((ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.CLIENT_AUTH), True),
            ((ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), True),
            ((), True),
        ):
            middle = self.authority.delegate("middle", usages=usages)
            leaf = middle.issue("beta", usages=BOTH)
            seen = self.seen(KeyPair(leaf.key_pem, leaf.certificate_pem + middle.pem))
            self.assertEqual(seen.vouches_for(BETA), good, usages)

    def test_revoked_keys(self) -> None:
        """A key that is named as revoked is refused, and so is each key that a revoked one has signed."""
        middle = self.authority.delegate("middle")
        leaf, other = middle.issue("beta"), self.authority.issue("beta")
        chain = KeyPair(leaf.key_pem, leaf.certificate_pem + middle.pem)
        for revoked in (chain.fingerprint, certs.fingerprint_of(middle.certificate)):
            self.ours = tls.PeerTLS(
                certs.generate(ALPHA, NOW), self.authority.pem, now=lambda: self.moment, revoked=[revoked]
            )
            with self.assertRaises(Refusal) as caught:
                self.ours.read_chain(chain.chain, ExtendedKeyUsageOID.CLIENT_AUTH)
            self.assertEqual(caught.exception.reason, "KeyRevoked")
            self.assertTrue(self.seen(other).vouches_for(BETA))

    def test_strangers_are_not_vouched_for(self) -> None:
        """Self-signed certificates and those of another CA with the same name do not chain."""
        impostor = Authority()
        leaf = impostor.issue("beta")
        self.assertFalse(self.seen(certs.generate(BETA, NOW)).chains_to_ca)
        self.assertFalse(self.seen(leaf).chains_to_ca)
        self.assertFalse(self.seen(KeyPair(leaf.key_pem, leaf.certificate_pem + impostor.pem)).chains_to_ca)

    def test_member_cannot_sign_others(self) -> None:
        """A certificate signed by a member that is no CA does not chain."""
        member = self.authority.issue("mallory")
        forger = Authority("mallory", is_ca=False)
        forger.key = member.key  # type: ignore[assignment]
        forged = forger.issue("beta")
        self.assertFalse(
            self.seen(KeyPair(forged.key_pem, forged.certificate_pem + member.certificate_pem)).chains_to_ca
        )

    def test_dates_count_within_the_clocks_skew(self) -> None:
        """Expired and not yet valid certificates do not chain; five minutes either way are forgiven."""
        pair = self.authority.issue("beta", start=NOW - DAY, end=NOW + DAY)
        minute = datetime.timedelta(minutes=1)
        for moment, chains in (
            (NOW + DAY + 4 * minute, True),
            (NOW + DAY + 6 * minute, False),
            (NOW - DAY - 4 * minute, True),
            (NOW - DAY - 6 * minute, False),
        ):
            self.moment = moment
            self.assertIs(self.seen(pair).chains_to_ca, chains, moment)

    def test_all_dates_must_hold_at_one_moment(self) -> None:
        """A member whose time begins with the last moment of its CA chains; one that begins later never does."""
        self.moment = end = self.authority.certificate.not_valid_after_utc
        second = datetime.timedelta(seconds=1)
        for start, chains in ((end - second, True), (end, True), (end + second, False)):
            pair = self.authority.issue("beta", start=start, end=end + DAY)
            self.assertIs(self.seen(pair).chains_to_ca, chains, start)

    def test_usage_must_fit_the_side(self) -> None:
        """A certificate for servers only does not vouch for a client, nor the other way round."""
        for_servers = self.authority.issue("beta", usages=(ExtendedKeyUsageOID.SERVER_AUTH,))
        self.assertFalse(self.seen(for_servers).chains_to_ca)
        _, client, _ = join(tls.PeerTLS(for_servers).server_creator(), self.ours.client_creator())
        self.assertTrue(self.ours.peer_certificate(client.transport).chains_to_ca)
        self.assertTrue(self.seen(self.authority.issue("beta", usages=())).chains_to_ca)
        self.assertTrue(self.seen(self.authority.issue("beta", usages=BOTH)).chains_to_ca)

    def test_no_authority_means_nobody_chains(self) -> None:
        """Without a configured CA no certificate chains, a public one's least of all."""
        alone = tls.PeerTLS(certs.generate(ALPHA, NOW), b"", now=lambda: NOW)
        pair = self.authority.issue("beta")
        self.assertFalse(alone.read_chain(pair.chain, ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)

    def test_unreadable_authority_is_our_own_error(self) -> None:
        """A CA file without a certificate is reported at start, not at the first peer."""
        with self.assertRaisesRegex(certs.IdentityError, "holds no PEM certificate"):
            tls.PeerTLS(certs.generate(ALPHA, NOW), b"nonsense")

    def test_broken_hash_is_refused(self) -> None:
        """A certificate signed with SHA-1 is refused, and so is a chain that has one in it."""
        (weak,) = x509.load_pem_x509_certificates(SIGNED_WITH_SHA1)
        with self.assertRaises(Refusal) as caught:
            self.ours.read_chain([weak], ExtendedKeyUsageOID.CLIENT_AUTH)
        self.assertEqual(caught.exception.reason, "SignatureRefused")
        good = self.authority.issue("beta").certificate
        self.assertTrue(self.ours.read_chain([good], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)
        self.assertFalse(self.ours.read_chain([good, weak], ExtendedKeyUsageOID.CLIENT_AUTH).chains_to_ca)
