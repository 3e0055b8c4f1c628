"""Two clusters that peer: a sandbox API server each, a Peering each, over loopback."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar, cast

import attrs
import msgspec
from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import FailTest, TestCase

from liqod.acceptance.stages import AcceptanceRules
from liqod.audit.events import AuditEvent
from liqod.config.schema import AcceptanceSettings, NetworkSettings, PeeringSettings, Settings
from liqod.identity.certs import KeyPair, generate
from liqod.identity.tls import PeerTLS
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NAMESPACES, NODES, SECRETS, VIRTUALNODES
from liqod.model.ids import ClusterID
from liqod.model.names import advertisement_name, tenant_namespace
from liqod.model.objects.api_request import RequestAttributes
from liqod.model.records.offer import AccessGrant, Refusal
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode
from liqod.peering.borrowing.acceptance_loop import ALL, AcceptanceLoop
from liqod.peering.changes import Changes
from liqod.peering.controller import PeeringContext
from liqod.peering.ports import OwnCluster
from liqod.peering.service import Peering
from liqod.peering.session.peer import Peer
from liqod.peering.session.refusal_log import RefusalLog
from tests.waiting import becomes

T = TypeVar("T")


@attrs.frozen
class FakeSighting:
    """A sighting, as discovery would give it."""

    host: str
    port: int
    cluster_id: str = ""
    cluster_name: str = ""
    fingerprint: str = ""
    source: str = attrs.field(default="Manual", kw_only=True)


class FakeLender:
    """A lender that keeps its tenants in a dict; ``refuse`` makes it say no, ``fail`` makes it unable to dismiss."""

    def __init__(self) -> None:
        self.tenants: dict[ClusterID, dict[str, str]] = {}
        self.namespaces: dict[tuple[ClusterID, str], str] = {}
        self.dismissed: list[ClusterID] = []
        self.minted = 0
        self.lifetime = 3600
        self.used: dict[str, Fraction] = {}
        self.refuse: Refusal | None = None
        self.fail: KubeError | None = None

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        if self.refuse is not None:
            raise self.refuse
        self.tenants[peer] = dict(offered)
        self.minted += 1
        return AccessGrant(
            api_url="https://lender:6443",
            ca="ca",
            token=f"token-{self.minted}",
            lifetime=self.lifetime,
            namespace=tenant_namespace(peer),
        )

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> bool:
        if self.refuse is not None:
            raise self.refuse
        is_new = (peer, remote) not in self.namespaces
        self.namespaces[peer, remote] = local
        return is_new

    async def release_namespace(self, peer: ClusterID, remote: str) -> bool:
        return self.namespaces.pop((peer, remote), None) is not None

    async def dismiss(self, peer: ClusterID) -> bool:
        if self.fail is not None:
            raise self.fail
        self.dismissed.append(peer)
        return self.tenants.pop(peer, None) is not None

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        return peer in self.tenants and ask.namespace == tenant_namespace(peer)

    def account_of(self, peer: ClusterID) -> str:
        return f"system:serviceaccount:{tenant_namespace(peer)}:borrower"

    def used_by(self, peer: ClusterID) -> Mapping[str, Fraction]:
        return self.used


class RecordedAudit:
    """Keeps the security events that were recorded."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def of(self, type: str) -> list[AuditEvent]:
        """Return the events of one type."""
        return [event for event in self.events if event.type == type]


class FakeRecorder:
    """Keeps the events that were emitted."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record_event(self, regarding: Any, type: str, reason: str, message: str, source: Any = None) -> None:
        self.reasons.append(reason)


def context_of(clock: Any, peers: Mapping[ClusterID, Any] | None = None, client: Any = None) -> PeeringContext:
    """Return what a controller of peers works with, for one that is tested alone."""
    known = cast(dict[ClusterID, Peer], peers if peers is not None else {})
    return PeeringContext(client=client, clock=clock, peers=known, changes=Changes(), refusals=RefusalLog(clock))


def use_rules(loop: AcceptanceLoop, rules: AcceptanceRules) -> None:
    """Replace the rules of a loop and have all offers decided again, as a start with other settings does."""
    loop._rules = rules
    loop._touched.update(loop._tracked)
    loop.enqueue(ALL)


def settings(**peering: Any) -> Settings:
    listen = "tcp:0:interface=127.0.0.1"
    own = PeeringSettings(listen=listen, **{"ping_interval": 1.0, **peering})
    return Settings(peering=own, network=NetworkSettings(mode="none"))


def keypair(cluster_id: str) -> KeyPair:
    return generate(ClusterID(cluster_id), datetime.datetime.now(datetime.UTC))


class PeerCluster:
    """One cluster: its API server outlives its daemon, which can be started and stopped."""

    def __init__(
        self, name: str, chosen: Settings | None = None, key: KeyPair | None = None, ca: bytes | None = None
    ) -> None:
        self.ca = ca
        self.id = ClusterID(name)
        self.name = name
        self.settings = chosen or settings()
        self.key = key or keypair(name)
        self.room = FakeLender()
        self.events = FakeRecorder()
        self.audit = RecordedAudit()
        self.epoch = 1

    async def make(self, cpu: str = "10") -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.cluster = SandboxCluster(reactor, self.name)
        self.cluster.listen_plain(self.reactor)
        self.cluster.startService()
        self.admin = self.client()
        await manifests.ensure(self.admin)
        await self.admin.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await self.add_node("one", cpu)

    def client(self) -> Client:
        return Client(config_of(self.cluster), self.reactor)

    async def add_node(self, name: str, cpu: str) -> None:
        await self.admin.create(NODES, {"metadata": {"name": name}})
        await self.set_cpu(name, cpu)

    async def set_cpu(self, name: str, cpu: str) -> None:
        resources = {"cpu": cpu, "memory": "10Gi", "pods": "100"}
        status = {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.admin.patch(NODES, name, {"status": status}, subresource="status")

    async def start(self) -> None:
        self.daemon = self.client()
        self.informers = Informers(self.daemon, self.reactor)
        self.peering = Peering(
            reactor=self.reactor,
            client=self.daemon,
            informers=self.informers,
            settings=self.settings,
            cluster=OwnCluster(id=self.id, name=self.name, tls=PeerTLS(self.key, self.ca), epoch=self.epoch),
            tenants=self.room,
            recorder=self.events,
            audit=self.audit,
        )
        self.epoch += 1
        self.informers.startService()
        self.peering.startService()
        await self.informers.when_synced()

    async def stop(self) -> None:
        await self.peering.stopService()
        await self.informers.stopService()
        await self.daemon.close()

    def seen(self, nameless: bool = False, fingerprint: str = "") -> FakeSighting:
        return FakeSighting("127.0.0.1", self.peering.port, "" if nameless else self.id, self.name, fingerprint)

    def sees(self, *others: PeerCluster) -> None:
        self.peering.update_candidates([other.seen() for other in others])

    async def trust(self, other: PeerCluster) -> None:
        body = {"metadata": {"name": other.id}, "spec": {"clusterID": other.id, "fingerprint": other.key.fingerprint}}
        await self.admin.apply(FOREIGNCLUSTERS, body, manager="liqodctl")

    async def cluster_record(self, other: PeerCluster) -> ForeignCluster:
        return await self.admin.get(FOREIGNCLUSTERS, other.id, view=ForeignCluster)

    async def offer_record(self, other: PeerCluster) -> Advertisement:
        return await self.admin.get(ADVERTISEMENTS, advertisement_name(other.id), view=Advertisement)

    async def virtual_node(self, other: PeerCluster) -> VirtualNode:
        return await self.admin.get(VIRTUALNODES, other.id, tenant_namespace(other.id), view=VirtualNode)

    async def credential(self, other: PeerCluster) -> dict[str, Any]:
        secret = await self.admin.get(SECRETS, "liqo-credential", tenant_namespace(other.id))
        data: dict[str, Any] = secret["data"]
        return data


def config_of(cluster: SandboxCluster) -> Any:
    from liqod.kube.connection.config import ClientConfig

    token = cluster._admin_token
    return ClientConfig(server=cluster.url, ca_pem=None, client_cert_pem=None, client_key_pem=None, token=lambda: token)


def accepting(policy: Any, maximum: int = 5, **peering: Any) -> Settings:
    return msgspec.structs.replace(settings(**peering), acceptance=AcceptanceSettings(policy=policy, maximum=maximum))


class PairCase(TestCase):
    """A test with clusters."""

    timeout = 60
    patience = 10.0

    async def side(
        self,
        name: str,
        chosen: Settings | None = None,
        cpu: str = "10",
        key: KeyPair | None = None,
        ca: bytes | None = None,
    ) -> PeerCluster:
        side = PeerCluster(name, chosen, key, ca)
        await side.make()

        async def end() -> None:
            if side.peering.running:
                await side.stop()
            await side.admin.close()
            await side.cluster.stop()

        self.addCleanup(lambda: Deferred.fromCoroutine(end()))
        await side.start()
        return side

    async def pair(self, one: Settings | None = None, two: Settings | None = None) -> tuple[PeerCluster, PeerCluster]:
        return await self.side("alpha", one), await self.side("beta", two)

    async def becomes(self, check: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Wait until the answer is true; a missing object is a reason to wait."""
        return await becomes(check, what, self.patience)

    async def pause(self, seconds: float) -> None:
        from twisted.internet import reactor

        await deferLater(reactor, seconds)

    async def phase(self, side: PeerCluster, other: PeerCluster, phase: str) -> ForeignCluster:
        async def check() -> ForeignCluster | None:
            record = await side.cluster_record(other)
            self.last = record.status
            return record if record.status.phase == phase else None

        try:
            return await self.becomes(check, f"{other.name} is {phase} at {side.name}")
        except FailTest as error:
            raise FailTest(f"{error}; status {getattr(self, 'last', None)}") from None

    async def is_reported(self, side: PeerCluster, reason: str) -> None:
        """Wait for an event; the daemon records it after the write that another client sees already."""

        async def seen() -> bool:
            return reason in side.events.reasons

        await self.becomes(seen, f"the event {reason} at {side.name}")

    async def peered(self, borrower: PeerCluster, lender: PeerCluster) -> None:
        async def check() -> bool:
            await borrower.credential(lender)
            node = await borrower.virtual_node(lender)
            return node.spec.node_name.startswith("liqo-")

        await self.becomes(check, f"{borrower.name} borrows from {lender.name}")
