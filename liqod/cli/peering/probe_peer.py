"""Asking who is at an address: one TLS handshake under a key of the moment, and nothing said."""

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
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from liqod.peering.session.dial import split_address


@attrs.frozen
class Met:
    """Who answered: the name in its certificate, and its key."""

    cluster_id: str
    fingerprint: Fingerprint


@implementer(IHandshakeListener)
class _Knock(Protocol):
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


async def knock(reactor: Reactor, address: str, timeout: float) -> Met:
    """Return who is at ``host:port``; raises CliError when nobody answers, or somebody else does."""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise CliError(errors.NOBODY_THERE, str(error), "name it like milan.example.com:5872", errors.USAGE) from None
    tls = PeerTLS(generate(ClusterID("liqodctl"), datetime.now(UTC)))
    found: Deferred[PeerCertificate] = Deferred()
    endpoint = BoundedClient(tls.client_creator(), HostnameEndpoint(reactor, host.encode(), port, timeout))
    try:
        await endpoint.connect(Factory.forProtocol(lambda: _Knock(tls, found)))
        certificate = await found.addTimeout(timeout, reactor)
    except Exception as error:
        raise CliError(
            errors.NOBODY_THERE,
            f"no liqod answers at {address}: {error}",
            "is the daemon running there, and is its port (peering.listen) open?",
        ) from None
    return Met(certificate.subject_cn, certificate.fingerprint)
