"""Peers tell each other their networks: what the fabric of one writes down, the record of the other shows."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import NetworkSettings, Settings
from liqod.fabric.control.recorded_agent import REPORT_WITHIN
from liqod.kube.resources import NETWORKCONFIGS
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import ObjectMeta, to_dict
from liqod.model.records.network import (
    UNDECIDED,
    Decision,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelSide,
)
from liqod.peering.controller import PACE
from liqod.peering.exchange.network import ALWAYS_SAYS, ANSWER_WITHIN, DECIDES_WITHIN, SETTLE, NetworkExchange
from liqod.peering.session.peer import Peer
from liqod.wire.events import Network, NetworkAck
from tests.peering.clusters import PairCase, PeerCluster, context_of, settings

ALPHA = TunnelSide(
    pod_cidrs=["10.201.0.0/16", "fd00:1::/48"],
    external_cidr="10.70.0.0/20",
    endpoints=["192.0.2.1:5871"],
    public_key="xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    mtu=1420,
    next_key="HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=",
)
BETA = msgspec.structs.replace(
    ALPHA, endpoints=[], public_key="TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=", next_key=""
)
SEEN = Subnets(pod_cidrs=["10.64.0.0/16", "fd00:1::/48"], external_cidr="10.65.0.0/20", known_key=ALPHA.next_key)


def networked(mode: Any = "wireguard") -> Settings:
    """Return settings with a fabric, or without."""
    return msgspec.structs.replace(settings(), network=NetworkSettings(mode=mode))


class ExchangeTests(PairCase):
    """Two clusters with a session; the test writes what their fabrics would."""

    async def connect(self, one: Settings, two: Settings) -> tuple[PeerCluster, PeerCluster]:
        """Return two clusters that trust each other."""
        alpha, beta = await self.pair(one, two)
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)

        async def connected() -> bool:
            return bool(alpha.peering.sessions()) and bool(beta.peering.sessions())

        await self.becomes(connected, "a session")
        return alpha, beta

    async def tells(self, side: PeerCluster, other: PeerCluster, local: TunnelSide, remap: Subnets) -> None:
        """Write what a cluster tells another."""
        spec = to_dict(NetworkConfigSpec(cluster_id=other.id, local=local, remap=remap))
        body = {
            "apiVersion": NETWORKCONFIGS.api_version,
            "kind": NETWORKCONFIGS.kind,
            "metadata": {"name": other.id},
            "spec": spec,
        }
        await side.admin.apply(NETWORKCONFIGS, body, manager="fabric")

    async def received(self, side: PeerCluster, other: PeerCluster, remote: TunnelSide, ack: Subnets) -> None:
        """Wait until a cluster's record shows what the other reported."""

        async def check() -> bool:
            record: NetworkConfig = await side.admin.get(NETWORKCONFIGS, other.id, view=NetworkConfig)
            return (record.status.remote, record.status.ack) == (remote, ack)

        await self.becomes(check, f"{side.name} knows the network of {other.name}")

    async def test_both_ways(self) -> None:
        """Each side's networks, and how it sees the other's, arrive whole in the other's record."""
        alpha, beta = await self.connect(networked(), networked())
        await self.tells(alpha, beta, ALPHA, SEEN)
        await self.tells(beta, alpha, BETA, Subnets(reason="PoolExhausted", message="no room"))
        await self.received(beta, alpha, ALPHA, SEEN)
        await self.received(alpha, beta, BETA, Subnets(reason="PoolExhausted", message="no room"))

    async def test_changes_and_removals_of_fields(self) -> None:
        """What changes is reported again; a reason that is gone and networks that came replace what was there."""
        alpha, beta = await self.connect(networked(), networked())
        await self.tells(beta, alpha, BETA, SEEN)
        await self.tells(alpha, beta, ALPHA, Subnets(reason="PoolExhausted", message="no room"))
        await self.received(beta, alpha, ALPHA, Subnets(reason="PoolExhausted", message="no room"))
        moved = msgspec.structs.replace(ALPHA, endpoints=[], mtu=1280)
        await self.tells(alpha, beta, moved, SEEN)
        await self.received(beta, alpha, moved, SEEN)

    async def test_who_comes_later_hears_what_was_said_before(self) -> None:
        """What a peer said before there was a record for it is written down when there is one."""
        alpha, beta = await self.connect(networked(), networked())
        await self.tells(alpha, beta, ALPHA, SEEN)
        await self.pause(0.3)
        await self.tells(beta, alpha, BETA, SEEN)
        await self.received(beta, alpha, ALPHA, SEEN)

    async def test_a_new_session_tells_all_again(self) -> None:
        """After a restart of the other side nothing is missing, though nothing changed."""
        alpha, beta = await self.connect(networked(), networked())
        await self.tells(alpha, beta, ALPHA, SEEN)
        await self.tells(beta, alpha, BETA, SEEN)
        await self.received(beta, alpha, ALPHA, SEEN)
        await beta.stop()
        status = {"status": {"remote": None, "ack": None}}
        await beta.admin.patch(NETWORKCONFIGS, alpha.id, status, subresource="status")
        await beta.start()
        alpha.sees(beta)
        beta.sees(alpha)
        await self.received(beta, alpha, ALPHA, SEEN)

    async def test_without_a_fabric_nothing_is_kept(self) -> None:
        """A cluster that leaves the network to others ignores what a peer sends of it, and the session goes on."""
        alpha, beta = await self.connect(networked(), networked("none"))
        await self.tells(beta, alpha, BETA, SEEN)
        await self.tells(alpha, beta, ALPHA, SEEN)
        await self.pause(0.5)
        record: NetworkConfig = await beta.admin.get(NETWORKCONFIGS, alpha.id, view=NetworkConfig)
        self.assertEqual(record.status, NetworkConfigStatus())
        self.assertEqual(len(alpha.peering.sessions()), 1)


class Config:
    """One NetworkConfig: the API server that has it, and the informer that shows it at once."""

    def __init__(self) -> None:
        self.kept = NetworkConfig(metadata=ObjectMeta(name="beta"))
        self.written = 0

    def get(self, key: Key) -> NetworkConfig:
        return self.kept

    def subscribe(self, subscriber: object) -> Any:
        return lambda: None

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    async def patch(self, resource: Any, name: str, patch: dict[str, Any], **_: Any) -> None:
        self.written += 1
        self.kept = msgspec.convert(apply_merge_patch(to_dict(self.kept), patch), NetworkConfig)


class Session:
    """One session with a peer, and what is sent in it."""

    def __init__(self, minor: int = ALWAYS_SAYS) -> None:
        self.minor = minor
        self.sent: list[object] = []

    def send(self, event: object) -> bool:
        self.sent.append(event)
        return True


class PaceTests(SynchronousTestCase):
    """How often a peer has its network written."""

    def setUp(self) -> None:
        self.clock, self.config = Clock(), Config()
        self.peer = Peer(id=ClusterID("beta"), dialer=cast(Any, None), broken_at=0.0)
        context = context_of(self.clock, {self.peer.id: self.peer}, self.config)
        self.exchange = NetworkExchange(context, cast(Any, self.config))
        context.changes.known.open()
        self.exchange.startService()
        self.addCleanup(self.exchange.stopService)

    def test_a_flood(self) -> None:
        """Two networks that take turns, 200 times a second, are written once a second, and the last of them is."""
        for number in range(1000):
            self.exchange.event_received(self.peer, Network(["10.1.0.0/16"], "10.2.0.0/16", [], "", 1280 + number % 2))
            self.clock.advance(0.005)
        self.assertLessEqual(self.config.written, 7)
        self.clock.advance(PACE)
        self.assertEqual(self.config.kept.status.remote.mtu, 1281)

    def test_once_in_each_session(self) -> None:
        """What a peer has got in this session is not sent again until it changes; the next session gets all of it."""
        spec = NetworkConfigSpec(cluster_id=self.peer.id, local=ALPHA, remap=SEEN)
        self.config.kept = msgspec.structs.replace(self.config.kept, spec=spec)
        sessions = [Session(), Session()]
        for session in sessions:
            self.peer.session = cast(Any, session)
            for _ in range(3):
                self.successResultOf(Deferred.fromCoroutine(self.exchange.reconcile(self.peer.id)))
        self.assertEqual([[type(event) for event in session.sent] for session in sessions], [[Network, NetworkAck]] * 2)
        moved = msgspec.structs.replace(spec, local=BETA)
        self.config.kept = msgspec.structs.replace(self.config.kept, spec=moved)
        self.successResultOf(Deferred.fromCoroutine(self.exchange.reconcile(self.peer.id)))
        self.assertEqual([type(event) for event in sessions[1].sent[2:]], [Network])

    def test_a_first_exchange(self) -> None:
        """The answer to our network comes a moment after the peer's own: both are written without delay."""
        self.exchange.event_received(self.peer, Network(["10.1.0.0/16"], "10.2.0.0/16", [], "", 1280))
        self.clock.advance(SETTLE)
        self.exchange.event_received(self.peer, NetworkAck(["10.1.0.0/16"], "10.2.0.0/16"))
        self.clock.advance(SETTLE)
        for side in (self.config.kept.status.remote, self.config.kept.status.ack):
            self.assertEqual(side.external_cidr, "10.2.0.0/16")

    def silence_of(self, minor: int) -> float:
        """Return after how many seconds of a session a peer that tells nothing counts as one without a tunnel."""
        spec = NetworkConfigSpec(cluster_id=self.peer.id, decision=Decision(mode=UNDECIDED))
        self.config.kept = NetworkConfig(metadata=ObjectMeta(name="beta"), spec=spec)
        self.peer.session = cast(Any, Session(minor))
        self.exchange.enqueue(self.peer.id)
        begin = self.clock.seconds()
        while not self.config.kept.status.silent and self.clock.seconds() < begin + 1000:
            self.clock.advance(1)
        return self.clock.seconds() - begin

    def test_a_peer_that_decides_late(self) -> None:
        """A peer that says it when it has no tunnel may wait for its network agent; one of before never says it."""
        self.assertLess(abs(self.silence_of(ALWAYS_SAYS - 1) - ANSWER_WITHIN), 2)
        self.assertLess(abs(self.silence_of(ALWAYS_SAYS) - DECIDES_WITHIN), 2)
        self.assertGreater(DECIDES_WITHIN, REPORT_WITHIN + 30)
