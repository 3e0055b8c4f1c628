"""Exchanges network parameters with peers; the fabric validates and uses them.

The fabric writes our parameters into the spec of the peer's NetworkConfig; they are sent when they change and when a
session opens. The peer's parameters are written to the status of the same record; those that arrive before the record
exists are kept in memory until it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from liqod.flow.connections.admission import Bucket
from liqod.flow.controller import After, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import NotFound
from liqod.kube.resources import NETWORKCONFIGS
from liqod.kube.writing.merge_patch import all_fields
from liqod.model.ids import ClusterID, Key
from liqod.model.records.network import NO_TUNNEL_HERE, UNDECIDED, NetworkConfig, Subnets, TunnelSide
from liqod.peering.changes import Queue
from liqod.peering.controller import PACE, PeerController, PeeringContext
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import Event, Network, NetworkAck

SETTLE = 0.02
"""Seconds for which events of a peer are collected into one write."""
BURST: Final = 2
"""Writes of one peer without ``PACE`` between them: its answer to our network comes just after its own network."""

ANSWER_WITHIN: Final = 60.0
"""Seconds of a session in which a peer tells of its network; from then on one that did not counts as without tunnel."""
DECIDES_WITHIN: Final = 360.0
"""The same for a peer that always says one or the other, and may wait for a network agent that starts."""
ALWAYS_SAYS: Final = 2
"""The minor version from which on a peer without a tunnel says so."""


@attrs.define(kw_only=True)
class _Exchange:
    """The last parameters received from one peer, and those sent to it, with the session.

    ``answered_in``: the session of the last answer; ``waits``: the one in which we wait for it, and since when.
    ``pace`` limits the writes that the peer causes.
    """

    remote: TunnelSide | None = None
    ack: Subnets | None = None
    answered_in: PeerConnection | None = None
    sent: tuple[PeerConnection, Network | None, NetworkAck | None] | None = None
    waits: tuple[PeerConnection, float] | None = None
    pace: Bucket = attrs.field(factory=lambda: Bucket(1 / PACE, BURST))

    def restart(self) -> None:
        """Send everything again, and do not rely on it that the peer had no tunnel: our record of it is gone."""
        self.sent = self.waits = None
        if self.ack is not None and self.ack.reason == NO_TUNNEL_HERE:
            self.ack = None


class NetworkExchange(PeerController):
    """Exchanges network parameters with all peers."""

    name = "networks"
    queue = Queue.NETWORK

    def __init__(self, context: PeeringContext, configs: Informer[NetworkConfig]) -> None:
        super().__init__(context)
        self._configs = configs
        self._exchanges: dict[ClusterID, _Exchange] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of peers, and the NetworkConfigs."""
        yield from super().sources()
        yield watch(self._configs, self._config_changed)

    def _config_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[ClusterID]:
        peer = ClusterID(key.name)
        if new is None and (exchange := self._exchanges.get(peer)) is not None:
            exchange.restart()
        return (peer,)

    def event_received(self, peer: Peer, event: Network | NetworkAck) -> None:
        """Store the parameters that a peer sent; newer ones replace older ones."""
        exchange = self._exchanges.setdefault(peer.id, _Exchange())
        if isinstance(event, Network):
            exchange.remote = TunnelSide(
                pod_cidrs=event.pod_cidrs,
                external_cidr=event.external_cidr,
                endpoints=event.endpoints,
                public_key=event.public_key,
                mtu=event.mtu,
                next_key=event.next_key,
                external_six=event.external_six,
                service_cidrs=event.service_cidrs,
            )
        else:
            exchange.ack = Subnets(
                pod_cidrs=event.pod_cidrs,
                external_cidr=event.external_cidr,
                reason=event.reason,
                message=event.message,
                known_key=event.known_key,
                external_six=event.external_six,
                service_cidrs=event.service_cidrs,
            )
            exchange.answered_in = peer.session
        self.enqueue(peer.id, SETTLE)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._exchanges.pop(peer, None)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Send changed parameters to a peer, and record those that it sent, or that it sends none."""
        config = self._configs.get(Key("", peer_id))
        if config is None or config.metadata.deleting:
            return None
        exchange = self._exchanges.setdefault(peer_id, _Exchange())
        self._send(peer_id, config, exchange)
        peer = self._peers.get(peer_id)
        session = peer.session if peer is not None else None
        if exchange.ack is not None and exchange.ack.reason == NO_TUNNEL_HERE and exchange.answered_in is not session:
            exchange.ack = None  # of an earlier session: what holds now is sent in this one
        changes: dict[str, Any] = {}
        wait = self._silence(config, exchange, session)
        if wait is not None and wait <= 0:
            changes["silent"] = True
        if exchange.remote is not None and exchange.remote != config.status.remote:
            changes["remote"] = all_fields(exchange.remote)
        if exchange.ack is not None and exchange.ack != config.status.ack:
            changes["ack"] = all_fields(exchange.ack)
        if changes:
            now = self._clock.seconds()
            if delay := exchange.pace.delay(now):
                return After(min(delay, wait) if wait is not None and wait > 0 else delay)
            exchange.pace.take(now)
            # The status is a subresource: a patch of the object itself would leave it as it is.
            try:
                await self._client.patch(
                    NETWORKCONFIGS, config.metadata.name, {"status": changes}, subresource="status", view=None
                )
            except NotFound:
                return None  # the watch enqueues the peer when the record exists
        return After(wait) if wait is not None and wait > 0 else None

    def _silence(self, config: NetworkConfig, exchange: _Exchange, session: PeerConnection | None) -> float | None:
        """Return in how many seconds a peer counts as silent; None where nothing depends on it."""
        is_open = config.spec.decision.mode == UNDECIDED and not config.status.silent
        if session is None or not is_open or exchange.ack is not None:
            exchange.waits = None
            return None
        if exchange.waits is None or exchange.waits[0] is not session:
            exchange.waits = session, self._clock.seconds()
        within = DECIDES_WITHIN if session.minor >= ALWAYS_SAYS else ANSWER_WITHIN
        return exchange.waits[1] + within - self._clock.seconds()

    def _send(self, peer_id: ClusterID, config: NetworkConfig, exchange: _Exchange) -> None:
        peer = self._peers.get(peer_id)
        session = peer.session if peer is not None else None
        network = _network(config.spec.local) if config.spec.local != TunnelSide() else None
        ack = _ack(config.spec.remap)
        if session is None or (network is None and (ack is None or ack.reason != NO_TUNNEL_HERE)):
            return
        before = exchange.sent if exchange.sent is not None and exchange.sent[0] is session else None
        events: list[Event] = []
        if network is not None and (before is None or before[1] != network):
            events.append(network)
        if ack is not None and (before is None or before[2] != ack):
            events.append(ack)
        for event in events:
            if not session.send(event):
                return  # sent when the next session opens
        exchange.sent = (session, network, ack)


class NoTunnels(PeerController):
    """Tells every peer, with ``[network] mode = "none"``, that there is no tunnel here; theirs are ignored."""

    name = "networks"
    queue = Queue.NETWORK

    def event_received(self, peer: Peer, event: Network | NetworkAck) -> None:
        """Ignore what a peer sent."""

    async def reconcile(self, peer_id: ClusterID) -> None:
        """Tell a peer, in the session that has just been opened."""
        peer = self._peers.get(peer_id)
        if peer is not None and peer.session is not None:
            peer.session.send(
                NetworkAck([], reason=NO_TUNNEL_HERE, message='mode = "none" under [network] is set there')
            )


def _network(side: TunnelSide) -> Network:
    return Network(
        side.pod_cidrs,
        side.external_cidr,
        side.endpoints,
        side.public_key,
        side.mtu,
        side.next_key,
        side.external_six,
        side.service_cidrs,
    )


def _ack(remap: Subnets) -> NetworkAck | None:
    if remap == Subnets():
        return None
    return NetworkAck(
        remap.pod_cidrs,
        remap.external_cidr,
        remap.reason,
        plain(remap.message),
        remap.known_key,
        remap.external_six,
        remap.service_cidrs,
    )
