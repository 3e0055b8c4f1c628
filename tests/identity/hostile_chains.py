"""Certificates that a stranger may show because they are costly to verify, whatever they say."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from functools import cache
from math import gcd, lcm
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from zope.interface import implementer

from liqod.identity.certs import KeyPair, certify
from liqod.model.ids import ClusterID
from tests.identity.tls_pair import DAY


@cache
def slow_rsa(bits: int = 3072) -> rsa.RSAPrivateKey:
    """Return a key whose public exponent is as long as its modulus: cheap to sign with, very dear to verify."""
    base = rsa.generate_private_key(65537, bits).private_numbers()
    p, q = base.p, base.q
    order = lcm(p - 1, q - 1)
    private = next(d for d in range(65537, 10**6, 2) if gcd(d, order) == 1)
    public = rsa.RSAPublicNumbers(pow(private, -1, order), p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, private, private % (p - 1), private % (q - 1), pow(q, -1, p), public)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


@cache
def exponent_rsa(exponent: int, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key of one's own with a public exponent of a stranger's choice."""
    while True:
        base = rsa.generate_private_key(65537, bits).private_numbers()
        order = lcm(base.p - 1, base.q - 1)
        if gcd(exponent, order) == 1:
            break
    private = pow(exponent, -1, order)
    numbers = rsa.RSAPrivateNumbers(
        base.p,
        base.q,
        private,
        private % (base.p - 1),
        private % (base.q - 1),
        base.iqmp,
        rsa.RSAPublicNumbers(exponent, base.p * base.q),
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def chain(key: Any, length: int, *, now: datetime.datetime, name: str = "beta") -> list[x509.Certificate]:
    """Return a chain in which each certificate is signed by the next one, all around the same key."""

    def named(number: int) -> x509.Name:
        text = name if number == 0 else f"c{number}"
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = []
    for number in range(length):
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(number))
            .issuer_name(named(number + 1))
            .public_key(key.public_key())
            .serial_number(number + 1)
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
        if number:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        digest = hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) else None
        made.append(builder.sign(key, digest))
    return made


def unreadable(name: str, now: datetime.datetime) -> list[KeyPair]:
    """Return properly signed certificates that the library refuses to read: of version 6, of no known version."""
    made = []
    for version in (5, 9):
        key = ed25519.Ed25519PrivateKey.generate()
        pair = certify(key, ClusterID(name), now)
        body = pair.certificate.tbs_certificate_bytes.replace(
            b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01" + bytes([version])
        )
        made.append(KeyPair(pair.key_pem, signed(key, body)))
    return made


def doubled(name: str, now: datetime.datetime, extension: x509.ObjectIdentifier) -> KeyPair:
    """Return a properly signed certificate that has an extension twice."""
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.99"), b"\x05\x00"), critical=False)
    )
    body = builder.sign(key, None).tbs_certificate_bytes
    last = int(extension.dotted_string.rpartition(".")[2])
    body = body.replace(b"\x06\x03\x55\x1d\x63", b"\x06\x03\x55\x1d" + bytes([last]))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, signed(key, body))


def signed(key: ed25519.Ed25519PrivateKey, body: bytes) -> bytes:
    """Return a certificate, as PEM, around a body of any content (RFC 5280, 4.1)."""
    algorithm = bytes.fromhex("300506032b6570")
    signature = b"\x03\x41\x00" + key.sign(body)
    content = body + algorithm + signature
    length = len(content).to_bytes(2, "big")
    der = (b"\x30\x82" + length if length[0] else b"\x30\x81" + length[1:]) + content
    text = base64.encodebytes(der).replace(b"\n", b"")
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"\n-----END CERTIFICATE-----\n"


def _openssl(certificate: x509.Certificate | bytes) -> crypto.X509:
    """Return a certificate, or the PEM of one that only OpenSSL reads."""
    if isinstance(certificate, bytes):
        return crypto.load_certificate(crypto.FILETYPE_PEM, certificate)
    return crypto.X509.from_cryptography(certificate)


@implementer(IOpenSSLServerConnectionCreator, IOpenSSLClientConnectionCreator)
class Shows:
    """A connection creator that shows any chain, whatever the other end thinks of it."""

    def __init__(self, key: Any, certificates: Sequence[x509.Certificate | bytes], *, alpn: bytes = b"liqod/1") -> None:
        context: Any = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_alpn_protos([alpn])
        context.set_alpn_select_callback(lambda connection, offered: alpn)
        context.use_privatekey(crypto.PKey.from_cryptography_key(key))
        first, *others = (_openssl(certificate) for certificate in certificates)
        context.use_certificate(first)
        for extra in others:
            context.add_extra_chain_cert(extra)
        self.context = context

    def clientConnectionForTLS(self, protocol: object) -> SSL.Connection:
        return SSL.Connection(self.context, None)

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        return SSL.Connection(self.context, None)
