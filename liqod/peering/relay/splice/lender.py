"""The lender's side of streams: its tenants' pods come to a port of this daemon, and each gets a stream to its home.

Whose a connection is follows from its source address alone: the pod that has it, and the tenant of its namespace.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure

from liqod.flow.connections.listening import plain_host
from liqod.flow.connections.port_listener import PortListener
from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.identity.tls import KEPT as KEPT_PROTOCOL
from liqod.identity.tls import TO_API
from liqod.model.ids import ClusterID
from liqod.model.records.offer import Refusal
from liqod.peering.ports import TenantPods
from liqod.peering.relay.splice.kept import KeptStreams
from liqod.peering.relay.splice.limits import (
    ASK_AGAIN,
    FIRST_BYTE,
    IDLE,
    KEPT,
    MOST_OPEN,
    PER_POD,
    WAIT,
    WAITING,
    StreamSituation,
    refusal,
)
from liqod.peering.relay.splice.peers import StreamPeers
from liqod.peering.relay.splice.stream import FirstSpeaker, Refused, StreamBudget, StreamEnd
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import SPLICE, PeerConnection
from liqod.wire.events import KeepStreams, StreamsKept

LOOK: Final = 15.0
"""Seconds between two looks at which tenants need streams."""


class IdleStream(StreamEnd):
    """A stream to a tenant's home until a pod takes it; home says nothing before."""

    def opened(self) -> None:
        self.limit.start(IDLE, self.end)


class PodConnection(FirstSpeaker):
    """The connection of a pod; its first bytes make that a stream is looked for."""

    def __init__(
        self,
        peers: StreamPeers,
        budget: StreamBudget,
        closed: Callable[[StreamEnd], object],
        spoke: Callable[[FirstSpeaker], object],
    ) -> None:
        super().__init__(peers.reactor, budget, closed, spoke)
        self.host = ""

    def opened(self) -> None:
        self.limit.start(FIRST_BYTE, self.abort)


@attrs.define(kw_only=True, eq=False)
class _Tenant:
    """What one tenant has: its pods' connections, idle streams to its home, and what was asked for in which session."""

    budget: StreamBudget
    kept: KeptStreams
    pods: set[PodConnection] = attrs.Factory(set)
    streams: dict[IdleStream, frozenset[str]] = attrs.Factory(dict)
    waiting: deque[PodConnection] = attrs.Factory(deque)
    by_pod: Counter[str] = attrs.Factory(Counter)
    asked_in: PeerConnection | None = None
    asked: int = 0
    asked_at: float = 0.0
    granted: int = 0

    def idle(self) -> list[IdleStream]:
        """Return the streams that no pod has, the newest last."""
        return [one for one in self.streams if one.is_idle]


class LenderStreams(MultiService):
    """Streams of all tenants; ``listen`` is where pods come, as an endpoint; empty: nowhere, and none are asked for."""

    def __init__(self, peers: StreamPeers, pods: TenantPods | None, listen: str) -> None:
        super().__init__()
        self._peers = peers
        self._pods = pods
        self._tenants: dict[ClusterID, _Tenant] = {}
        self._timer = Timer(peers.reactor)
        self.port: Latest[int] = Latest(0)
        """The port at which pods come; 0 while there is none."""
        if listen and pods is not None:
            listener = PortListener(
                peers.reactor, [listen], _PodFactory(self), service="home's API server", setting="hosting.home-api"
            )
            listener.setServiceParent(self)
            self.port = listener.bound

    def startService(self) -> None:
        super().startService()
        if self.services:
            self._look()

    def stopService(self) -> Deferred[Any]:
        self._timer.cancel()
        for tenant in list(self._tenants.values()):
            self._end(tenant)
        stopped: Deferred[Any] = super().stopService()
        return stopped

    @property
    def clock(self) -> IReactorTime:
        """The clock of time-outs."""
        return self._peers.reactor

    def _of(self, peer: ClusterID) -> _Tenant:
        known = self._tenants.get(peer)
        if known is None:
            budget = StreamBudget(self._peers.reactor, self._peers.usages.of(peer))
            dial = self._peers.dial(peer, TO_API, lambda: self._stream(peer))
            known = self._tenants[peer] = _Tenant(budget=budget, kept=KeptStreams(self._peers.reactor, dial))
        return known

    # What is asked of homes.

    def _look(self) -> None:
        self._timer.start(LOOK, self._look)
        for peer in list(self._peers.peers.values()):
            self._ask(peer)

    def session_opened(self, peer: Peer) -> None:
        """Ask for streams in a new session, where the pods of the peer need them."""
        if self.running:
            self._ask(peer)

    def _ask(self, peer: Peer) -> None:
        session, pods = self._peers.session(peer.id), self._pods
        if session is None or pods is None or not self.services:
            return
        hello = session.peer_hello
        if hello is None or SPLICE not in hello.features:
            return
        needed = bool(peer.lending.namespace) and bool(self.port.value) and not pods.has_tunnel(peer.id)
        wanted, known, now = KEPT if needed else 0, self._tenants.get(peer.id), self._peers.reactor.seconds()
        if known is None:
            if not wanted:
                return
            known = self._of(peer.id)
        is_said = known.asked_in is session and known.asked == wanted
        if is_said and (known.granted or not wanted or now - known.asked_at < ASK_AGAIN):
            return
        if session.send(KeepStreams(wanted)):
            known.asked_in, known.asked, known.asked_at = session, wanted, now
            if not wanted:
                known.granted = 0
                known.kept.stop()

    def answered(self, peer: Peer, connection: PeerConnection, event: StreamsKept) -> None:
        """Take home's answer: so many idle streams, of those that were asked for."""
        known = self._tenants.get(peer.id)
        if known is None or known.asked_in is not connection:
            return
        known.granted = min(event.count, known.asked)
        if connection.role == "dialer" and known.granted:
            known.kept.want(known.granted)
        else:
            known.kept.stop()

    def session_closed(self, peer: ClusterID) -> None:
        """Dial no more; what pods use goes on while the key is trusted."""
        known = self._tenants.get(peer)
        if known is not None:
            known.kept.stop()
            known.asked_in, known.granted = None, 0
            for stream in known.idle():
                stream.end()

    def review(self, peer: ClusterID, *, gone: bool = False) -> None:
        """End the streams of a tenant that is one no more, or whose key changed; ``gone``: its record was deleted."""
        known, pinned = self._tenants.get(peer), self._peers.callers.keys(peer)
        if known is None:
            return
        if not pinned or gone:
            self._end(known)
        for stream, keys in list(known.streams.items()):
            if keys.isdisjoint(pinned):
                stream.abort()
        if gone:
            del self._tenants[peer]

    def _end(self, known: _Tenant) -> None:
        known.kept.stop()
        known.asked_in, known.granted = None, 0
        for end in [*known.pods, *known.streams]:
            end.abort()

    # Streams.

    def accept(self, transport: object, address: str) -> TwistedProtocol:
        """Return the protocol of a stream that home dialled."""
        try:
            peer, key = self._peers.of_transport(transport, KEPT_PROTOCOL)
        except Refusal as refused:
            self._peers.refusals.record(refused.reason, address, refused.message)
            return Refused()
        known = self._of(peer)
        idle = len(known.idle())
        situation = StreamSituation(
            has_session=self._peers.session(peer) is not None,
            granted=known.granted,
            idle=idle,
            used=len(known.streams) - idle,
        )
        if (why := refusal(situation)) is not None:
            self._peers.refusals.record(why[0], peer, why[1])
            return Refused()
        return self._stream(peer, frozenset({key}))

    def _stream(self, peer: ClusterID, keys: frozenset[str] = frozenset()) -> IdleStream:
        pinned = frozenset(self._peers.callers.keys(peer))
        return _TenantStream(self, peer, self._of(peer).budget, keys or pinned)

    def stream_opened(self, peer: ClusterID, stream: IdleStream, keys: frozenset[str]) -> None:
        """Give a new stream to the pod that waits longest, or keep it."""
        known = self._of(peer)
        known.streams[stream] = keys
        while known.waiting:
            pod = known.waiting.popleft()
            if not pod.is_over:
                self._join(known, pod, stream)
                return

    def stream_closed(self, peer: ClusterID, stream: IdleStream) -> None:
        """Drop a stream, and have another one dialled where we dial."""
        known = self._tenants.get(peer)
        if known is not None:
            known.streams.pop(stream, None)
            known.kept.left(stream, used=False)

    def _join(self, known: _Tenant, pod: FirstSpeaker, stream: IdleStream) -> None:
        pod.join(stream)
        known.kept.left(stream, used=True)

    # Pods.

    def pod_connection(self, host: str) -> TwistedProtocol | None:
        """Return the protocol for a connection from an address; None where it is refused."""
        peer = None if self._pods is None else self._pods.tenant_at(host)
        if peer is None:
            self._peers.refusals.record(
                "StreamStranger", host, "its address is that of no pod of a peer: is it translated on its way?"
            )
            return None
        known = self._of(peer)
        if len(known.pods) >= MOST_OPEN or known.by_pod[host] >= PER_POD:
            self._peers.refusals.record("TooManyStreams", peer, f"the pod at {host} has or the tenant's have too many")
            return None
        pod = PodConnection(self._peers, known.budget, partial(self._pod_closed, peer), partial(self._pod_spoke, peer))
        pod.host = host
        known.pods.add(pod)
        known.by_pod[host] += 1
        return pod

    def _pod_closed(self, peer: ClusterID, pod: StreamEnd) -> None:
        known = self._tenants.get(peer)
        if known is None or not isinstance(pod, PodConnection) or pod not in known.pods:
            return
        known.pods.discard(pod)
        known.by_pod[pod.host] -= 1
        if known.by_pod[pod.host] <= 0:
            del known.by_pod[pod.host]
        if pod in known.waiting:
            known.waiting.remove(pod)

    def _pod_spoke(self, peer: ClusterID, pod: FirstSpeaker) -> None:
        """Give a pod the newest idle stream of its tenant; it waits where there is none."""
        known = self._of(peer)
        if not isinstance(pod, PodConnection):
            return
        if self._peers.session(peer) is None or not known.granted:
            self._peers.refusals.record("StreamWithoutSession", peer, "home keeps no streams for its pods now")
            pod.abort()
        elif idle := known.idle():
            self._join(known, pod, idle[-1])
        elif len(known.waiting) >= WAITING:
            self._peers.refusals.record("TooManyStreams", peer, f"{WAITING} of its pods wait for a stream")
            pod.abort()
        else:
            known.waiting.append(pod)
            pod.limit.start(WAIT, pod.abort)


class _TenantStream(IdleStream):
    """An idle stream that says when it is there, and when it is gone."""

    def __init__(self, owner: LenderStreams, peer: ClusterID, budget: StreamBudget, keys: frozenset[str]) -> None:
        super().__init__(owner.clock, budget)
        self._owner = owner
        self._peer = peer
        self._keys = keys

    def opened(self) -> None:
        super().opened()
        self._owner.stream_opened(self._peer, self, self._keys)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._owner.stream_closed(self._peer, self)


class _PodFactory(Factory):
    """Builds the protocols of pods' connections."""

    noisy = False

    def __init__(self, streams: LenderStreams) -> None:
        self._streams = streams

    def buildProtocol(self, addr: IAddress | None) -> TwistedProtocol | None:
        return self._streams.pod_connection(plain_host(str(getattr(addr, "host", ""))))
