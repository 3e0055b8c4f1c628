"""Two protocols joined by real TLS in memory: a certificate authority, and a pump, without sockets."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.test.iosim import IOPump, connectedServerAndClient
from zope.interface import implementer

from liqod.identity.certs import KeyPair

NOW = datetime.datetime(2030, 6, 1, 12, 0, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """A CA that signs whatever a test asks for."""

    def __init__(self, name: str = "test CA", *, is_ca: bool = True, now: datetime.datetime = NOW) -> None:
        self.key = ed25519.Ed25519PrivateKey.generate()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._builder(
            self.name, self.key.public_key(), now - 1000 * DAY, now + 1000 * DAY, is_ca
        ).sign(self.key, None)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        name: str,
        *,
        key: Any = None,
        start: datetime.datetime = NOW - DAY,
        end: datetime.datetime = NOW + DAY,
        usages: tuple[x509.ObjectIdentifier, ...] = BOTH,
        algorithm: Any = None,
        dns: tuple[str, ...] = (),
    ) -> KeyPair:
        """Return a key and a certificate signed by this CA."""
        key = key or ed25519.Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), start, end, False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if dns:
            names = x509.SubjectAlternativeName([x509.DNSName(each) for each in dns])
            builder = builder.add_extension(names, critical=False)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return KeyPair(pem, builder.sign(self.key, algorithm).public_bytes(Encoding.PEM))

    def delegate(self, name: str, *, permitted: str = "", usages: tuple[x509.ObjectIdentifier, ...] = ()) -> Authority:
        """Return an intermediate CA signed by this one.

        ``permitted``: the one DNS name that it may certify; ``usages``: what it certifies keys for, if not for all.
        """
        child = Authority(name)
        builder = self._builder(child.name, child.key.public_key(), NOW - DAY, NOW + DAY, True)
        if permitted:
            constraints = x509.NameConstraints([x509.DNSName(permitted)], None)
            builder = builder.add_extension(constraints, critical=True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        child.certificate = builder.sign(self.key, None)
        return child

    def _builder(
        self, subject: x509.Name, key: Any, start: datetime.datetime, end: datetime.datetime, is_ca: bool
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )


@implementer(IHandshakeListener)
class Recorder(Protocol):
    """Notes what happens to it, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.data = b""
        self.lost: Failure | None = None

    def connectionMade(self) -> None:
        self.seen.append("made")

    def handshakeCompleted(self) -> None:
        self.seen.append("handshake")

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.seen.append("lost")
        self.lost = reason


def join(server_creator: object, client_creator: object) -> tuple[Recorder, Recorder, IOPump]:
    """Return a server and a client whose TLS handshake ran as far as it goes."""
    clock = Clock()
    server, client = Recorder(), Recorder()

    def build(protocol: Recorder, creator: Any, is_client: bool) -> Any:
        factory = Factory.forProtocol(lambda: protocol)
        return TLSMemoryBIOFactory(creator, is_client, factory, clock).buildProtocol(None)

    _, _, pump = connectedServerAndClient(
        lambda: build(server, server_creator, False), lambda: build(client, client_creator, True), clock=clock
    )
    for _ in range(10):
        pump.flush()
        clock.advance(0)
    return server, client, pump
