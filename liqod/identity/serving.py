"""Certificates of the daemon's ports inside its own cluster: a CA of its own with a leaf, or a signing request.

Where clients get the CA by configuration (the API server does, as the webhook's ``caBundle``) a CA of our own is
enough. A bundle holds the CA before and after a rotation for as long as a leaf of either may be served: at no moment is
a leaf served whose CA is not in the bundle. Where clients trust the cluster's signer, ``request`` makes a CSR for it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from liqod.identity.certs import read_certificates
from liqod.model.addresses import parse_ip

CA_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
BACKDATED: Final = timedelta(days=1)
"""Tolerance for API servers whose clock is behind ours."""

_KEYS: Final = {"ca.crt": "ca_pem", "ca.key": "ca_key_pem", "tls.crt": "certificate_pem", "tls.key": "key_pem"}
_FORMER: Final = "ca-former.crt"


@frozen
class Bundle:
    """CA and leaf, each with its key (PEM). Keys never show in ``repr``."""

    ca_pem: bytes
    ca_key_pem: bytes = field(repr=False)
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    former_ca_pem: bytes = b""

    @property
    def trusted_pem(self) -> bytes:
        """The CAs for clients to trust: the current one and the former one, whose leaf may still be served."""
        return self.ca_pem + self.former_ca_pem

    @property
    def not_after(self) -> datetime:
        """When the leaf expires."""
        return x509.load_pem_x509_certificate(self.certificate_pem).not_valid_after_utc

    @property
    def ca_not_after(self) -> datetime:
        """When the CA expires."""
        return x509.load_pem_x509_certificate(self.ca_pem).not_valid_after_utc


def generate(name: str, hosts: Sequence[str], now: datetime, former: Bundle | None = None) -> Bundle:
    """Return a fresh leaf for these host names and addresses, signed by the former CA while it lasts, else by a new.

    ``name`` is the common name, for people who look at it.
    """
    former_ca_pem = b""
    if former is not None and former.ca_not_after - now > LEAF_LIFE + RENEW_BEFORE:
        ca_pem, ca_key_pem, former_ca_pem = former.ca_pem, former.ca_key_pem, former.former_ca_pem
    else:
        ca_pem, ca_key_pem = _authority(name, now)
        if former is not None:
            former_ca_pem = former.ca_pem
    ca = x509.load_pem_x509_certificate(ca_pem)
    ca_key = serialization.load_pem_private_key(ca_key_pem, None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        _builder(name, ca.subject, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    certificate_pem = leaf.public_bytes(serialization.Encoding.PEM)
    return Bundle(ca_pem, ca_key_pem, certificate_pem, _private_pem(key), former_ca_pem)


def request(common_name: str, organization: str, hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """Return a certificate signing request for a server with these names and addresses, and its private key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def validity(certificate_pem: bytes) -> tuple[datetime, datetime]:
    """Return notBefore and notAfter of a certificate; raise ValueError if it cannot be read."""
    certificate = read_certificates(certificate_pem)[0]
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def is_due(bundle: Bundle, hosts: Sequence[str], now: datetime) -> bool:
    """Return whether a leaf must be renewed: it expires soon, or lacks one of the host names."""
    return bundle.not_after - now < RENEW_BEFORE or not {*map(_name, hosts)} <= names_of(bundle)


def names_of(bundle: Bundle) -> set[str]:
    """Return the names and addresses of a leaf (subjectAltName)."""
    leaf = x509.load_pem_x509_certificate(bundle.certificate_pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    }


def to_data(bundle: Bundle) -> dict[str, str]:
    """Return the data of a Secret of type Opaque."""
    data = {key: base64.b64encode(getattr(bundle, name)).decode("ascii") for key, name in _KEYS.items()}
    if bundle.former_ca_pem:
        data[_FORMER] = base64.b64encode(bundle.former_ca_pem).decode("ascii")
    return data


def from_data(data: Mapping[str, str]) -> Bundle:
    """Return the bundle in a Secret's data; raises ValueError if it cannot be used."""
    try:
        parts = {name: base64.b64decode(data[key], validate=True) for key, name in _KEYS.items()}
        bundle = Bundle(**parts, former_ca_pem=base64.b64decode(data.get(_FORMER, ""), validate=True))
        serialization.load_pem_private_key(bundle.key_pem, None)
        serialization.load_pem_private_key(bundle.ca_key_pem, None)
        names_of(bundle)
        _ = bundle.ca_not_after
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise ValueError(f"the certificate or key cannot be read ({type(error).__name__})") from None
    return bundle


def _authority(name: str, now: datetime) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"{name} CA"
    certificate = (
        _builder(name, None, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key)


_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    name: str, issuer: x509.Name | None, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _general_name(host: str) -> x509.DNSName | x509.IPAddress:
    address = parse_ip(host.partition("%")[0])  # a certificate has no zone of an address (RFC 4007)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _name(host: str) -> str:
    """Return a host as ``names_of`` does."""
    return str(_general_name(host).value)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
