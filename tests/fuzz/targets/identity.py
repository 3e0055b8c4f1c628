"""Certificates and keys: of a peer that is a stranger, and of files and Secrets."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from liqod.identity import certs, serving, tls
from liqod.identity.pins import Mismatch, Trusted, UnknownKey, judge
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from tests.fuzz.cost import Target

NOW: Final = datetime.datetime(2030, 6, 1, 12, 0, tzinfo=datetime.UTC)
CA: Final = x509.load_pem_x509_certificate(
    serving.generate("fuzz", ["alpha"], NOW).ca_pem,
)
SIDE: Final = tls.PeerTLS(certs.generate(ClusterID("alpha"), NOW), CA.public_bytes(Encoding.PEM), now=lambda: NOW)
ALONE: Final = tls.PeerTLS(SIDE.keypair, now=lambda: NOW)
PINNED: Final = Fingerprint("sha256:" + "0" * 64)


def certificate(data: bytes) -> None:
    """A chain of certificates in DER, one behind the other with its length: a Refusal, or a key that nobody trusts."""
    chain = []
    for part in _parts(data):
        try:
            chain.append(x509.load_der_x509_certificate(part))
        except Exception:  # what OpenSSL's callback and ``_shown_by_peer`` take for unreadable
            continue
    for side in (SIDE, ALONE):
        for usage in (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH):
            try:
                shown = side.read_chain(chain, usage)
            except Refusal as refusal:
                assert refusal.reason.isalpha()
                assert refusal.message
                continue
            assert not shown.chains_to_ca
            verdict = judge(ClusterID("beta"), shown.fingerprint, {ClusterID("beta"): PINNED}, chains_to_ca=True)
            assert isinstance(verdict, Mismatch)
            verdict = judge(ClusterID(shown.subject_cn), shown.fingerprint, {}, chains_to_ca=shown.chains_to_ca)
            assert isinstance(verdict, UnknownKey) and not isinstance(verdict, Trusted)


def pem(data: bytes) -> None:
    """Keys and certificates in PEM, as files and Secrets hold them: each reader has one error of its own."""
    for read in (certs.read_key, tls._read_authorities):
        try:
            read(data)
        except certs.IdentityError as error:
            assert str(error)
    for key, text in ((data, data), (SIDE.keypair.key_pem, data)):
        try:
            certs.load(key, text)
        except certs.IdentityError as error:
            assert str(error)
    try:
        serving.from_data({name: data.decode("latin-1") for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")})
    except ValueError as error:
        assert str(error)


def _parts(data: bytes) -> list[bytes]:
    parts = []
    while len(data) > 2:
        length = int.from_bytes(data[:2], "big")
        parts.append(data[2 : 2 + length])
        data = data[2 + length :]
    return parts[:8]


def seeds() -> Mapping[str, list[bytes]]:
    """Return what the corpus begins with; it has other keys each time."""
    own = certs.generate(ClusterID("beta"), NOW)
    bundle = serving.generate("webhook", ["a.svc", "192.0.2.1"], NOW)
    authority, leaf, mine = (
        x509.load_pem_x509_certificate(one).public_bytes(Encoding.DER)
        for one in (bundle.ca_pem, bundle.certificate_pem, own.certificate_pem)
    )
    chains = ([mine], [leaf, authority], [mine, leaf, authority], [mine] * 7)
    return {
        "certificate": [b"".join(len(one).to_bytes(2, "big") + one for one in chain) for chain in chains],
        "pem": [own.certificate_pem, own.key_pem, own.key_pem + own.certificate_pem, bundle.key_pem + bundle.ca_pem],
    }


TARGETS: Final[Mapping[str, Target]] = {"certificate": certificate, "pem": pem}
