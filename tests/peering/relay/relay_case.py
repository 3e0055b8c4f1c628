"""A relay with its listener, and callers, on real sockets."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from liqod.flow.tasks import Tasks
from liqod.hosting.tenants.rights import permits, user_of
from liqod.identity.tls import PeerTLS
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig, over_relay
from liqod.kube.resources import Resource
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.api_request import RequestAttributes
from liqod.peering.relay.dial import RelayEndpoint
from liqod.peering.relay.service import Relay
from liqod.peering.session.connection_limits import ConnectionLimits
from liqod.peering.session.listener import Listener
from liqod.peering.session.protocol import PeerConnection
from tests.peering.clusters import keypair

ROME = ClusterID("rome")
SPACE = "shop-rome"
CLUSTERROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)


class Times:
    ping_interval = 1.0
    handshake_timeout = 5.0


class Owner:
    """Nobody who would let a session in."""

    admission: ConnectionLimits

    def closed(self, connection: PeerConnection) -> None:
        self.admission.closed(connection)


class RelayCase(TestCase):
    """A relay before the API server that ``lender`` speaks with; ``granted`` says which namespace is whose."""

    timeout = 60

    async def begin(self, config: ClientConfig) -> None:
        """Listen as the lender that has this API server."""
        from twisted.internet import reactor

        self.reactor = cast(Any, reactor)
        self.refused: Counter[str] = Counter()
        self.granted = {SPACE: "rome"}
        self.tls = PeerTLS(keypair("lender"))
        self.rome = PeerTLS(keypair("rome"))
        self.trusted = {self.rome.keypair.fingerprint: ROME}
        self.lender = Client(config, self.reactor)
        self.tasks = Tasks()
        self.relay = Relay(
            client=self.lender,
            clock=self.reactor,
            tls=self.tls,
            rights=self,
            callers=self,
            refusals=self,
            tasks=self.tasks,
        )
        self.owner = Owner()
        admission = self.owner.admission = ConnectionLimits(self.connection, 10, self.record, self.reactor)
        self.listener = Listener(self.reactor, "tcp:0:interface=127.0.0.1", self.tls, admission, self.relay.protocol)
        self.listener.startService()
        self.addCleanup(self.end)
        self.clients: list[Client] = []

    def connection(self, address: str) -> PeerConnection:
        return PeerConnection(
            "listener", cast(Any, self.owner), tls=self.tls, clock=self.reactor, times=Times(), address=address
        )

    async def end(self) -> None:
        for client in (*self.clients, self.lender):
            await client.close()
        self.relay.close()
        await self.listener.stopService()
        await self.tasks.stopService()
        await deferLater(self.reactor, 0.05)

    def caller(self, key: Fingerprint) -> ClusterID | None:
        return self.trusted.get(key)

    def record(self, reason: str, source: str, message: str) -> None:
        self.refused[reason] += 1

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        return permits(peer, ask, self.granted.get(ask.namespace, ""))

    def account_of(self, peer: ClusterID) -> str:
        return user_of(peer)

    def borrower(self, tls: PeerTLS | None = None, key: str = "", port: int = 0) -> Client:
        """Return a client of a borrower: rome's, unless another key is given."""
        address = f"127.0.0.1:{port or self.listener.port}"
        keys = [key or self.tls.keypair.fingerprint]
        dial = RelayEndpoint(self.reactor, tls or self.rome, lambda: [address], lambda: keys)
        client = Client(over_relay("lender", dial), self.reactor, timeout=10.0)
        self.clients.append(client)
        return client

    async def until(self, check: Any) -> None:
        """Wait until something holds."""
        for _ in range(500):
            if check():
                return
            await deferLater(self.reactor, 0.01)
        self.fail("it did not happen")


class ByteCollector(Protocol):
    """Keeps what comes; ``lost`` fires at the end."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.lost.called:
            self.lost.callback(None)
