"""Watches the paths to borrowers' homes; endpoints there are called while a tunnel, or the session, is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import evolve
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol

from liqod.flow.clocks import Reactor
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.flow.observe import Latest
from liqod.flow.tasks import cancellable, side_by_side
from liqod.hosting.home.path import AT_EASE, IN_DOUBT, HomePath, judge, pause, session_sign, targets_of, tunnel_sign
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice

CALL_TIMEOUT: Final = 2.0
"""Seconds that an endpoint has to answer."""
GIVEN_UP: Final = 10.0
"""Seconds between two rounds while the path is lost, or nobody there ever answered."""


class HomePaths(Controller[str]):
    """Decides for each borrower, by its cluster ID, whether the path to its home is lost; ``lost`` has the answers."""

    name = "paths to borrowers"
    workers = 8

    def __init__(
        self,
        reactor: Reactor,
        *,
        shadows: Informer[ShadowEndpointSlice],
        foreign: Informer[ForeignCluster],
        namespaces: Namespaces,
        networks: TenantNetworks,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(reactor, metrics=metrics)
        self.lost: Latest[Mapping[str, bool]] = Latest({})
        self._reactor = reactor
        self._shadows = shadows
        self._foreign = foreign
        self._tunnels = networks.tunnels
        self._namespaces = namespaces
        self._networks = networks
        self._paths: dict[str, HomePath] = {}

    def sources(self) -> Iterable[Source[str]]:
        yield watch(self._foreign, self._peer_changed)
        if self._tunnels is not None:
            yield watch(self._tunnels, self._tunnel_changed)
        if self._networks.decisions is not None:
            yield watch(self._networks.decisions, self._decision_changed)
        yield watch(self._shadows, self._shadow_changed)

    async def prepare(self) -> None:
        """Await namespaces, which name the borrower of a slice, and networks."""
        await self._namespaces.informer.when_synced()
        await self._networks.prepare()

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[str]:
        is_same = old is not None and new is not None and old.status.phase == new.status.phase
        return () if is_same else (key.name,)

    def _peer_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> Iterable[str]:
        is_same = old is not None and new is not None and session_sign(old.status) is session_sign(new.status)
        return () if is_same else (key.name,)

    def _decision_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[str]:
        return () if self._networks.is_same_decision(old, new) else (key.name,)

    def _shadow_changed(
        self, key: Key, old: ShadowEndpointSlice | None, new: ShadowEndpointSlice | None
    ) -> Iterable[str]:
        tenant = self._namespaces.known_tenant(key.namespace)
        return (tenant,) if tenant and old is None else ()

    async def reconcile(self, key: str) -> After | None:
        if not self._exists(key):
            self._paths.pop(key, None)
            self._publish()
            return None
        path, now = self._judged(key), self.clock.seconds()
        if (left := pause(path, now)) > 0:
            return After(left)
        path = self._paths[key] = evolve(path, looked_at=now)
        slices = [s for s in self._shadows.items() if self._namespaces.known_tenant(s.metadata.namespace) == key]
        targets = targets_of(slices, path.answered, lambda address: not self._networks.objection(key, address))
        if not targets:
            return After(AT_EASE) if slices else None  # endpoints may become ready
        answers = await side_by_side(self._call(*target) for target in targets)
        answered = [target for target, answer in zip(targets, answers, strict=True) if answer]
        answered_at = self.clock.seconds() if answered else path.answered_at
        self._paths[key] = evolve(path, answered=answered, answered_at=answered_at)
        path = self._judged(key)
        if path.troubled_since is None:
            return After(AT_EASE)
        return After(IN_DOUBT if path.answered_at is not None and not path.lost else GIVEN_UP)

    def _exists(self, tenant: str) -> bool:
        """Return whether there is a path: a tunnel, or a peer to which others connect this cluster."""
        if self._networks.has_tunnel(tenant):
            return self._tunnels is not None and self._tunnels.get(Key("", tenant)) is not None
        return self._foreign.get(Key("", tenant)) is not None

    def _sign(self, tenant: str) -> bool | None:
        """Return what is seen of a path without calling anybody."""
        if self._tunnels is not None and self._networks.has_tunnel(tenant):
            tunnel = self._tunnels.get(Key("", tenant))
            return tunnel_sign(None if tunnel is None else tunnel.status)
        peer = self._foreign.get(Key("", tenant))
        return session_sign(None if peer is None else peer.status)

    def _judged(self, tenant: str) -> HomePath:
        """Judge a path by what is known now, and tell whether it is lost."""
        before = self._paths.get(tenant, HomePath())
        path = judge(before, self._sign(tenant), self.clock.seconds())
        self._paths[tenant] = path
        if path.lost is not before.lost and (path.lost or before.lost):
            state, effect = ("lost", "not ready") if path.lost else ("back", "ready again")
            detail = f"endpoints there are {effect}"
            self._log.info("the path to {peer} is {state}: {detail}", peer=tenant, state=state, detail=detail)
        self._publish()
        return path

    def _publish(self) -> None:
        self.lost.set({tenant: path.lost for tenant, path in self._paths.items() if path.lost is not None})

    async def _call(self, address: str, port: int) -> bool:
        """Return whether an endpoint, or its host, answers to a TCP connection; no byte is sent."""
        endpoint = HostnameEndpoint(self._reactor, address.encode(), port, timeout=CALL_TIMEOUT)
        try:
            connected = await cancellable(endpoint.connect(Factory.forProtocol(Protocol)))
        except ConnectionRefusedError:
            return True
        except ConnectError:
            return False
        if isinstance(connected, Protocol) and connected.transport is not None:
            connected.transport.loseConnection()
        return True
