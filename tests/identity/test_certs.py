"""Keys, certificates and their fingerprints."""

from __future__ import annotations

import base64
import datetime
import hashlib
import re

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity import certs, pins, serving, tls
from liqod.identity.fingerprint_words import COUNT, WORDS, words
from liqod.identity.pins import Mismatch, Trusted, UnknownKey, judge
from liqod.model.ids import ClusterID, Fingerprint, parse_fingerprint
from tests.identity.hostile_chains import unreadable
from tests.identity.tls_pair import DAY, NOW

ALPHA, BETA = ClusterID("alpha"), ClusterID("beta")


class CreateTests(SynchronousTestCase):
    """New keys and certificates."""

    def test_certificate_is_self_signed_back_dated_and_serves_both_sides(self) -> None:
        """Ten years from a day ago, CN the cluster ID, client and server usage, no CA."""
        certificate = certs.generate(ALPHA, NOW).certificate
        certificate.verify_directly_issued_by(certificate)
        self.assertEqual(certificate.not_valid_before_utc, NOW - DAY)
        self.assertGreater(certificate.not_valid_after_utc, NOW + 3650 * DAY)
        self.assertEqual(certs.common_name(certificate), "alpha")
        for usage in (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH):
            self.assertTrue(certs.serves_as(certificate, usage))
        self.assertFalse(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
        certs.check_certificate(certificate)

    def test_fingerprint_is_that_of_the_public_key(self) -> None:
        """The fingerprint is SHA-256 of the SubjectPublicKeyInfo, in lower-case hex, and survives renewal."""
        pair = certs.generate(ALPHA, NOW)
        spki = pair.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.assertEqual(pair.fingerprint, "sha256:" + hashlib.sha256(spki).hexdigest())
        self.assertEqual(parse_fingerprint(pair.fingerprint), pair.fingerprint)
        renewed = certs.certify(pair.key, ALPHA, NOW + 3000 * DAY)
        self.assertEqual(renewed.fingerprint, pair.fingerprint)
        self.assertNotEqual(renewed.certificate_pem, pair.certificate_pem)

    def test_every_key_is_new(self) -> None:
        """Two clusters never get the same key."""
        self.assertNotEqual(certs.generate(ALPHA, NOW).fingerprint, certs.generate(ALPHA, NOW).fingerprint)

    def test_repr_shows_no_key(self) -> None:
        """Neither repr nor str shows anything of the PEM."""
        pair = certs.generate(ALPHA, NOW)
        self.assertNotIn("BEGIN", repr(pair) + str(pair))

    def test_long_id_fits(self) -> None:
        """The longest cluster ID makes a certificate."""
        self.assertEqual(certs.common_name(certs.generate(ClusterID("a" * 63), NOW).certificate), "a" * 63)


class LoadTests(SynchronousTestCase):
    """Keys and certificates given to us by the user."""

    def setUp(self) -> None:
        self.pair = certs.generate(ALPHA, NOW)

    def refused(self, key_pem: bytes, certificate_pem: bytes, sentence: str) -> None:
        with self.assertRaises(certs.IdentityError) as caught:
            certs.load(key_pem, certificate_pem)
        self.assertIn(sentence, str(caught.exception))
        self.assertNotIn("BEGIN PRIVATE KEY-----\nM", str(caught.exception))

    def test_what_was_made_can_be_loaded(self) -> None:
        """A generated pair loads as itself."""
        self.assertEqual(certs.load(self.pair.key_pem, self.pair.certificate_pem).fingerprint, self.pair.fingerprint)

    def test_foreign_certificate_is_refused(self) -> None:
        """A certificate of another key is named as such."""
        other = certs.generate(ALPHA, NOW)
        self.refused(self.pair.key_pem, other.certificate_pem, "does not belong to the private key")

    def test_garbage_is_refused(self) -> None:
        """Whatever is not PEM, or is swapped, or encrypted, or of a strange kind, gets its sentence."""
        self.refused(b"", self.pair.certificate_pem, "not a PEM private key")
        self.refused(self.pair.certificate_pem, self.pair.certificate_pem, "not a PEM private key")
        self.refused(self.pair.key_pem, b"garbage", "not PEM text")
        # A key of X448 is longer than one of Ed25519, which differs from it by a byte of its algorithm's name.
        der = self.pair.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()).replace(b"+ep", b"+eo")
        pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(der) + b"-----END PRIVATE KEY-----\n"
        self.refused(pem, self.pair.certificate_pem, "not a PEM private key")
        locked = self.pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        self.refused(locked, self.pair.certificate_pem, "encrypted")
        strange = dsa.generate_private_key(2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.refused(strange, self.pair.certificate_pem, "none of Ed25519")

    def test_certificates_that_no_library_reads(self) -> None:
        """Of a version that is none, or with a key that is none: each has its sentence, at every reader."""
        for pair in unreadable("alpha", NOW):
            self.refused(pair.key_pem, pair.certificate_pem, "not PEM text")
            with self.assertRaisesRegex(certs.IdentityError, "no PEM certificate"):
                tls.PeerTLS(self.pair, pair.certificate_pem)
            data = dict.fromkeys(("ca.crt", "tls.crt"), base64.b64encode(pair.certificate_pem).decode())
            keys = dict.fromkeys(("ca.key", "tls.key"), base64.b64encode(pair.key_pem).decode())
            self.assertRaises(ValueError, serving.from_data, {**data, **keys})
            self.assertRaises(ValueError, serving.validity, pair.certificate_pem)
        curve = certs.certify(ec.generate_private_key(ec.SECP256R1()), ALPHA, NOW)
        point = curve.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        der = curve.certificate.public_bytes(Encoding.DER).replace(point, point[:-1] + bytes([point[-1] ^ 1]))
        pem = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
        self.refused(curve.key_pem, pem, "key cannot be read")
        der = curve.certificate.public_bytes(Encoding.DER).replace(b"alpha", b"al\xffha")
        pem = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
        self.refused(curve.key_pem, pem, "name in the certificate cannot be read")

    def test_key_that_no_peer_would_take_is_refused_at_home(self) -> None:
        """A weak key of our own is reported at start instead of by every peer."""
        key = ec.generate_private_key(ec.SECP256K1())
        weak = certs.certify(key, ALPHA, NOW)
        self.refused(weak.key_pem, weak.certificate_pem, "no peer would accept")

    def test_names_that_are_none_are_empty(self) -> None:
        """A certificate without a common name has an empty one."""
        key = ed25519.Ed25519PrivateKey.generate()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(x509.Name([]))
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(NOW)
            .not_valid_after(NOW + datetime.timedelta(days=1))
            .sign(key, None)
        )
        self.assertEqual(certs.common_name(certificate), "")


class PinTests(SynchronousTestCase):
    """The decision about a key."""

    mine = Fingerprint("sha256:" + "a" * 64)
    other = Fingerprint("sha256:" + "b" * 64)

    def test_pin_beats_everything(self) -> None:
        """The pinned key is trusted, any other is a mismatch, even when a CA vouches for it."""
        pinned = {ALPHA: self.mine}
        self.assertEqual(judge(ALPHA, self.mine, pinned, chains_to_ca=False), Trusted("pin"))
        for chains in (False, True):
            self.assertEqual(judge(ALPHA, self.other, pinned, chains_to_ca=chains), Mismatch(self.mine))

    def test_unpinned_needs_a_ca(self) -> None:
        """Without a pin only a CA makes a key trusted."""
        self.assertEqual(judge(ALPHA, self.mine, {}, chains_to_ca=False), UnknownKey())
        self.assertEqual(judge(ALPHA, self.mine, {}, chains_to_ca=True), Trusted("ca"))

    def test_one_key_is_one_cluster(self) -> None:
        """A key pinned for one ID does not get a second one by a CA alone."""
        self.assertEqual(judge(BETA, self.mine, {ALPHA: self.mine}, chains_to_ca=True), UnknownKey())

    @given(
        st.sampled_from((ALPHA, BETA)),
        st.sampled_from((mine, other)),
        st.dictionaries(st.sampled_from((ALPHA, BETA)), st.sampled_from((mine, other))),
        st.booleans(),
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_never_trusts_against_a_pin(
        self, claimed: ClusterID, key: Fingerprint, pinned: dict[ClusterID, Fingerprint], chains: bool
    ) -> None:
        """Whatever is pinned, and whichever CA signed: trust means that no pin speaks against it."""
        judgement: pins.Judgement = judge(claimed, key, pinned, chains_to_ca=chains)
        if isinstance(judgement, Trusted):
            self.assertIn(pinned.get(claimed), (None, key))
            self.assertTrue(chains or pinned.get(claimed) == key)


class FingerprintWordsTests(SynchronousTestCase):
    """Fingerprints as words."""

    def test_list_is_complete_and_readable(self) -> None:
        """256 different words of small letters, short and sorted."""
        self.assertEqual((len(WORDS), len(set(WORDS))), (256, 256))
        self.assertEqual(list(WORDS), sorted(WORDS))
        for word in WORDS:
            self.assertRegex(word, r"^[a-z]{3,8}$")
        self.assertEqual(hashlib.sha256(" ".join(WORDS).encode()).hexdigest()[:16], "b08397c6aca54fe3")

    def test_words_follow_the_first_bytes(self) -> None:
        """Each of the first ten bytes picks a word; the rest does not matter. The first six are those of old."""
        known = Fingerprint("sha256:" + "000102fdfeff03040506" + "0" * 44)
        self.assertEqual(words(known), "-".join(WORDS[number] for number in (0, 1, 2, 253, 254, 255, 3, 4, 5, 6)))
        self.assertEqual(len(re.split("-", words(known))), COUNT)

    def test_a_search_of_48_bits_finds_no_key_with_the_same_words(self) -> None:
        """What one graphics card finds in hours differs in the words; 80 bits have to agree, which takes 2^80 keys."""
        mine = Fingerprint("sha256:" + "5a" * 32)
        for agreeing in range(10):
            forged = Fingerprint("sha256:" + "5a" * agreeing + "00" * (32 - agreeing))
            self.assertNotEqual(words(forged), words(mine))
        self.assertGreaterEqual(COUNT * (len(WORDS).bit_length() - 1), 80)
