"""The certificates of one test cluster: an authority, and a key pair for everybody who has to show one."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
_SERVER = ExtendedKeyUsageOID.SERVER_AUTH


class Authority:
    """The certificate authority of one cluster; it writes what it issues into one directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(self._subject, self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        (directory / "ca.crt").write_bytes(self.pem)
        (directory / "ca.key").write_bytes(_private_pem(self._key))

    def at(self, directory: Path) -> Authority:
        """Return the same authority writing into another directory, its own certificate at once."""
        elsewhere = copy.copy(self)
        elsewhere._directory = directory
        (directory / "ca.crt").write_bytes(self.pem)
        return elsewhere

    def issue(self, file: str, common_name: str, *, group: str = "", hosts: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """Write ``FILE.crt`` and ``FILE.key`` and return both as PEM; with hosts it is a server's as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = (
            _builder(subject, self._subject, key.public_key())
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_CLIENT, _SERVER] if hosts else [_CLIENT]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = _private_pem(key)
        (self._directory / f"{file}.crt").write_bytes(certificate)
        (self._directory / f"{file}.key").write_bytes(private)
        return certificate, private

    def kubeconfig(self, file: str, server: str, common_name: str, *, group: str = "") -> Path:
        """Write ``FILE.conf``, a kubeconfig with a new client certificate inside, and return its path."""
        certificate, key = self.issue(file, common_name, group=group)
        cluster = {"server": server, "certificate-authority-data": _base64(self.pem)}
        user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        path = self._directory / f"{file}.conf"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "testbed",
                    "clusters": [{"name": "testbed", "cluster": cluster}],
                    "users": [{"name": "testbed", "user": user}],
                    "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
                }
            )
        )
        return path


def service_account_keys(directory: Path) -> None:
    """Write ``sa.key`` and ``sa.pub``, with which a cluster signs the tokens of its service accounts."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "sa.key").write_bytes(_private_pem(key))
    (directory / "sa.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
