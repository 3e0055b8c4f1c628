"""Runs the API of virtual nodes: listener, serving certificate, and the client CA.

The pod in a request decides which node it is for; for the pages of a node, the port does (``ports``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, utc_now
from liqod.flow.connections.handshake import https
from liqod.flow.connections.refused import RefusedConnections
from liqod.flow.tasks import Tasks
from liqod.identity.serving import validity
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import CONFIGMAPS
from liqod.kubelet.api.answers import Answers
from liqod.kubelet.api.callers import Callers
from liqod.kubelet.api.certificate import Certificate, Shown, self_signed
from liqod.kubelet.api.node_ports import NodePorts, used_ports
from liqod.kubelet.api.nodes import Nodes
from liqod.kubelet.api.server import Channels
from liqod.kubelet.api.tls import ServingTls
from liqod.kubelet.api.usage import Usage
from liqod.model.ids import Key
from liqod.model.objects.meta import Object

AUTHENTICATION: Final = Key("kube-system", "extension-apiserver-authentication")
"""The ConfigMap in which the API server publishes its client CA (Kubernetes, "Configure the Aggregation Layer")."""
CLIENT_CA: Final = "client-ca-file"


class ClientCA(Object, frozen=True):
    """A ConfigMap that holds a client CA."""

    data: dict[str, str] = {}


class NodeAPI(MultiService):
    """Serves the API of virtual nodes on ``kubelet.listen`` of the settings.

    ``address`` is the InternalIP of the nodes, for which the signer of the settings signs certificates. One that
    ``stands_by`` asks for none, and another daemon may have the ports.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        nodes: Nodes,
        *,
        settings: Settings,
        address: str,
        stands_by: bool = False,
    ) -> None:
        super().__init__()
        listen, signer = settings.kubelet.listen, settings.kubelet.signer
        self._reactor = reactor
        self.refused = RefusedConnections(reactor, listen)
        self._answers = Answers(reactor, nodes, Callers(client, reactor), Usage(reactor, nodes))
        self._serving = ServingTls(*_pair(self_signed(address, utc_now())))
        self.certificate_end: datetime | None = None
        """When the certificate that the cluster signed ends; None while there is none: nobody looks at another one."""
        self._listener = https(self._serving, Channels(self._answers.answer, reactor), reactor, self.refused.record)
        self._certificate: Certificate | None = None
        if address and not stands_by:
            self._certificate = Certificate(reactor, client, address, self._show, signer=signer)
        self.ports = NodePorts(reactor, listen, self._listener, used=used_ports(settings), stands_by=stands_by)
        self.ports.setServiceParent(self)
        self._answers.ports = self.ports
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
        """The configured port, once it is bound; 0 before."""
        return self.ports.bound.value

    def startService(self) -> None:
        super().startService()
        if self._certificate is not None:
            keeping = self._keep_certificate(self._certificate)
            self._tasks.spawn(keeping, "keeping the certificate of the API of virtual nodes")

    def stopService(self) -> Deferred[Any]:
        return maybeDeferred(super().stopService).addBoth(lambda _: self._hang_up())

    def _hang_up(self) -> Deferred[None]:
        self._answers.abort()
        self._listener.hang_up()
        # Twisted reports connectionLost of aborted connections in a later iteration of the reactor.
        return deferLater(self._reactor, 0, lambda: None)

    def _show(self, shown: Shown) -> None:
        self._serving.show(*_pair(shown))
        self.certificate_end = validity(shown.certificate_pem)[1]

    async def _keep_certificate(self, certificate: Certificate) -> None:
        while self.running:
            pause = await certificate.renew()
            # A renewal that stopService cancelled looks like a failed one.
            if self.running:
                await deferLater(self._reactor, pause)

    def _trust(self, key: Key, old: ClientCA | None, new: ClientCA | None) -> None:
        if key != AUTHENTICATION or new is None:
            return
        try:
            self._serving.trust(new.data.get(CLIENT_CA, "").encode())
        except ValueError as error:
            self._log.warn(
                "the config map {name} holds no client CA that can be used: {error}", name=str(key), error=error
            )


def _pair(shown: Shown) -> tuple[bytes, bytes]:
    return shown.certificate_pem, shown.key_pem
