"""Connections to one API server: TLS policy, endpoint, pools, and the wording of their failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, cast

from twisted.internet import ssl
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectionClosed, ConnectionRefusedError, DNSLookupError, TimeoutError
from twisted.internet.interfaces import IConsumer, IOpenSSLClientConnectionCreator, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

from liqod.kube.answers import MAX_BODY
from liqod.kube.config import ClientConfig, ConfigError
from liqod.kube.errors import Unreachable
from liqod.kube.wires import PromptTLS, Wires

CONNECT_TIMEOUT: Final = 10.0
IN_FLIGHT: Final = 32
"""Requests under way at once, at most (see ``slots``); as many connections are kept, so that a burst does not make and
break connections."""
CACHED_FOR: Final = 60
"""Seconds an idle connection is kept: less than the 90 s after which the API server closes it, so that a request is not
sent into a connection that is being closed."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\s*", re.DOTALL)


def tls_creator(config: ClientConfig, host: str) -> IOpenSSLClientConnectionCreator:
    """Return what makes TLS connections to ``host``; made once, because its context is costly.

    The server's certificate must chain to the CA and name ``host`` (DNS name or IP address) or ``tls_server_name``.
    Raises ConfigError for certificates or keys that cannot be read.
    """
    extra: dict[str, Any] = {}
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
            # Twisted wraps a context factory by itself; its type is not that of a connection creator.
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
class Endpoint:
    """Connects to the API server, with keep-alive; remembers the connection made last, so that it can be aborted."""

    def __init__(self, wrapped: IStreamClientEndpoint) -> None:
        self._wrapped = wrapped
        self.connection: Any = None

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        protocolFactory.noisy = False
        return self._wrapped.connect(protocolFactory).addCallback(self._connected)

    def _connected(self, protocol: Any) -> Any:
        self.connection = protocol.transport
        for setting in ("setTcpNoDelay", "setTcpKeepAlive"):
            method = getattr(protocol.transport, setting, None)
            if method is not None:
                method(True)
        return protocol

    def __repr__(self) -> str:
        return "<API server endpoint>"


@implementer(IAgentEndpointFactory)
class _Fixed:
    """Hands out one endpoint for every URI: there is one server."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._endpoint


class Connections:
    """The ways to one server: ``wires`` for requests, and a connection of its own for each stream."""

    def __init__(self, config: ClientConfig, reactor: Any) -> None:
        self.uri = URI.fromBytes(config.server.encode("ascii"))
        if self.uri.scheme not in (b"https", b"http") or not self.uri.host:
            raise ConfigError(f"{config.server!r} is not the URL of an API server (https://host:port expected)")
        self._config = config
        self._reactor = reactor
        self._creator: IOpenSSLClientConnectionCreator | None = None
        if self.uri.scheme == b"https" and config.dial is None:
            self._creator = tls_creator(config, self.uri.host.decode("ascii"))
        self.wires = Wires(reactor, self._prompt(), CACHED_FOR)

    def endpoint(self) -> Endpoint:
        """Return an endpoint for connections of their own (TLS included)."""
        if self._config.dial is not None:
            return Endpoint(self._config.dial)
        below = self._socket()
        return Endpoint(wrapClientTLS(self._creator, below) if self._creator is not None else below)

    def _prompt(self) -> Endpoint:
        """Return an endpoint whose connections send each write at once."""
        if self._config.dial is not None:
            return Endpoint(self._config.dial)
        below = self._socket()
        return Endpoint(PromptTLS(self._creator, below) if self._creator is not None else below)

    def _socket(self) -> IStreamClientEndpoint:
        host = self.uri.host.decode("ascii")
        return HostnameEndpoint(self._reactor, host, self.uri.port, timeout=CONNECT_TIMEOUT)

    def stream_agent(self) -> tuple[IAgent, Callable[[], None]]:
        """Return an agent for one long answer, and what aborts its connection without waiting for the other side."""
        endpoint = self.endpoint()

        def abort() -> None:
            if endpoint.connection is not None:
                endpoint.connection.abortConnection()

        pool = HTTPConnectionPool(self._reactor, persistent=False)
        return Agent.usingEndpointFactory(self._reactor, _Fixed(endpoint), pool), abort


@implementer(IBodyProducer)
class Body:
    """A request's body that is at hand: written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to be paused."""

    def resumeProducing(self) -> None:
        """Nothing is left to be resumed."""

    def stopProducing(self) -> None:
        """Nothing is left to be stopped."""


class Collect(Protocol):
    """Gathers an answer's body; ``whole`` fires with it, or fails when the connection broke or it is too large."""

    def __init__(self) -> None:
        self.whole: Deferred[bytes] = Deferred(self._cancelled)
        self._parts: list[bytes] = []
        self._size = 0

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_BODY:
            self._parts.clear()
            self._stop()
            return
        self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if self._size > MAX_BODY:
            self.whole.errback(Unreachable(f"an answer of more than {MAX_BODY >> 20} MiB was not read"))
        elif isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(b"".join(self._parts) if len(self._parts) != 1 else self._parts[0])
        else:
            self.whole.errback(reason)

    def _cancelled(self, _: Deferred[bytes]) -> None:
        self._stop()

    def _stop(self) -> None:
        # The proxy that a response hands out cannot abort, only lose the connection.
        if self.transport is not None:
            self.transport.loseConnection()


class TimedOut(Exception):
    """The time for one request was over."""


def innermost(error: BaseException) -> BaseException:
    """Return the cause inside the wrappers of twisted.web's client."""
    reasons = getattr(error, "reasons", None)
    while reasons:
        error = reasons[-1].value
        reasons = getattr(error, "reasons", None)
    return error


def is_tls_failure(error: BaseException) -> bool:
    """Tell whether a connection failed over certificates or the TLS protocol: trying again does not help."""
    module = type(innermost(error)).__module__
    return module.startswith(("OpenSSL", "service_identity"))


def was_never_sent(error: BaseException) -> bool:
    """Tell whether a request certainly did not reach the server."""
    return isinstance(error, ConnectError | DNSLookupError) or type(error).__name__ in (
        "RequestNotSent",
        "ConnectingCancelledError",
    )


def unreachable(server: str, what: str, error: BaseException) -> Unreachable:
    """Word a failure to get an answer: what was asked, of whom, what went wrong, what to look at."""
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
