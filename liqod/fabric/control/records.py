"""The records of the network, NetworkConfigs and TunnelEndpoints: reads and writes them.

An unchanged record is not written. Fields of other writers (peering stores the peer's announcement in the status of a
NetworkConfig) are not touched: all writes are merge patches (RFC 7396) of our own fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.control.agreed import AgreedPeer, detailed, tunnel_spec
from liqod.fabric.control.agreement.mode import ACCEPTED_BEFORE, first_decision, was_accepted
from liqod.fabric.control.cluster_networks import when_changed
from liqod.fabric.state.report import NetworkReport
from liqod.fabric.state.validation import RemoteNetwork
from liqod.flow.clocks import WallClock
from liqod.flow.controller import Source, watch
from liqod.flow.tasks import together
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.kube.writing.merge_patch import all_fields
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.status_writer import StatusWriter, require
from liqod.model.host_port import join_address
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import MAX_MESSAGE, find_condition, to_dict
from liqod.model.records.network import (
    NO_TUNNEL,
    SESSION_LIFETIME,
    TUNNEL,
    UNDECIDED,
    Decision,
    Export,
    NetworkConfig,
    NetworkConfigSpec,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointStatus,
    TunnelSide,
)
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.model.records.views import ForeignCluster

ENDPOINT_TIMEOUT: Final = 15.0
"""Seconds that one endpoint of a peer is tried before the next: WireGuard repeats a handshake every 5 s."""
CACHE_TTL: Final = 10.0
"""Seconds that our last write counts against a watch that does not show it: one pass of the converge loop."""
EXPIRED: Final = ("Expired", ACCEPTED_BEFORE)
"""Reasons of the condition Accepted while an offer is not renewed: nothing follows from that alone."""


class NetworkRecords:
    """The NetworkConfigs and TunnelEndpoints of all peers.

    ``mode`` is that of the settings. ``is_detailed``: the tunnels' records have all that a network agent in another
    process needs.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        informers: Informers,
        wall: WallClock,
        *,
        mode: str = TUNNEL,
        is_detailed: bool = False,
    ) -> None:
        self._mode = mode
        self._is_detailed = is_detailed
        self._client = client
        self._clock = clock
        self._wall = wall
        self._peers: Informer[ForeignCluster] = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        self._configs = MutationCache(informers.of(NETWORKCONFIGS, NetworkConfig), clock, CACHE_TTL)
        self.tunnels = MutationCache(informers.of(TUNNELENDPOINTS, TunnelEndpoint), clock, CACHE_TTL)
        # Peering writes the other fields of this status, what the peer announced, at the same time.
        self._config_status = StatusWriter(client, NETWORKCONFIGS, NetworkConfig, self._configs, versioned=False)
        self._tried: dict[str, float] = {}

    def sources(self, key: str) -> Iterable[Source[str]]:
        """Yield what enqueues ``key`` when a record that matters changed."""
        yield watch(self._peers, when_changed(key, is_peered))
        yield watch(self._configs.informer, self._shown(key, self._configs))
        yield watch(self.tunnels.informer, self._shown(key, self.tunnels))

    def _shown(self, key: str, cache: MutationCache[Any]) -> Any:
        spec_only = cache is self.tunnels

        def keys_of(name: Key, old: Any, new: Any) -> Iterable[str]:
            if new is None:
                # The cache would show an object that we created, and that is gone since, until its TTL.
                cache.forget(name)
            if spec_only:
                # The status is our own write, of every pass: it must not cause the next one.
                return (key,) if (old and old.spec) != (new and new.spec) else ()
            return (key,) if old != new else ()

        return keys_of

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when every kind of record was listed once."""
        watched: list[Informer[Any]] = [self._peers, self._configs.informer, self.tunnels.informer]
        return Deferred.fromCoroutine(together(informer.when_synced() for informer in watched))

    def config(self, peer: ClusterID) -> NetworkConfig | None:
        """Return the exchange with a peer, or None."""
        return self._configs.get(Key("", peer))

    def configs(self) -> list[NetworkConfig]:
        """Return the exchanges with all peers."""
        return [one for one in self._configs.items() if not one.metadata.deleting]

    async def sync_peers(self) -> None:
        """Create a NetworkConfig for every peered cluster, and delete those of clusters that are no longer peers.

        A cluster of which it is not known whether it is a peer keeps what it has.
        """
        clusters = {record.metadata.name: record for record in self._peers.items()}
        peers = {name: is_peered(record) for name, record in clusters.items()}
        known = {config.metadata.name: config for config in self.configs()}
        for name in sorted(peers):
            is_from_before = self._mode == UNDECIDED and peers[name] is None and was_accepted(clusters[name])
            if (peers[name] or is_from_before) and name not in known:
                await self._create(name, first_decision(self._mode, clusters[name], self._wall()))
        for name, config in sorted(known.items()):
            if peers.get(name, False) is False:
                self._log.info("{peer} is not a peer any more: its networks are released", peer=name)
                await self._client.delete(NETWORKCONFIGS, name)
                self._configs.removed(config.key, config)

    async def _create(self, name: str, decision: Decision) -> None:
        body = {
            "apiVersion": NETWORKCONFIGS.api_version,
            "kind": NETWORKCONFIGS.kind,
            "metadata": {"name": name},
            "spec": to_dict(NetworkConfigSpec(cluster_id=name, decision=decision)),
        }
        try:
            made = await self._client.create(NETWORKCONFIGS, body, view=NetworkConfig)
        except AlreadyExists:
            return
        self._configs.wrote(made.key, None, made)

    async def write_decision(self, config: NetworkConfig, decision: Decision) -> NetworkConfig:
        """Write whether there is a tunnel to a peer; returns the record after that."""
        if config.spec.decision == decision:
            return config
        if decision.mode == NO_TUNNEL:
            self._log.info("no tunnel to {peer}: {detail}", peer=str(config.key), detail=decision.message)
        patch = {"spec": {"decision": all_fields(decision)}}
        written = await self._client.patch(NETWORKCONFIGS, config.metadata.name, patch, view=NetworkConfig)
        self._configs.wrote(config.key, config, written)
        return written

    async def write_spec(
        self, config: NetworkConfig, side: TunnelSide, remap: Subnets, exports: Sequence[Export]
    ) -> NetworkConfig:
        """Write our parameters for the peer and its assignment; returns the record after that."""
        spec = msgspec.structs.replace(
            config.spec, cluster_id=config.metadata.name, local=side, remap=remap, exports=list(exports)
        )
        if config.spec == spec:
            return config
        # Whole parts are replaced: in a merge patch (RFC 7396) an absent field would stay.
        whole = {"clusterID": spec.cluster_id, "local": all_fields(side), "remap": all_fields(remap)}
        patch = {"spec": {**whole, "exports": to_dict(spec.exports) or None}}
        written = await self._client.patch(NETWORKCONFIGS, config.metadata.name, patch, view=NetworkConfig)
        self._configs.wrote(config.key, config, written)
        return written

    async def write_phase(self, config: NetworkConfig, phase: str, reason: str, message: str) -> None:
        """Write the phase of the exchange with a peer, with reason and message."""
        status = config.status
        if (status.phase, status.reason, status.message) == (phase, reason, message[:MAX_MESSAGE]):
            return
        if phase == "Refused":
            self._log.warn(
                "network of {peer} refused: {detail} ({reason})", peer=str(config.key), detail=message, reason=reason
            )
        wanted = msgspec.structs.replace(status, phase=phase, reason=reason, message=message[:MAX_MESSAGE])
        require(await self._config_status.write(config, wanted))

    def path_mtu(self, peer: ClusterID) -> int:
        """Return the path MTU in the record of a tunnel, 0 for none."""
        record = self.tunnels.get(Key("", peer))
        return record.status.path_mtu if record is not None else 0

    def recorded_status(self, peer: ClusterID) -> TunnelEndpointStatus:
        """Return the state of a tunnel, by its record."""
        record = self.tunnels.get(Key("", peer))
        return record.status if record is not None else TunnelEndpointStatus()

    def choose_endpoint(self, peer: ClusterID, remote: RemoteNetwork, report: NetworkReport, key: str) -> str:
        """Return the endpoint to use for a peer now: one after the other until one answers."""
        if not remote.endpoints:
            return ""
        now = self._clock.seconds()
        known = report.tunnels.get(key)
        age = known.age(now) if known is not None else None
        if known is not None and age is not None and age < SESSION_LIFETIME:
            self._tried.pop(peer, None)
            if known.endpoint in [join_address(*one) for one in remote.endpoints]:
                return known.endpoint
        since = self._tried.setdefault(peer, now)
        return join_address(*remote.endpoints[int((now - since) / ENDPOINT_TIMEOUT) % len(remote.endpoints)])

    async def write_tunnel(self, peer: ClusterID, agreed: AgreedPeer, probe_pods: Sequence[str]) -> None:
        """Write what was agreed with a peer in the spec of its TunnelEndpoint."""
        config = self.config(peer)
        if config is None:
            return
        spec = tunnel_spec(config, agreed)
        if self._is_detailed:
            spec = detailed(spec, agreed, probe_pods)
        record = self.tunnels.get(Key("", peer))
        if record is None or record.spec != spec:
            await self._write_tunnel_spec(peer, record, to_dict(spec))

    async def _write_tunnel_spec(self, peer: ClusterID, record: TunnelEndpoint | None, spec: Any) -> TunnelEndpoint:
        body = {"apiVersion": TUNNELENDPOINTS.api_version, "kind": TUNNELENDPOINTS.kind, "metadata": {"name": peer}}
        if record is not None:
            try:
                patch = [{"op": "replace", "path": "/spec", "value": spec}]
                written = await self._client.patch(TUNNELENDPOINTS, peer, patch, kind="json", view=TunnelEndpoint)
            except NotFound:
                self.tunnels.forget(record.key)
                record = None
        if record is None:
            written = await self._client.create(TUNNELENDPOINTS, {**body, "spec": spec}, view=TunnelEndpoint)
        self.tunnels.wrote(written.key, record, written)
        return written

    async def delete_other_tunnels(self, keep: Iterable[str]) -> None:
        """Delete the TunnelEndpoints of all peers but these."""
        kept = set(keep)
        for record in [one for one in self.tunnels.items() if one.metadata.name not in kept]:
            name = record.metadata.name
            await self._client.delete(TUNNELENDPOINTS, name)
            self.tunnels.removed(record.key, record)
            self._tried.pop(name, None)


def is_peered(record: ForeignCluster | None) -> bool | None:
    """Return whether a cluster is a peer in either direction: None where that is not known."""
    if record is None or is_trust_withdrawn(record):
        return False
    if record.metadata.deleting:
        # While a peering ends its pods are drained, and draining may need the network.
        return None
    states = [find_condition(record.status.conditions, kind) for kind in ("Accepted", "Lending")]
    if any(state is not None and state.status == "True" for state in states):
        return True
    # An offer expires when its lender is silent: its pods may run on, and their traffic with them. Likewise Accepted is
    # Unknown when the record of an offer is lost while there is a virtual node.
    if any(state is None or state.status != "False" or state.reason in EXPIRED for state in states):
        return None
    return False
