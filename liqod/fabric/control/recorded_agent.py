"""The network agent as control sees it where it is another process: by the records that it writes.

What is desired goes into the spec of the NetworkGateway and of the TunnelEndpoints; what was observed stands in their
status. Control reads no kernel and no private key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.control.cluster_networks import when_changed
from liqod.fabric.state.network import DesiredNetwork, PathKey, parse_networks
from liqod.fabric.state.report import HostReport, NetworkReport, PodPath, TunnelReport
from liqod.flow.clocks import WallClock
from liqod.flow.controller import Source, watch
from liqod.flow.errors import ExpectedError
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKGATEWAYS, TUNNELENDPOINTS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.objects.meta import to_dict
from liqod.model.records.network import (
    GATEWAY_NAME,
    MAX_HOSTS,
    NetworkGateway,
    NetworkGatewaySpec,
    NetworkGatewayStatus,
    OverlayHost,
    TunnelEndpoint,
)

REPORT_WITHIN: Final = 300.0
"""Seconds that an agent has for its first report, before a peering is made as if there was none.

Whether a tunnel is made is decided once, and a node may pull the agent's image for minutes.
"""
_NO_REPORT: Final = (
    'the network agent has not reported its host and its key; is a daemon with role = "network" running?'
)


class NoReport(ExpectedError):
    """The network agent has written nothing about its host."""


class RecordedAgent:
    """The agent of the gateway, in another process. ``tunnels`` are the records of all tunnels."""

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        informers: Informers,
        tunnels: MutationCache[TunnelEndpoint],
        wall: WallClock,
    ) -> None:
        self._client = client
        self._clock = clock
        self._waits_since: float | None = None
        self._left_out = 0
        self._wall = wall
        self._tunnels = tunnels
        self._gateways = MutationCache(informers.of(NETWORKGATEWAYS, NetworkGateway), clock)
        self._watched: Informer[TunnelEndpoint] = informers.of(TUNNELENDPOINTS, TunnelEndpoint)

    def sources(self, key: str) -> Iterable[Source[str]]:
        """Yield what enqueues ``key`` when the agent reported something that decisions depend on."""
        yield watch(self._gateways.informer, when_changed(key, lambda one: one and (one.spec, one.status)))
        yield watch(self._watched, when_changed(key, _decisive))

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when the gateway's record was listed."""
        return self._gateways.informer.when_synced()

    async def lacking(self) -> str:
        """Return what the agent's host lacks for tunnels; raises NoReport while the agent may yet report.

        One that has not done so in the time that it has is what is lacking.
        """
        record = self._gateways.get(Key("", GATEWAY_NAME))
        status = record.status if record is not None else NetworkGatewayStatus()
        if status.lacking or status.public_key:
            self._waits_since = None
            return status.lacking
        now = self._clock.seconds()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since < REPORT_WITHIN:
            raise NoReport(_NO_REPORT)
        return _NO_REPORT

    async def inspect_host(self) -> HostReport:
        """Return what the agent wrote about its host; raises NoReport where it wrote nothing that can be used."""
        record = self._gateways.get(Key("", GATEWAY_NAME))
        status = record.status if record is not None else None
        if status is None or not (status.address and status.public_key and status.mtu):
            raise NoReport((status.lacking if status is not None else "") or _NO_REPORT)
        return HostReport(
            mtu=status.mtu,
            networks=tuple(parse_networks(status.networks)),
            address=status.address,
            public_key=status.public_key,
            next_key=status.next_key,
        )

    def report(self) -> NetworkReport:
        """Return what control decides from: which endpoints answer, which keys are accepted, which pods are probed."""
        tunnels: dict[str, TunnelReport] = {}
        pods: dict[PathKey, PodPath] = {}
        now, date = self._clock.seconds(), self._wall().timestamp()
        for record in self._tunnels.items():
            spec, status = record.spec, record.status
            alive = TunnelReport(status.endpoint, date, handshake_at=now)
            tunnels[spec.public_key] = alive if status.handshake == "fresh" else TunnelReport(status.endpoint)
            if status.accepted_key:
                tunnels[status.accepted_key] = TunnelReport("")
            for pod in spec.probe_pods:
                pods[record.metadata.name, 6 if ":" in pod else 4] = PodPath(pod, 0)
        return NetworkReport(tunnels=tunnels, pods=pods)

    async def converge(self, desired: DesiredNetwork) -> NetworkReport:
        """Write what the gateway's host is to be; the agent acts by it, and by the tunnels' records."""
        left_out = max(0, len(desired.vteps) - MAX_HOSTS)
        if left_out > self._left_out:
            self._log.warn(
                "{count} hosts are not on the overlay, their record has room for {limit}: their pods reach no peer "
                "(TooManyHosts)",
                count=left_out,
                limit=MAX_HOSTS,
            )
        self._left_out = left_out
        await self._write(
            NetworkGatewaySpec(
                addresses=[str(one) for one in desired.addresses],
                # A Node has one network of pods for each IP version at most.
                hosts=[
                    OverlayHost(address=one.address, networks=[str(network) for network in one.networks][:16])
                    for one in desired.vteps[:MAX_HOSTS]
                ],
            )
        )
        return self.report()

    async def clear(self) -> None:
        """Do nothing: without records of tunnels the agent removes all by itself."""

    async def _write(self, spec: NetworkGatewaySpec) -> None:
        # The agent makes the record, to report its host; control only comes here once it did.
        record = self._gateways.get(Key("", GATEWAY_NAME))
        if record is None or record.spec == spec:
            return
        patch = [{"op": "add", "path": "/spec", "value": to_dict(spec)}]
        written = await self._client.patch(NETWORKGATEWAYS, GATEWAY_NAME, patch, kind="json", view=NetworkGateway)
        self._gateways.wrote(record.key, record, written)


def _decisive(record: TunnelEndpoint | None) -> object:
    if record is None:
        return None
    status = record.status
    return status.phase, status.message, status.endpoint, status.accepted_key, status.path_mtu, status.handshake
