"""Runs the API of virtual nodes: listener, serving certificate, and the client CA.

Virtual nodes share one listener; the pod in a request decides which node it is for.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import Reactor, utc_now
from liqod.flow.connections.handshake import https
from liqod.flow.connections.listening import server_endpoint
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import CONFIGMAPS
from liqod.kubelet.api.answers import Answers
from liqod.kubelet.api.callers import Callers
from liqod.kubelet.api.certificate import Certificate, Shown, own
from liqod.kubelet.api.nodes import Nodes
from liqod.kubelet.api.server import Channels
from liqod.kubelet.api.tls import Serving
from liqod.kubelet.api.usage import Usage
from liqod.model.ids import Key
from liqod.model.objects.meta import Object

AUTHENTICATION: Final = Key("kube-system", "extension-apiserver-authentication")
"""The ConfigMap in which the API server publishes its client CA (Kubernetes, "Configure the Aggregation Layer")."""
CLIENT_CA: Final = "client-ca-file"
RETRY: Final = 10.0
COMPLAIN: Final = 60.0


class ClientCA(Object, frozen=True):
    """A ConfigMap that holds a client CA."""

    data: dict[str, str] = {}


class NodeAPI(MultiService):
    """Serves the API of virtual nodes on ``listen`` (an endpoint string).

    ``address`` is the InternalIP of the nodes. A failed bind is retried after ``RETRY`` seconds.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        nodes: Nodes,
        *,
        listen: str,
        address: str,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._listen = listen
        self.bound_port: Latest[int] = Latest(0)
        """The bound port; 0 before."""
        self._answers = Answers(reactor, nodes, Callers(client, reactor), Usage(reactor, nodes))
        self._serving = Serving(*_pair(own(address, utc_now())))
        self._listener = https(self._serving, Channels(self._answers.answer, reactor), reactor, self._refused)
        self._certificate = Certificate(reactor, client, address, lambda shown: self._serving.show(*_pair(shown)))
        self._address = address
        self._listening: IListeningPort | None = None
        self._attempt: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._said = ""
        self._complained = float("-inf")
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._authorities: Informer[ClientCA] = Informer(
            client,
            CONFIGMAPS,
            ClientCA,
            reactor,
            namespace=AUTHENTICATION.namespace,
            fields=f"metadata.name={AUTHENTICATION.name}",
        )
        self._authorities.subscribe(self._trust)
        self._authorities.setServiceParent(self)

    @property
    def port(self) -> int:
        """The bound port; 0 before."""
        return int(getattr(self._listening.getHost(), "port", 0)) if self._listening is not None else 0

    def startService(self) -> None:
        super().startService()
        self._bind()
        if self._address:
            self._tasks.spawn(self._keep_certificate(), "keeping the certificate of the API of virtual nodes")

    def stopService(self) -> Deferred[Any]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempt is not None:
            self._attempt.cancel()
        stopping = maybeDeferred(super().stopService)
        listening, self._listening = self._listening, None
        if listening is not None:
            stopping.addBoth(lambda _: maybeDeferred(listening.stopListening))
        return stopping.addBoth(lambda _: self._hang_up())

    def _hang_up(self) -> Deferred[None]:
        self._answers.abort()
        self._listener.hang_up()
        # Twisted reports connectionLost of aborted connections in a later iteration of the reactor.
        return deferLater(self._reactor, 0, lambda: None)

    async def _keep_certificate(self) -> None:
        while self.running:
            pause = await self._certificate.renew()
            # A renewal that stopService cancelled looks like a failed one.
            if self.running:
                await deferLater(self._reactor, pause)

    def _trust(self, key: Key, old: ClientCA | None, new: ClientCA | None) -> None:
        if key != AUTHENTICATION or new is None:
            return
        try:
            self._serving.trust(new.data.get(CLIENT_CA, "").encode())
        except ValueError as error:
            self._log.warn("the config map {key} holds no client CA that can be used: {why}", key=str(key), why=error)

    def _refused(self, reason: str, source: str, message: str) -> None:
        """Log refused connections, at most once in ``COMPLAIN`` seconds."""
        now = self._reactor.seconds()
        if now - self._complained >= COMPLAIN:
            self._complained = now
            self._log.warn(
                "{listen}: connections of {source} are turned away ({reason}: {message})",
                listen=self._listen,
                source=source,
                reason=reason,
                message=message,
            )

    def _bind(self) -> None:
        self._timer = None
        endpoint = server_endpoint(self._reactor, self._listen)
        self._attempt = maybeDeferred(endpoint.listen, self._listener).addCallbacks(self._bound, self._not_bound)

    def _bound(self, listening: IListeningPort) -> None:
        self._attempt = None
        self._listening = listening
        self._log.info("the API of virtual nodes is served on {address}", address=listening.getHost())
        self.bound_port.set(self.port)

    def _not_bound(self, failure: Failure) -> None:
        self._attempt = None
        if not self.running or failure.check(CancelledError):
            return
        sentence = failure.getErrorMessage()
        if sentence != self._said:
            self._said = sentence
            self._log.warn("kubelet.listen = {listen}: {error}; tried again", listen=self._listen, error=sentence)
        self._timer = self._reactor.callLater(RETRY, self._bind)


def _pair(shown: Shown) -> tuple[bytes, bytes]:
    return shown.certificate_pem, shown.key_pem
