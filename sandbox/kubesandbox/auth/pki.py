"""The certificates of a sandbox cluster: one authority, a serving certificate, client certificates."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@attrs.frozen
class Leaf:
    """A certificate and its private key, both PEM; the key never shows in ``repr``."""

    certificate_pem: bytes
    key_pem: bytes = attrs.field(repr=False)


@attrs.frozen
class Authority:
    """A certificate authority that lives as long as the sandbox does."""

    _key: ec.EllipticCurvePrivateKey = attrs.field(repr=False)
    _certificate: x509.Certificate
    _since: datetime.datetime

    @classmethod
    def create(cls, common_name: str, now: datetime.datetime) -> Authority:
        """Make a new authority, valid from the day before ``now`` for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        certificate = (
            _builder(name, name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate, now)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def serving(self, common_name: str, hosts: Sequence[str]) -> Leaf:
        """Return a certificate for a server that is known by these names and addresses."""
        return self._leaf([(NameOID.COMMON_NAME, common_name)], ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, user: str, groups: Sequence[str] = ()) -> Leaf:
        """Return a client certificate: the common name is the user, organizations are groups."""
        names = [(NameOID.COMMON_NAME, user), *((NameOID.ORGANIZATION_NAME, group) for group in groups)]
        return self._leaf(names, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _leaf(
        self, names: Sequence[tuple[x509.ObjectIdentifier, str]], usage: x509.ObjectIdentifier, hosts: Sequence[str]
    ) -> Leaf:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), self._since)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Leaf(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 3650 * _DAY)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
