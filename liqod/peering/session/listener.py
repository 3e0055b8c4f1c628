"""The TCP port that peers connect to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IAddress, IHandshakeListener, IListeningPort
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.flow.clocks import Reactor
from liqod.flow.connections.handshake import BoundedTLS, LimitedFactory, host_of
from liqod.flow.connections.listening import address_text, server_endpoint
from liqod.flow.observe import Gate
from liqod.identity.tls import HTTP, PeerTLS
from liqod.peering.session.connection_limits import ConnectionLimits
from liqod.peering.session.protocol import PeerConnection

Others = Mapping[bytes, Callable[[object, str], Protocol]]
"""What speaks in a connection that is no session, from its transport and address, by what ALPN agreed on."""
_NO_STREAMS: Final[Others] = MappingProxyType({})


@implementer(IHandshakeListener)
class _AlpnSwitch(Protocol):
    """Chooses between a session, the relay and streams by ALPN (RFC 7301) when the TLS handshake is complete."""

    def __init__(self, connection: PeerConnection, tls: PeerTLS, others: Others) -> None:
        self._connection = connection
        self._tls = tls
        self._others = others
        self._speaks: Protocol = connection

    def connectionMade(self) -> None:
        self._speaks.makeConnection(cast(Any, self.transport))

    def handshakeCompleted(self) -> None:
        other = self._others.get(self._tls.agreed(self.transport))
        if other is None:
            self._connection.handshakeCompleted()
            return
        self._connection.hand_over()
        self._speaks = other(self.transport, self._connection.address)
        self._speaks.makeConnection(cast(Any, self.transport))

    def dataReceived(self, data: bytes) -> None:
        self._speaks.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._speaks.connectionLost(reason)


class _PeerFactory(Factory):
    """Builds the protocols inside TLS."""

    noisy = False

    def __init__(self, admission: ConnectionLimits, tls: PeerTLS, others: Others) -> None:
        self._admission = admission
        self._tls = tls
        self._others = others

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        connection = self._admission.connection(host_of(addr), int(getattr(addr, "port", 0) or 0))
        return _AlpnSwitch(connection, self._tls, self._others) if self._others else connection


class Listener(Service):
    """Listens at the configured address; ``port`` is 0 until it is bound.

    ``relay(transport, address)`` returns the protocol for a connection of the API relay; without it such connections
    are not accepted. ``streams`` has the same for other protocols. Starting raises CannotListenError for a port in use.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        listen: str,
        tls: PeerTLS,
        admission: ConnectionLimits,
        relay: Callable[[object, str], Protocol] | None = None,
        *,
        streams: Others = _NO_STREAMS,
    ) -> None:
        self._reactor = reactor
        self._listen = listen
        self._tls = tls
        self._admission = admission
        self._others: Others = {**streams, **({HTTP: relay} if relay is not None else {})}
        self._listening: IListeningPort | None = None
        self.bound = Gate()
        """Opens when the port is bound."""

    @property
    def port(self) -> int:
        if self._listening is None:
            return 0
        return int(getattr(self._listening.getHost(), "port", 0) or 0)

    def startService(self) -> None:
        super().startService()
        creator = self._tls.server_creator()
        behind = _PeerFactory(self._admission, self._tls, self._others)
        factory = LimitedFactory(
            self._admission, BoundedTLS(creator, False, behind, self._reactor, admission=self._admission)
        )
        endpoint = server_endpoint(self._reactor, self._listen)
        # Twisted's server endpoints bind at once (defer.execute), so a failure is here before listen() returns.
        failures: list[Failure] = []
        endpoint.listen(factory).addCallbacks(self._bound, failures.append)
        if failures:
            failures[0].raiseException()

    def _bound(self, port: IListeningPort) -> None:
        self._listening = port
        self.bound.open()
        self._log.info("peers may connect to {address}", address=address_text(port.getHost()))

    def stopService(self) -> Deferred[None]:
        super().stopService()
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        return maybeDeferred(listening.stopListening).addCallback(lambda _: None)
