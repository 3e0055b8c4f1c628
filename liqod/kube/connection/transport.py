"""Connections to one API server: TLS policy, endpoint, pools, and error messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from twisted.internet import ssl
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectionClosed, ConnectionRefusedError, DNSLookupError, TimeoutError
from twisted.internet.interfaces import IConsumer, IOpenSSLClientConnectionCreator, IReactorTime, IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

from liqod.flow.connections.handshake import BoundedClient
from liqod.kube.connection.bounded_heads import BoundedPool
from liqod.kube.connection.config import ClientConfig, ConfigError
from liqod.kube.errors import Unreachable

CONNECT_TIMEOUT: Final = 10.0
"""Seconds; Linux itself gives up after two minutes (tcp(7), tcp_syn_retries)."""
IN_FLIGHT: Final = 32
"""Maximum number of concurrent requests (see ``concurrency_limit``), and of idle connections in the pool: a burst then
does not open and close connections."""
CACHED_FOR: Final = 60
"""Seconds an idle connection is kept: less than the 90 s after which kube-apiserver closes it (``IdleTimeout``), so
that a request does not race with the close."""

MAX_CHAIN: Final = 4
"""Certificates between an API server's and a CA: each costs a signature to verify, and a peer chooses the keys."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\s*", re.DOTALL)


def tls_creator(config: ClientConfig, host: str) -> IOpenSSLClientConnectionCreator:
    """Return the creator of TLS connections to ``host``; create it once, because its context is costly.

    The server's certificate must chain to the CA and name ``host`` (DNS name or IP address) or ``tls_server_name``.
    Raises ConfigError for certificates or keys that cannot be read.
    """
    extra: dict[str, Any] = {"verifyDepth": MAX_CHAIN}
    try:
        own = None
        if config.client_cert_pem and config.client_key_pem:
            own = ssl.PrivateCertificate.loadPEM(config.client_cert_pem + b"\n" + config.client_key_pem)
            chain = [ssl.Certificate.loadPEM(pem).original for pem in _PEM.findall(config.client_cert_pem)[1:]]
            if chain:
                extra["extraCertChain"] = chain
        if config.insecure:
            options = ssl.CertificateOptions(
                privateKey=own.privateKey.original if own else None, certificate=own.original if own else None, **extra
            )
            # wrapClientTLS accepts a context factory as well; only its type differs from a connection creator's.
            return cast(IOpenSSLClientConnectionCreator, options)
        trust = None
        if config.ca_pem is not None:
            authorities = [ssl.Certificate.loadPEM(pem) for pem in _PEM.findall(config.ca_pem)]
            if not authorities:
                raise ConfigError(f"the CA bundle for {config.server} holds no certificate (PEM expected)")
            trust = ssl.trustRootFromCertificates(authorities)
        return ssl.optionsForClientTLS(
            config.tls_server_name or host, trustRoot=trust, clientCertificate=own, extraCertificateOptions=extra
        )
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the certificates for {config.server} cannot be used: {type(error).__name__}; "
            "check that CA, client certificate and key are PEM and belong together"
        ) from error


@implementer(IStreamClientEndpoint)
class ApiServerEndpoint:
    """Connects to the API server with TCP keep-alive; ``connection`` is the latest transport, for aborting it.

    ``made`` is called with the protocol of each connection.
    """

    def __init__(self, wrapped: IStreamClientEndpoint, made: Callable[[Any], None] = lambda _: None) -> None:
        self._wrapped = wrapped
        self._made = made
        self.connection: Any = None

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        protocolFactory.noisy = False
        return self._wrapped.connect(protocolFactory).addCallback(self._connected)

    def _connected(self, protocol: Any) -> Any:
        self.connection = protocol.transport
        # Keepalive removes dead connections in the end; Linux sends its first probe after two hours (tcp(7),
        # tcp_keepalive_time), so watches have a deadline of their own.
        for setting in ("setTcpNoDelay", "setTcpKeepAlive"):
            method = getattr(protocol.transport, setting, None)
            if method is not None:
                method(True)
        self._made(protocol)
        return protocol

    def __repr__(self) -> str:
        return "<API server endpoint>"


@implementer(IAgentEndpointFactory)
class _Fixed:
    """Returns the same endpoint for every URI: there is one server."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._endpoint


class Connections:
    """Connections to one server: a pool for requests (``agent``), and a separate connection for each stream."""

    def __init__(self, config: ClientConfig, reactor: IReactorTime) -> None:
        self.uri = URI.fromBytes(config.server.encode("ascii"))
        if self.uri.scheme not in (b"https", b"http") or not self.uri.host:
            raise ConfigError(f"{config.server!r} is not the URL of an API server (https://host:port expected)")
        self._config = config
        self._reactor = reactor
        self._creator: IOpenSSLClientConnectionCreator | None = None
        if self.uri.scheme == b"https" and config.dial is None:
            self._creator = tls_creator(config, self.uri.host.decode("ascii"))
        self._made: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._pool: HTTPConnectionPool
        self.agent: IAgent
        self._begin()

    def _begin(self) -> None:
        """Start with an empty pool."""
        self._pool = BoundedPool(self._reactor, persistent=True)
        self._pool.maxPersistentPerHost = IN_FLIGHT
        self._pool.cachedConnectionTimeout = CACHED_FOR
        # Retries are the client's decision: only it knows whether a verb is idempotent (a create is not).
        self._pool.retryAutomatically = False
        endpoint = ApiServerEndpoint(self._way(), self._remember)
        self.agent = Agent.usingEndpointFactory(self._reactor, _Fixed(endpoint), self._pool)

    def _remember(self, connection: Any) -> None:
        self._made[connection] = self._reactor.seconds()

    def endpoint(self) -> ApiServerEndpoint:
        """Return an endpoint for connections outside the pool (TLS included)."""
        return ApiServerEndpoint(self._way())

    def _way(self) -> IStreamClientEndpoint:
        if self._config.dial is not None:
            return cast(IStreamClientEndpoint, self._config.dial)
        wrapped: IStreamClientEndpoint = HostnameEndpoint(
            self._reactor, self.uri.host.decode("ascii"), self.uri.port, timeout=CONNECT_TIMEOUT
        )
        if self._creator is not None:
            # Not wrapClientTLS: the server may be a peer's, and its certificates as many and as large as OpenSSL reads.
            wrapped = BoundedClient(self._creator, wrapped)
        return wrapped

    def stream_agent(self) -> tuple[IAgent, Callable[[], None]]:
        """Return an agent for one streamed response, and the function that aborts its connection at once."""
        endpoint = self.endpoint()

        def abort() -> None:
            if endpoint.connection is not None:
                # Not loseConnection(): over a dead path its TLS close would wait for an answer that never comes.
                endpoint.connection.abortConnection()

        pool = BoundedPool(self._reactor, persistent=False)
        return Agent.usingEndpointFactory(self._reactor, _Fixed(endpoint), pool), abort

    def drop(self, before: float, *, idle: bool) -> None:
        """Abort pooled connections made before a time; with ``idle`` only those without a request in progress.

        Aborts without a TLS or TCP close handshake: the other side of an interrupted path does not answer. Later
        requests use new connections.
        """
        old = [connection for connection, made in self._made.items() if made < before]
        if idle:
            old = [connection for connection in old if connection.state == "QUIESCENT"]
        if not old:
            return
        # An aborted connection remains in its HTTPConnectionPool until the next turn of the reactor.
        pool = self._pool
        self._begin()
        pool.cachedConnectionTimeout = 0
        pool.closeCachedConnections()
        for connection in old:
            self._made.pop(connection, None)
            connection.abort()

    def close(self) -> Deferred[None]:
        """Close idle connections now, and those in use when they return to the pool."""
        self._pool.cachedConnectionTimeout = 0
        # Not the pool's own Deferred: to cancel that fails the one of each connection, which nobody waits for.
        closed: Deferred[None] = Deferred()
        self._pool.closeCachedConnections().addBoth(lambda _: None if closed.called else closed.callback(None))
        return closed


@implementer(IBodyProducer)
class Body:
    """Request body of known length, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: the body was written in full."""

    def resumeProducing(self) -> None:
        """Do nothing: the body was written in full."""

    def stopProducing(self) -> None:
        """Do nothing: the body was written in full."""


class TimedOut(Exception):
    """A request exceeded its time limit."""


def innermost(error: BaseException) -> BaseException:
    """Return the cause inside the wrappers of twisted.web's client."""
    reasons = getattr(error, "reasons", None)
    while reasons:
        error = reasons[-1].value
        reasons = getattr(error, "reasons", None)
    return error


def is_tls_failure(error: BaseException) -> bool:
    """Return whether a connection failed in TLS (certificate, protocol); a retry does not help."""
    module = type(innermost(error)).__module__
    return module.startswith(("OpenSSL", "service_identity"))


def was_never_sent(error: BaseException) -> bool:
    """Return whether a request certainly did not reach the server."""
    return isinstance(error, ConnectError | DNSLookupError) or type(error).__name__ in (
        "RequestNotSent",
        "ConnectingCancelledError",
    )


def unreachable(server: str, what: str, error: BaseException) -> Unreachable:
    """Return the error of a request without a response; it names request, server, cause and what to check."""
    cause = innermost(error)
    if isinstance(cause, ConnectionRefusedError):
        why = "it refuses connections; is it running, and is the address right?"
    elif isinstance(cause, DNSLookupError):
        why = "its name cannot be resolved"
    elif isinstance(cause, TimedOut | TimeoutError | CancelledError):
        why = "it did not answer in time"
    elif is_tls_failure(error):
        why = (
            f"TLS failed ({_tls_text(cause)}); does its certificate chain to the configured CA and name this address, "
            "and does it accept our client certificate?"
        )
    elif isinstance(cause, ConnectionClosed):
        why = "the connection was closed before the answer was complete"
    else:
        why = f"{type(cause).__name__}: {cause}"
    return Unreachable(f"{what}: no answer from {server}: {why}")


def _tls_text(cause: BaseException) -> str:
    for argument in cause.args:
        if isinstance(argument, list) and argument and isinstance(argument[0], tuple):
            return str(argument[0][-1])
    return str(cause)[:200] or type(cause).__name__
