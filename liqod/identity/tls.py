"""TLS between peers: version 1.3 only, mutual, trusted by pinned key and not by name.

The verify callback accepts every certificate, because peers are self-signed and pinned. That is safe on one condition,
which the user of this module must meet: **no data is sent or accepted before the peer's key was judged.** So a
protocol over these transports implements ``twisted.internet.interfaces.IHandshakeListener``, does nothing in
``connectionMade``, and in ``handshakeCompleted`` calls ``peer_certificate(self.transport)`` and hands the result to
``identity.pins.judge``.

A TLS 1.3 client's handshake completes before the server has verified the client's certificate (RFC 8446, 2); only the
server's Welcome (``liqod.wire``) confirms that the client is accepted.

Session resumption is off, because a resumed session shows no certificate (RFC 8446, 2.2). Only this module uses
OpenSSL directly. Many type stubs for pyOpenSSL know only its older objects, hence ``Any`` for contexts and connections.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from liqod.flow.clocks import WallClock, utc_now
from liqod.identity.certs import (
    IdentityError,
    KeyPair,
    check_certificate,
    check_key,
    common_name,
    fingerprint_of,
    read_certificates,
    serves_as,
)
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal

ALPN: Final = b"liqod/1"
HTTP: Final = b"http/1.1"
"""The ALPN protocol of the API relay, on the same port."""
TO_API: Final = b"liqod-api/1"
"""That of a stream to the API server of who is dialled, on the same port as well."""
KEPT: Final = b"liqod-kept/1"
"""That of a stream to the API server of who dials, kept ready for who is dialled."""
_PROTOCOLS: Final = (ALPN, HTTP, TO_API, KEPT)
EXPORTER: Final = b"EXPORTER-liqod-pairing"
NEW_KEY: Final = b"EXPORTER-liqod-new-key"
MAX_CHAIN: Final = 6
"""Certificates a peer may show: root, two intermediates and a leaf are four."""
MAX_NAMES: Final = 64
"""Names in a certificate of a chain: OpenSSL compares each with each name that the certificates above it permit."""
CLOCK_SKEW: Final = datetime.timedelta(minutes=5)
"""How far two clocks may differ where dates count, that is for certificates of a CA."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME (OpenSSL, x509_vfy.h), which pyOpenSSL does not name."""

_E = TypeVar("_E", bound=x509.ExtensionType)


@attrs.frozen
class PeerCertificate:
    """The content of a peer's certificate, after the handshake proved that the peer holds its key.

    ``subject_cn`` and the dates are claims, unless ``chains_to_ca``: then a configured CA signed them, and they hold.
    """

    fingerprint: Fingerprint
    chains_to_ca: bool
    subject_cn: str
    not_before: datetime.datetime
    not_after: datetime.datetime

    def vouches_for(self, cluster_id: ClusterID) -> bool:
        """Return whether the configured CA certifies this key for a cluster: pass *this* to ``pins.judge``.

        Chaining alone is not enough: any member of the CA could claim the ID of any other that is not pinned yet.
        """
        return self.chains_to_ca and self.subject_cn == cluster_id


class PeerTLS:
    """TLS with a cluster's own key: creates connections, and reads the peer's certificate from one."""

    def __init__(
        self,
        keypair: KeyPair,
        ca_pem: bytes | None = None,
        *,
        now: WallClock = utc_now,
        revoked: Collection[Fingerprint] = (),
    ) -> None:
        self.keypair = keypair
        self._revoked = frozenset(revoked)
        self._now = now
        self._authorities = _read_authorities(ca_pem)
        self.context = _make_context(keypair)
        self._contexts = _make_contexts(keypair)

    def use(self, keypair: KeyPair) -> None:
        """Use another key from the next connection on; open ones are not affected."""
        self.context = _make_context(keypair)
        self._contexts = _make_contexts(keypair)
        self.keypair = keypair

    def server_creator(self) -> IOpenSSLServerConnectionCreator:
        """Return the creator for ``TLSMemoryBIOFactory(creator, isClient=False, ...)`` or ``transport.startTLS``."""
        return _Creator(self)

    def client_creator(self, protocol: bytes = ALPN) -> IOpenSSLClientConnectionCreator:
        """Return the creator for ``wrapClientTLS(creator, endpoint)``: for a session, the relay (HTTP), a stream."""
        return _Creator(self, protocol)

    def client_context(self, protocol: bytes) -> SSL.Context:
        """Return the context of what we dial by a protocol; raises KeyError for one that is none of ours."""
        return self.context if protocol == ALPN else self._contexts[protocol]

    def agreed(self, transport: object) -> bytes:
        """Return the protocol negotiated in the handshake (ALPN, RFC 7301), empty without one."""
        connection: Any = transport.getHandle() if isinstance(transport, TLSMemoryBIOProtocol) else None
        return bytes(connection.get_alpn_proto_negotiated()) if isinstance(connection, SSL.Connection) else b""

    def peer_certificate(self, transport: object, protocol: bytes = ALPN) -> PeerCertificate:
        """Return what the peer showed in a completed handshake.

        Raises Refusal for a peer that speaks another protocol, shows too many certificates, or has a key of a kind
        that is not accepted.
        """
        connection: Any = transport.getHandle() if isinstance(transport, TLSMemoryBIOProtocol) else None
        if not isinstance(connection, SSL.Connection):
            raise Refusal("NotTLS", "the connection is not a TLS connection")
        if connection.get_alpn_proto_negotiated() != protocol:
            raise Refusal(
                "NoCommonProtocol",
                f"the other side does not speak {protocol.decode()}: is it liqod, and of this major version?",
            )
        # The peer that we dialled needs the server's extended key usage, one that dialled us the client's.
        dialed = isinstance(connection, _Dialed)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if dialed else ExtendedKeyUsageOID.CLIENT_AUTH
        return self.read_chain(_shown_by_peer(connection), usage)

    def refusal(self, transport: object) -> Refusal | None:
        """Return why the peer's certificate was refused in a handshake, None if it failed for another cause."""
        connection: Any = transport.getHandle() if isinstance(transport, TLSMemoryBIOProtocol) else None
        refused = connection.get_app_data() if isinstance(connection, SSL.Connection) else None
        return refused if isinstance(refused, Refusal) else None

    def binding(self, transport: object, purpose: bytes = EXPORTER) -> bytes:
        """Return the TLS exporter of a session (RFC 8446, 7.5): 32 bytes that only its two ends know, by purpose."""
        connection: Any = transport.getHandle() if isinstance(transport, TLSMemoryBIOProtocol) else None
        if not isinstance(connection, SSL.Connection):
            raise Refusal("NotTLS", "the connection is not a TLS connection")
        return bytes(connection.export_keying_material(purpose, 32, b""))

    def read_chain(self, chain: Sequence[x509.Certificate], usage: x509.ObjectIdentifier) -> PeerCertificate:
        """Return what a chain (the peer's own certificate first) says; ``usage`` is what a CA must allow it to be."""
        if not chain:
            raise Refusal("NoCertificate", "the peer showed no certificate")
        if len(chain) > MAX_CHAIN:
            raise Refusal("ChainTooLong", f"the peer showed {len(chain)} certificates; {MAX_CHAIN} are accepted")
        leaf = chain[0]
        try:
            key = check_certificate(leaf)
            path = self._path(chain)
            if not self._revoked.isdisjoint(fingerprint_of(certificate) for certificate in (*chain, *path)):
                raise Refusal("KeyRevoked", "the key, or one that signed it, is among [identity] revoked")
            if not path and not isinstance(key, Ed25519PublicKey):
                # RSA and ECDSA are accepted only for keys signed by a CA. An attacker can search self-made keys for one
                # whose words equal those of another; the search is most expensive with Ed25519, so it is required.
                raise Refusal(
                    "KeyTypeRefused",
                    "the certificate's key is not Ed25519, and no CA configured here ([identity] ca) has signed it",
                )
            return PeerCertificate(
                fingerprint=fingerprint_of(leaf),
                chains_to_ca=bool(path) and _serves_as(path, usage) and self._is_valid_now(path) and _is_named(path),
                subject_cn=common_name(leaf),
                not_before=leaf.not_valid_before_utc,
                not_after=leaf.not_valid_after_utc,
            )
        except Refusal:
            raise
        except Exception as error:  # what strangers write makes the library raise more than it documents
            raise Refusal("CertificateUnreadable", "the peer's certificate cannot be read") from error

    def _path(self, chain: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """Return the certificates from the first to the configured CA that signed it, nothing where none did.

        OpenSSL validates the path: signatures, CA flags, lengths, name constraints, critical extensions; dates are
        left to ``_is_valid_now``. What would be costly to validate is not tried.
        """
        if not self._authorities or not all(_is_affordable(certificate) for certificate in chain):
            return []
        store = crypto.X509Store()
        for authority in self._authorities:
            store.add_cert(crypto.X509.from_cryptography(authority))
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN | _NO_CHECK_TIME)
        leaf, *others = (crypto.X509.from_cryptography(certificate) for certificate in chain)
        try:
            verified = crypto.X509StoreContext(store, leaf, others).get_verified_chain()
        except crypto.X509StoreContextError:
            return []
        return [certificate.to_cryptography() for certificate in verified]

    def _is_valid_now(self, path: Sequence[x509.Certificate]) -> bool:
        """Return whether all certificates are valid at one moment within the clocks' skew of now."""
        # A slow clock sees "not yet valid", a fast one "expired": both are tolerated within the skew.
        begin = max(certificate.not_valid_before_utc for certificate in path)
        end = min(certificate.not_valid_after_utc for certificate in path)
        now = self._now()
        return begin <= end and begin - CLOCK_SKEW <= now <= end + CLOCK_SKEW


class _Dialed(SSL.Connection):
    """A connection with us as the client; pyOpenSSL's Connection does not expose its role."""


def _serves_as(path: Sequence[x509.Certificate], usage: x509.ObjectIdentifier) -> bool:
    """Return whether all of a path but the configured CA itself allow a usage, as OpenSSL and Go have it, too."""
    return all(serves_as(certificate, usage) for certificate in (path[0], *path[1:-1]))


def _is_named(path: Sequence[x509.Certificate]) -> bool:
    """Return whether the name of a path's first certificate was subject to the name constraints in the path, if any."""
    # OpenSSL checks them against alternative names, and against a common name only where that looks like a DNS name,
    # with a dot (crypto/x509/v3_ncons.c): a cluster ID has none.
    if not any(_extension(certificate, x509.NameConstraints) for certificate in path):
        return True
    names = _extension(path[0], x509.SubjectAlternativeName)
    return names is not None and common_name(path[0]) in names.get_values_for_type(x509.DNSName)


def _extension(certificate: x509.Certificate, kind: type[_E]) -> _E | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


@implementer(IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator)
class _Creator:
    """Creates connections with the current key."""

    def __init__(self, tls: PeerTLS, protocol: bytes = ALPN) -> None:
        self._tls = tls
        self._protocol = protocol

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        return _Dialed(self._tls.client_context(self._protocol), None)

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        return SSL.Connection(self._tls.context, None)


def _make_contexts(keypair: KeyPair) -> dict[bytes, SSL.Context]:
    """Return the contexts of what we dial beside sessions, by protocol."""
    return {protocol: _make_context(keypair, protocol) for protocol in _PROTOCOLS if protocol != ALPN}


def _make_context(keypair: KeyPair, protocol: bytes = ALPN) -> SSL.Context:
    context: Any = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_max_proto_version(SSL.TLS1_3_VERSION)
    # A resumed session shows no certificate (RFC 8446, section 2.2): the key is to be proven in every session.
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    # Without an ID context OpenSSL fails the handshake of a client with a certificate and an earlier session
    # (SSL_CTX_set_session_id_context(3)).
    context.set_session_id(ALPN)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept)
    # The pin or `_path` decides: OpenSSL must not spend CPU on a chain chosen by an unauthenticated peer.
    context.set_verify_depth(0)
    context.set_alpn_protos([protocol])
    context.set_alpn_select_callback(_select_protocol)
    context.use_privatekey(keypair.key)
    context.use_certificate(keypair.certificate)
    for certificate in keypair.chain[1:]:
        context.add_extra_chain_cert(certificate)
    return cast(SSL.Context, context)


def _accept(connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int) -> bool:
    """Accept all certificates except keys that are costly to verify; OpenSSL calls this before it uses each key.

    The key is judged after the handshake has proved that the peer holds it (see the module's docstring).
    """
    try:
        check_key(certificate.to_cryptography())
    except Refusal as refused:
        connection.set_app_data(refused)
        return False
    except Exception:  # cffi prints exceptions of a callback and discards them
        connection.set_app_data(Refusal("CertificateUnreadable", "the peer's certificate cannot be read"))
        return False
    return True


def _is_affordable(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may be given to path validation: no costly key, no broken hash, few names."""
    try:
        check_certificate(certificate)
        names = sum(len(part) for part in certificate.subject.rdns)
        with suppress(x509.ExtensionNotFound):
            names += len(list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value))
    except Exception:  # an extension twice, a name that is none, ...
        return False
    return names <= MAX_NAMES


def _select_protocol(connection: SSL.Connection, offered: list[bytes]) -> bytes | object:
    """Select our ALPN protocol; without a match the handshake continues, and ``peer_certificate`` refuses it."""
    return next((ours for ours in _PROTOCOLS if ours in offered), SSL.NO_OVERLAPPING_PROTOCOLS)


def _shown_by_peer(connection: Any) -> list[x509.Certificate]:
    try:
        leaf = connection.get_peer_certificate(as_cryptography=True)
        chain = connection.get_peer_cert_chain(as_cryptography=True) or []
    except Exception as error:  # what strangers write makes the library raise more than it documents
        raise Refusal("CertificateUnreadable", "the peer's certificate cannot be read") from error
    if leaf is None:
        return []
    # On the server's side OpenSSL's chain lacks the peer's own certificate (SSL_get_peer_cert_chain(3)).
    return [leaf, *(certificate for certificate in chain if certificate != leaf)]


def _read_authorities(ca_pem: bytes | None) -> list[x509.Certificate]:
    if not ca_pem:
        return []
    try:
        return read_certificates(ca_pem)
    except ValueError as error:
        raise IdentityError(
            "the file under [identity] ca holds no PEM certificate: give the CA's certificate"
        ) from error
