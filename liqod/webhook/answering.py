"""The side of the webhook that answers: it listens, shows a certificate, and decides by what is known of namespaces.

It needs no lead and writes nothing, so it goes on while one begins or ends; only what it answers by changes.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock
from liqod.flow.connections.handshake import LimitedFactory
from liqod.flow.connections.listening import server_endpoint
from liqod.flow.connections.refused import RefusedConnections
from liqod.flow.errors import ExpectedError
from liqod.identity.serving import Bundle, generate
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading, OffloadingPolicy, policy_of
from liqod.webhook.bodies import Reviews
from liqod.webhook.server import ServingCertificate, factory

COMMON_NAME: Final = "liqod webhook"


class ListenFailed(ExpectedError):
    """The webhook cannot listen on its address; the message has the address and the cause."""


@frozen
class KnownNamespaces:
    """What namespaces want, as caches show it.

    ``offloadings`` has their policies (None: only the label counts), ``enabled`` those with the label.
    """

    settings: Settings
    offloadings: Informer[NamespaceOffloading] | None = None
    enabled: Informer[Any] | None = None

    @property
    def prepared(self) -> bool:
        """Whether the offloading policies of namespaces are known."""
        return self.offloadings is None or self.offloadings.synced

    def is_enabled(self, namespace: str) -> bool:
        """Return whether a namespace is known to be enabled; True also while that cannot be known."""
        known = self.enabled
        return known is None or not known.synced or known.get(Key("", namespace)) is not None

    def policy(self, namespace: str) -> OffloadingPolicy:
        """Return the offloading policy of an enabled namespace."""
        known = self.offloadings.get(Key(namespace, OFFLOADING)) if self.offloadings is not None else None
        return policy_of(namespace, known, self.settings.offloading.spillover)


class Answering:
    """Answers admission reviews by ``known``, which its user replaces, from ``listen`` until ``close``.

    ``bundle`` is the certificate that is shown, None before ``show``. ``wall`` is the clock of certificates.
    """

    def __init__(self, reactor: Reactor, settings: Settings, wall: WallClock) -> None:
        self.known = KnownNamespaces(settings)
        self.bundle: Bundle | None = None
        self.refused = RefusedConnections(reactor, settings.webhook.listen)
        self.reviews = Reviews(reactor, self.refused.record)
        self._reactor = reactor
        self._settings = settings
        self._wall = wall
        self._serving: ServingCertificate | None = None
        self._port: IListeningPort | None = None
        self._listener: LimitedFactory | None = None

    @property
    def port(self) -> int:
        """The bound port; 0 before the webhook listens."""
        return int(getattr(self._port.getHost(), "port", 0)) if self._port is not None else 0

    async def listen(self) -> None:
        """Listen, unless that is done already; raises ListenFailed."""
        if self._port is not None:
            return
        if self._serving is None:
            # The names in it depend on the URL, and that on the port: until both are known, any certificate is used.
            self._serving = ServingCertificate(generate(COMMON_NAME, ["localhost"], self._wall()))
        listen = self._settings.webhook.listen
        try:
            endpoint = server_endpoint(self._reactor, listen)
            self._listener = factory(
                self._serving,
                self._reactor,
                lambda namespace: self.known.policy(namespace),
                lambda: self.known.prepared,
                self._settings.kubelet.evict_after,
                is_enabled=lambda namespace: self.known.is_enabled(namespace),
                refused=self.refused.record,
                reviews=self.reviews,
            )
            port = await endpoint.listen(self._listener)
        except Exception as error:
            why = str(getattr(error, "socketError", None) or error)
            raise ListenFailed(
                f"webhook.listen = {listen!r} cannot be listened on: {why}; end what has the port (`ss -ltnp` says "
                "what), or choose another one; it is tried again"
            ) from error
        self._port = port

    def show(self, bundle: Bundle) -> None:
        """Show a certificate from the next connection on."""
        if self._serving is not None:
            self._serving.replace(bundle)
            self.bundle = bundle

    async def close(self) -> None:
        """Stop listening."""
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
        if self._listener is not None:
            # API servers keep their connections alive: an open one would still be answered by a stopped service.
            self._listener.hang_up()
