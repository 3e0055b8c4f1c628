"""Connects to a peer beside the session: at its addresses, with its pinned key, and ALPN for the relay or a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import (
    IHandshakeListener,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.connections.factories import quiet
from liqod.flow.connections.handshake import BoundedClient
from liqod.identity.tls import HTTP, PeerTLS
from liqod.model.host_port import split_address
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.peering.session.dial import CONNECT_TIMEOUT, Race
from liqod.wire.events import Bye


@implementer(IStreamClientEndpoint)
class RelayEndpoint:
    """Connects to the relay of one peer, or by another protocol; nothing is sent before it proved its pinned key.

    ``addresses`` and ``keys`` are called at each attempt; the last successful address is tried first. ``connect``
    fails with a ConnectError that names the failure of each address.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        tls: PeerTLS,
        addresses: Callable[[], Sequence[str]],
        keys: Callable[[], Sequence[str]],
        *,
        protocol: bytes = HTTP,
    ) -> None:
        self._reactor = reactor
        self._tls = tls
        self._addresses = addresses
        self._keys = keys
        self._protocol = protocol
        self._good = ""

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        known = list(self._addresses())
        ordered = sorted(known, key=lambda address: address != self._good)
        race = Race(self._reactor, ordered, cast(Any, self._attempt))
        return cast("Deferred[Any]", race.result).addCallbacks(self._opened, _not_opened, (protocolFactory,))

    def _opened(self, judged: Judged, factory: IProtocolFactory) -> IProtocol:
        self._good = judged.address
        return judged.become(factory)

    def _attempt(self, address: str) -> Deferred[Judged]:
        host, port = split_address(address)
        creator = self._tls.client_creator(self._protocol)
        endpoint = BoundedClient(creator, HostnameEndpoint(self._reactor, host.encode(), port, CONNECT_TIMEOUT))
        made = Judged(self._tls, self._keys(), address, self._protocol)
        connecting = endpoint.connect(quiet(lambda: made))

        def give_up(_: Deferred[Judged]) -> None:
            connecting.cancel()
            made.cut()

        judged: Deferred[Judged] = Deferred(give_up)
        made.judged = judged

        def failed(failure: Failure) -> None:
            if not judged.called:
                judged.errback(failure)

        cast("Deferred[Any]", connecting).addErrback(failed)
        # The time-out covers the TLS handshake as well as the TCP connection.
        return judged.addTimeout(CONNECT_TIMEOUT, self._reactor)

    def __repr__(self) -> str:
        return "<the relay of a peer>"


def _not_opened(failure: Failure) -> Failure:
    """Return a failure with ConnectError, as endpoints do: the caller knows then that nothing was sent."""
    if failure.check(PeerUnreachable):
        return Failure(ConnectError(string=failure.getErrorMessage()))
    return failure


@implementer(IHandshakeListener)
class Judged(Protocol):
    """A connection that is handed over to another protocol once the peer's key was verified."""

    transport: Any

    def __init__(self, tls: PeerTLS, keys: Sequence[str], address: str, protocol: bytes = HTTP) -> None:
        self.address = address
        self.judged: Deferred[Judged] = Deferred()
        self._tls = tls
        self._keys = keys
        self._protocol = protocol
        self._speaks: Any = None

    def handshakeCompleted(self) -> None:
        try:
            certificate = self._tls.peer_certificate(self.transport, self._protocol)
            if certificate.fingerprint not in self._keys:
                raise Refusal("UnexpectedKey", f"another key than the pinned one answers at {self.address}")
        except Refusal as refusal:
            self._fail(Failure(PeerUnreachable(refusal.message)))
            self.cut()
            return
        if not self.judged.called:
            self.judged.callback(self)

    def become(self, factory: IProtocolFactory) -> IProtocol:
        """Build the protocol that takes over the connection, and connect it."""
        protocol = factory.buildProtocol(self.transport.getPeer())
        if protocol is None:
            self.cut()
            raise PeerUnreachable("the connection is not wanted any more")
        self._speaks = protocol
        protocol.makeConnection(self.transport)
        return protocol

    def dataReceived(self, data: bytes) -> None:
        if self._speaks is not None:
            self._speaks.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._speaks is not None:
            self._speaks.connectionLost(reason)
        self._fail(reason)

    def abort(self, bye: Bye) -> None:
        """Close because another address was faster."""
        self.cut()

    def cut(self) -> None:
        """Close at once."""
        if self.transport is not None and self.transport.connected:
            self.transport.abortConnection()

    def _fail(self, failure: Failure) -> None:
        if not self.judged.called:
            self.judged.errback(failure)
