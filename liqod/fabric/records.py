"""The network's records: which peers have one, what they say, and every write to them.

A write happens only when it changes something. What another writes (peering keeps what the peer told in the status of a
NetworkConfig) is never touched: all writes are merge patches of our own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.agreement.validation import Remote
from liqod.fabric.kernel.model import Observed
from liqod.fabric.kernel.wireguard import ALIVE, host_port
from liqod.fabric.mutation_cache import Written
from liqod.fabric.probing.health import Health
from liqod.fabric.probing.pod_reachability import PodPath
from liqod.fabric.status import Agreed, same_but_numbers, tunnel_spec, tunnel_status
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import find_condition, to_dict
from liqod.model.records.network import Export, NetworkConfig, NetworkConfigSpec, Side, Subnets, TunnelEndpoint
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.model.records.views import ForeignCluster

NUMBERS: Final = 30.0
"""Seconds between two writes of a tunnel's status for measurements alone."""
PATIENCE: Final = 15.0
"""Seconds that one endpoint of a peer is tried before the next."""


class Records:
    """NetworkConfigs and TunnelEndpoints; ``changed`` is called when a record that matters changed."""

    _log = Logger()

    def __init__(self, client: Client, clock: IReactorTime, informers: Informers, changed: Callable[[], None]) -> None:
        self._client = client
        self._clock = clock
        self._changed = changed
        self._peers: Informer[ForeignCluster] = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._configs = Written(informers.of(NETWORKCONFIGS, NetworkConfig), clock)
        self._tunnels = Written(informers.of(TUNNELENDPOINTS, TunnelEndpoint), clock)
        self._measured: dict[str, float] = {}
        self._tried: dict[str, float] = {}
        self._ends: list[Callable[[], None]] = []

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when every kind of record was listed once."""
        watched: list[Informer[Any]] = [self._peers, self._configs.informer, self._tunnels.informer]
        return gatherResults([informer.when_synced() for informer in watched], consumeErrors=True)

    def begin(self) -> None:
        """Tell of changes from now on."""
        self._ends = [
            self._peers.subscribe(lambda key, old, new: self._look(_wanted(old), _wanted(new))),
            self._configs.informer.subscribe(lambda key, old, new: self._look(old, new)),
            self._tunnels.informer.subscribe(lambda key, old, new: self._look(old and old.spec, new and new.spec)),
        ]

    def end(self) -> None:
        """Tell of no more changes."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _look(self, before: object, after: object) -> None:
        if before != after:
            self._changed()

    def config(self, peer: ClusterID) -> NetworkConfig | None:
        """Return the exchange with a peer, or None."""
        return self._configs.get(Key("", peer))

    def configs(self) -> list[NetworkConfig]:
        """Return the exchanges with all peers."""
        return [one for one in self._configs.items() if not one.metadata.deleting]

    async def follow_peers(self) -> None:
        """Give every peered cluster a NetworkConfig, and delete those of clusters that are peers no more.

        A peer whose state is not known keeps what it has.
        """
        peers = {record.metadata.name: _wanted(record) for record in self._peers.items()}
        known = {config.metadata.name for config in self.configs()}
        for name in sorted(peers):
            if peers[name] and name not in known:
                await self._create(name)
        for name in sorted(known):
            if peers.get(name, False) is False:
                self._log.info("{peer} is no peer any more: its networks are released", peer=name)
                await self._client.delete(NETWORKCONFIGS, name)
                self._configs.put(Key("", name), None)

    async def _create(self, name: str) -> None:
        body = {
            "apiVersion": NETWORKCONFIGS.api_version,
            "kind": NETWORKCONFIGS.kind,
            "metadata": {"name": name},
            "spec": to_dict(NetworkConfigSpec(cluster_id=name)),
        }
        try:
            made = await self._client.create(NETWORKCONFIGS, body, view=NetworkConfig)
        except AlreadyExists:
            return
        self._configs.put(made.key, made)

    async def tell(self, config: NetworkConfig, side: Side, remap: Subnets, exports: Sequence[Export]) -> NetworkConfig:
        """Have the record say what the peer is to be told and what it was given; returns the record as it is then."""
        spec = NetworkConfigSpec(cluster_id=config.metadata.name, local=side, remap=remap, exports=list(exports))
        if config.spec == spec:
            return config
        # Whole parts are replaced: in a merge patch a field that is absent would stay.
        whole = {"clusterID": spec.cluster_id, "local": _whole(side), "remap": _whole(remap)}
        patch = {"spec": {**whole, "exports": to_dict(spec.exports) or None}}
        made = await self._client.patch(NETWORKCONFIGS, config.metadata.name, patch, view=NetworkConfig)
        self._configs.put(config.key, made)
        return made

    async def explain(self, config: NetworkConfig, phase: str, reason: str, message: str) -> None:
        """Have the record say how far the exchange is, and why."""
        status = config.status
        if (status.phase, status.reason, status.message) == (phase, reason, message[:1024]):
            return
        if phase == "Refused":
            self._log.warn(
                "network of {peer}: {message} ({reason})", peer=str(config.key), message=message, reason=reason
            )
        patch = {"status": {"phase": phase, "reason": reason, "message": message[:1024]}}
        made = await self._client.patch(
            NETWORKCONFIGS, config.metadata.name, patch, subresource="status", view=NetworkConfig
        )
        self._configs.put(config.key, made)

    def path_mtu(self, peer: ClusterID) -> int:
        """Return the path MTU that the record of a tunnel shows, 0 for none."""
        record = self._tunnels.get(Key("", peer))
        return record.status.path_mtu if record is not None else 0

    def was_connected(self, peer: ClusterID) -> bool:
        """Tell whether the record of a tunnel says that packets cross."""
        record = self._tunnels.get(Key("", peer))
        return record is not None and record.status.phase == "Connected"

    def endpoint(self, peer: ClusterID, remote: Remote, observed: Observed, key: str) -> str:
        """Return where a peer is called now: one endpoint after the other until one answers."""
        if not remote.endpoints:
            return ""
        now = self._clock.seconds()
        known = observed.tunnel.peers.get(key) if observed.tunnel is not None else None
        if known is not None and now - known.handshake < ALIVE:
            self._tried.pop(peer, None)
            if known.endpoint in [host_port(*one) for one in remote.endpoints]:
                return known.endpoint
        since = self._tried.setdefault(peer, now)
        return host_port(*remote.endpoints[int((now - since) / PATIENCE) % len(remote.endpoints)])

    async def describe(
        self,
        peer: ClusterID,
        agreed: Agreed,
        observed: Observed,
        health: Health | None,
        paths: Sequence[PodPath],
        device: str,
        now: float,
        stamp: str,
    ) -> None:
        """Have the TunnelEndpoint of a peer say what was agreed and how it goes."""
        config = self.config(peer)
        if config is None:
            return
        key = Key("", peer)
        spec = tunnel_spec(config, agreed)
        record = self._tunnels.get(key)
        if record is None or record.spec != spec:
            record = await self._write_spec(peer, record, to_dict(spec))
        status = tunnel_status(agreed, observed, health, paths, device, record.status, now, stamp)
        if status == record.status:
            return
        if same_but_numbers(status, record.status) and now - self._measured.get(peer, 0.0) < NUMBERS:
            return
        if status.phase != record.status.phase:
            self._log.info(
                "network with {peer}: {phase}, {message}", peer=peer, phase=status.phase, message=status.message
            )
        self._measured[peer] = now
        made = await self._client.patch(
            TUNNELENDPOINTS, peer, {"status": _whole(status)}, subresource="status", view=TunnelEndpoint
        )
        self._tunnels.put(key, made)

    async def _write_spec(self, peer: ClusterID, record: TunnelEndpoint | None, spec: Any) -> TunnelEndpoint:
        body = {"apiVersion": TUNNELENDPOINTS.api_version, "kind": TUNNELENDPOINTS.kind, "metadata": {"name": peer}}
        if record is not None:
            try:
                patch = [{"op": "replace", "path": "/spec", "value": spec}]
                made = await self._client.patch(TUNNELENDPOINTS, peer, patch, kind="json", view=TunnelEndpoint)
            except NotFound:
                record = None
        if record is None:
            made = await self._client.create(TUNNELENDPOINTS, {**body, "spec": spec}, view=TunnelEndpoint)
        self._tunnels.put(made.key, made)
        return made

    async def drop_tunnels(self, wanted: Iterable[str]) -> None:
        """Delete the TunnelEndpoints of all other peers."""
        keep = set(wanted)
        for name in [one.metadata.name for one in self._tunnels.items() if one.metadata.name not in keep]:
            await self._client.delete(TUNNELENDPOINTS, name)
            self._tunnels.put(Key("", name), None)
            self._measured.pop(name, None)
            self._tried.pop(name, None)


def _wanted(record: ForeignCluster | None) -> bool | None:
    """Tell whether a cluster is a peer in either direction: None where that is not known."""
    if record is None or is_trust_withdrawn(record):
        return False
    if record.metadata.deleting:
        # While a peering ends its pods are drained: what they still do may need the network.
        return None
    states = [find_condition(record.status.conditions, kind) for kind in ("Accepted", "Lending")]
    if any(state is not None and state.status == "True" for state in states):
        return True
    # An offer expires when its lender is silent: its pods may run on, and their traffic with them.
    if any(state is None or state.status != "False" or state.reason == "Expired" for state in states):
        return None
    return False


def _whole(view: msgspec.Struct) -> dict[str, Any]:
    """Return a view with all its fields, null for those at their defaults, as a merge patch needs them."""
    fields = {field.encode_name: None for field in msgspec.structs.fields(view)}
    return {**fields, **to_dict(view)}
