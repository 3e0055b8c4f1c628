"""Finds out which cluster listens at an address: one TLS handshake with an ephemeral key, no message sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.flow.clocks import Reactor
from liqod.flow.connections.handshake import BoundedClient
from liqod.identity.certs import generate
from liqod.identity.tls import PeerCertificate, PeerTLS
from liqod.model.host_port import split_address
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal


@attrs.frozen
class ProbedPeer:
    """The cluster at an address: the ID in its certificate (a mere claim), and its key."""

    cluster_id: str
    fingerprint: Fingerprint


@implementer(IHandshakeListener)
class _Probe(Protocol):
    def __init__(self, tls: PeerTLS, found: Deferred[PeerCertificate]) -> None:
        self._tls = tls
        self._found = found

    def handshakeCompleted(self) -> None:
        try:
            certificate = self._tls.peer_certificate(self.transport)
        except Refusal as refusal:
            self._found.errback(refusal)
        else:
            self._found.callback(certificate)
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self._found.called:
            self._found.errback(reason)


async def probe_peer(reactor: Reactor, address: str, timeout: float) -> ProbedPeer:
    """Return the cluster at ``host:port``. Raises CliError when there is no answer, or not one of liqod."""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise CliError(
            errors.PEER_UNREACHABLE, str(error), "the form is milan.example.com:5872", errors.USAGE
        ) from None
    tls = PeerTLS(generate(ClusterID("liqodctl"), datetime.now(UTC)))
    found: Deferred[PeerCertificate] = Deferred()
    endpoint = BoundedClient(tls.client_creator(), HostnameEndpoint(reactor, host.encode(), port, timeout))
    try:
        await endpoint.connect(Factory.forProtocol(lambda: _Probe(tls, found)))
        certificate = await found.addTimeout(timeout, reactor)
    except Exception as error:
        raise CliError(
            errors.PEER_UNREACHABLE,
            f"no liqod answers at {address}: {_reason(error)}",
            "is the daemon running there, and is its port (peering.listen) open?",
        ) from None
    return ProbedPeer(certificate.subject_cn, certificate.fingerprint)


def _reason(error: Exception) -> str:
    """Return an error as a sentence; those of OpenSSL carry a list of (library, function, reason)."""
    parts = error.args[0] if error.args else ""
    if isinstance(parts, list):
        return "it does not speak liqod's TLS" + "".join(f" ({one[-1]})" for one in parts[:1] if one)
    return str(error) or type(error).__name__
