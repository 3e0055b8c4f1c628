"""Creates, reads and checks keys and X.509 certificates.

A cluster's identity is the SHA-256 of its public key (SubjectPublicKeyInfo), never a name in a certificate: a
certificate may be renewed around the same key, and its names are only claims.
"""

from __future__ import annotations

import datetime
import hashlib
from functools import cached_property
from typing import Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LIFETIME: Final = datetime.timedelta(days=3652)
"""Ten years: the pin ends trust in a key, not a date."""
BACK_DATED: Final = datetime.timedelta(days=1)
"""Tolerance for clocks that are behind ours."""
MIN_RSA_BITS: Final = 2048
"""NIST SP 800-131A: RSA with less than 2048 bits is disallowed."""
MAX_RSA_BITS: Final = 8192
"""Larger RSA keys cost the verifier milliseconds per signature: an unauthenticated peer must not choose that cost."""
MAX_RSA_EXPONENT: Final = 1 << 32
"""RSA verification takes one multiplication per exponent bit, and OpenSSL allows exponents as long as the modulus."""

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class IdentityError(Exception):
    """Our own key or certificate cannot be used; the message names the defect, the place and the remedy."""


@attrs.frozen(slots=False)
class KeyPair:
    """A private key and its certificate (first in its PEM, the chain after it), as PEM; ``repr`` shows neither."""

    key_pem: bytes = attrs.field(repr=False)
    certificate_pem: bytes = attrs.field(repr=False)

    @cached_property
    def key(self) -> PrivateKey:
        return read_key(self.key_pem)

    @cached_property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """Return the certificate and, after it, the intermediates it came with."""
        return tuple(read_certificates(self.certificate_pem))

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint_of(self.certificate)


def fingerprint_of(certificate: x509.Certificate) -> Fingerprint:
    """Return the SHA-256 of a certificate's public key: the identity of the holder of the private key."""
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Fingerprint(f"sha256:{hashlib.sha256(spki).hexdigest()}")


def generate(cluster_id: ClusterID, not_before: datetime.datetime) -> KeyPair:
    """Generate an Ed25519 key and its self-signed certificate.

    The certificate is valid for ten years from yesterday on, for peers whose clock is slow; it has both extended key
    usages, client and server, because either side may dial.
    """
    return certify(ed25519.Ed25519PrivateKey.generate(), cluster_id, not_before)


def certify(key: PrivateKey, cluster_id: ClusterID, not_before: datetime.datetime) -> KeyPair:
    """Create a self-signed certificate for an existing key; the identity is the key's and does not change."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cluster_id)])
    start = not_before - BACK_DATED
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(cluster_id)]), critical=False)
    )
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = builder.sign(key, digest)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, certificate.public_bytes(Encoding.PEM))


def load(key_pem: bytes, certificate_pem: bytes) -> KeyPair:
    """Return the pair after checking that both are readable, match and would be accepted by peers.

    Raises IdentityError otherwise. Dates are not checked: peers that pinned the key do not check them either.
    """
    key = read_key(key_pem)
    try:
        chain = read_certificates(certificate_pem)
    except ValueError as error:
        raise IdentityError(
            "the certificate is not PEM text ('-----BEGIN CERTIFICATE-----'): give the file that goes with the key"
        ) from error
    try:
        found = check_certificate(chain[0])
    except Refusal as refused:
        raise IdentityError(f"no peer would accept this certificate: {refused.message}") from refused
    if _spki(found) != _spki(key.public_key()):
        raise IdentityError(
            "the certificate does not belong to the private key: give the pair that was made together "
            "(the cluster's own certificate must be the first in its file)"
        )
    if not isinstance(found, ed25519.Ed25519PublicKey) and _names_itself(chain[0]):
        raise IdentityError(
            "no peer would accept this certificate: it is self-signed, and its key is not Ed25519. Have the CA under "
            "[identity] ca sign it, or make an Ed25519 key (`liqodctl rotate-key`)"
        )
    return KeyPair(key_pem, certificate_pem)


def check_certificate(certificate: x509.Certificate) -> PublicKey:
    """Return a certificate's key; raise Refusal for one, or a signature, that is no identity.

    Refused keys are too weak, too costly to verify, or of an unknown type. Dates are not checked: for a pinned,
    self-signed key they carry no trust, because the subject signs them, and peerings must not end when a certificate
    expires after ten years. Dates are checked where a CA vouches.
    """
    key = check_key(certificate)
    if not is_signature_strong(certificate):
        raise Refusal("SignatureRefused", "the certificate is signed with a broken hash (MD5 or SHA-1)")
    return key


def check_key(certificate: x509.Certificate) -> PublicKey:
    """Return a certificate's key; raise Refusal for a type, size or exponent that is not accepted."""
    try:
        key = certificate.public_key()
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise Refusal("KeyTypeRefused", "the certificate's public key cannot be read") from error
    match key:
        case ed25519.Ed25519PublicKey():
            return key
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1):
            return key
        case rsa.RSAPublicKey() if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise Refusal(
                "KeyTypeRefused",
                f"the certificate's RSA key has {key.key_size} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are accepted",
            )
        case rsa.RSAPublicKey():
            if not 3 <= key.public_numbers().e < MAX_RSA_EXPONENT:
                raise Refusal("KeyTypeRefused", "the certificate's RSA key has an exponent beyond 32 bits")
            return key
        case _:
            raise Refusal("KeyTypeRefused", "the certificate's key is none of Ed25519, ECDSA P-256/P-384/P-521 or RSA")


def is_signature_strong(certificate: x509.Certificate) -> bool:
    """Return whether a certificate's signature uses a hash without known collisions."""
    try:
        digest = certificate.signature_hash_algorithm
    except Exception:  # an unknown algorithm, or unknown parameters
        return False
    return not isinstance(digest, hashes.MD5 | hashes.SHA1)


def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name, or an empty text."""
    try:
        found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except Exception:  # an unreadable name counts as absent
        return ""
    value = found[0].value if found else ""
    return value if isinstance(value, str) else ""


def serves_as(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> bool:
    """Return whether a certificate allows a usage; without the extension it allows all (RFC 5280, 4.2.1.12)."""
    try:
        allowed = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except Exception:  # an extension twice, or one that cannot be read, allows nothing
        return False
    return usage in allowed or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in allowed


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates in a PEM, at least one; raises ValueError for whatever cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise ValueError(f"a certificate cannot be read ({type(error).__name__})") from error


def read_key(pem: bytes) -> PrivateKey:
    """Return the private key in a PEM; raises IdentityError when it is not one that we use."""
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise IdentityError(
            "the private key is encrypted: store it without a passphrase, readable by the daemon only"
        ) from error
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise IdentityError("the private key is not a PEM private key ('-----BEGIN PRIVATE KEY-----')") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise IdentityError("the private key is none of Ed25519, ECDSA or RSA: make another")
    return key


def _names_itself(certificate: x509.Certificate) -> bool:
    try:
        return certificate.issuer == certificate.subject
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise IdentityError("a name in the certificate cannot be read: make another") from error


def _spki(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]
