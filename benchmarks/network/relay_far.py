"""The far side of the relay's benchmark, until it is ended.

    python -m benchmarks.network.relay_far api|lender DIRECTORY

``api`` is an API server that answers every request with the same object, over TLS, which is what is left of one when
only the way to it is to be measured. ``lender`` is a daemon's port with its relay before that. Each writes the port
it listens on to a file of its name in DIRECTORY.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import attrs
from kubesandbox.auth.pki import Authority
from twisted.internet import ssl
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.tls import TLSMemoryBIOFactory

from liqod.flow.clocks import Reactor
from liqod.flow.tasks import Tasks
from liqod.hosting.tenants.rights import permits, user_of
from liqod.identity.certs import KeyPair, generate
from liqod.identity.tls import PeerTLS
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.api_request import RequestAttributes
from liqod.peering.relay.service import Relay
from liqod.peering.session.connection_limits import ConnectionLimits
from liqod.peering.session.listener import Listener
from liqod.peering.session.protocol import PeerConnection

SPACE: Final = "shop-borrower"
OBJECT: Final = (
    b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop-borrower"},"data":{"k":"'
)
BODY: Final = OBJECT + b"v" * 1024 + b'"}}'
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
HOST: Final = "127.0.0.1"
BORROWER: Final = ClusterID("borrower")


def keypair(directory: Path, name: str) -> KeyPair:
    """Return the key of a cluster, made now where there is none."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    if not key.exists():
        made = generate(ClusterID(name), datetime.now(UTC))
        certificate.write_bytes(made.certificate_pem)
        key.write_bytes(made.key_pem)
    return KeyPair(key.read_bytes(), certificate.read_bytes())


class Fixed(Protocol):
    """Answers each head with the same answer; what is asked has no body."""

    def __init__(self) -> None:
        self._data = b""

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        count = self._data.count(b"\r\n\r\n")
        if count:
            self._data = self._data.rpartition(b"\r\n\r\n")[2]
            cast(Any, self.transport).write(ANSWER * count)


def serve_api(directory: Path, reactor: Reactor) -> int:
    """Listen as the API server; returns the port."""
    authority = Authority.create("benchmark-ca", datetime.now(UTC))
    leaf = authority.serving("api", [HOST])
    own = ssl.PrivateCertificate.loadPEM(leaf.key_pem + leaf.certificate_pem)
    options: Any = ssl.CertificateOptions(privateKey=own.privateKey.original, certificate=own.original)
    (directory / "ca.crt").write_bytes(authority.pem)
    factory: Any = TLSMemoryBIOFactory(options, False, Factory.forProtocol(Fixed), reactor)
    factory.noisy = False
    listening: Any = reactor.listenTCP(0, factory, interface=HOST)
    return int(listening.getHost().port)


class Rights:
    """The borrower has one namespace."""

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        return permits(peer, ask, BORROWER if ask.namespace == SPACE else "")

    def account_of(self, peer: ClusterID) -> str:
        return user_of(peer)


@attrs.frozen
class Callers:
    """The clusters that lent keys are known of."""

    known: Mapping[Fingerprint, ClusterID]

    def caller(self, key: Fingerprint) -> ClusterID | None:
        return self.known.get(key)


class Refusals:
    """Prints what is refused."""

    def record(self, reason: str, source: str, message: str) -> None:
        print(reason, source, message)


class Owner:
    """Nobody who lets sessions in: the port is asked for its relay only."""

    admission: ConnectionLimits

    def closed(self, connection: PeerConnection) -> None:
        self.admission.closed(connection)


class Times:
    """The time-outs of connections before their handshake."""

    ping_interval = 10.0
    handshake_timeout = 10.0


def serve_relay(directory: Path, reactor: Reactor) -> int:
    """Listen as a lender's daemon does; returns the port."""
    tls = PeerTLS(keypair(directory, "lender"))
    callers = {keypair(directory, "borrower").fingerprint: BORROWER}
    config = ClientConfig(api_url(directory), ca_pem=(directory / "ca.crt").read_bytes(), token=lambda: "own")
    refusals = Refusals()
    relay = Relay(
        client=Client(config, reactor),
        clock=reactor,
        tls=tls,
        rights=Rights(),
        callers=Callers(callers),
        refusals=refusals,
        tasks=Tasks(),
    )
    owner = Owner()

    def connection(address: str) -> PeerConnection:
        return PeerConnection("listener", cast(Any, owner), tls=tls, clock=reactor, times=Times(), address=address)

    owner.admission = ConnectionLimits(connection, 512, refusals.record, reactor)
    listener = Listener(reactor, f"tcp:0:interface={HOST}", tls, owner.admission, relay.protocol)
    listener.startService()
    return listener.port


def api_url(directory: Path) -> str:
    """Return the URL of the API server that ``api`` is."""
    return f"https://{HOST}:{(directory / 'api').read_text()}"


def be() -> None:
    """Be one of the two until ended."""
    from twisted.internet import reactor as global_reactor

    reactor = cast(Reactor, global_reactor)
    role, directory = sys.argv[1], Path(sys.argv[2])
    port = (serve_api if role == "api" else serve_relay)(directory, reactor)
    waiting = directory / f"{role}.new"
    waiting.write_text(str(port))
    waiting.rename(directory / role)
    cast(Any, global_reactor).run()


if __name__ == "__main__":
    be()
