"""The network agent of a gateway as a process of its own: it follows records, and writes their status.

    NetworkGateway, TunnelEndpoints -> checked desired state -> kernel -> status of the records

Control, in another process, writes the specs. This process alone has rights over the host's network, and the tunnel's
private key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from liqod.fabric.agent.converge import HOST, ConvergeLoop, FabricHost
from liqod.fabric.agent.desired import Derived, RecordLimits, desired_network
from liqod.fabric.agent.gateway import GatewayAgent
from liqod.fabric.agent.kernel.model import HostCommand
from liqod.fabric.agent.tunnel_status import TunnelDevice
from liqod.fabric.agent.tunnel_statuses import TunnelStatuses
from liqod.fabric.state.network import DesiredNetwork, parse_networks
from liqod.fabric.state.report import HostReport, NetworkReport
from liqod.flow.controller import Source, always, watch
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate
from liqod.flow.tasks import together
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import NETWORKGATEWAYS, TUNNELENDPOINTS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.ids import Key
from liqod.model.objects.meta import MAX_MESSAGE, View
from liqod.model.records.network import (
    GATEWAY_NAME,
    MAX_HOST_NETWORKS,
    UNDECIDED,
    NetworkGateway,
    NetworkGatewayStatus,
    TunnelEndpoint,
    covering,
)


class RecordedFabric(ConvergeLoop):
    """Pod traffic of the gateway's host with all peers, as records say."""

    name = "network agent"

    _log = Logger()

    def __init__(self, host: FabricHost) -> None:
        super().__init__(host)
        client, informers, reactor = host.client, host.informers, host.reactor
        self._client = client
        self._settings = host.settings.network
        self._agent = GatewayAgent(host)
        self._agent.setServiceParent(self)
        self._server = tuple(parse_networks([urlsplit(client.config.server).hostname or ""]))
        self._own_services = self._server if client.config.in_cluster else ()
        self._gateways = MutationCache(informers.of(NETWORKGATEWAYS, NetworkGateway), reactor)
        self._tunnels = MutationCache(informers.of(TUNNELENDPOINTS, TunnelEndpoint), reactor)
        self._status = StatusWriter(client, NETWORKGATEWAYS, NetworkGateway, self._gateways)
        device = TunnelDevice(self._settings.device, self._settings.listen_port)
        self._statuses = TunnelStatuses(client, reactor, self._tunnels, host.wall, device)
        self._refused: dict[str, str] = {}
        self._is_crowded = False
        self.summary = "the first lists of the records are not complete"
        """The current state of this host, in one line."""
        self.ready = Gate()
        """Opens when the kernel was configured by the records for the first time."""

    @property
    def undone(self) -> str:
        return self._agent.losses.sentence

    @property
    def is_forwarding(self) -> bool:
        return self._agent.is_forwarding

    @property
    def converged(self) -> bool:
        """Whether the kernel was configured by the records at least once."""
        return self.ready.is_open

    def sources(self) -> Iterable[Source[str]]:
        # Statuses are our own writes, of every pass: they must not cause the next one.
        yield watch(self._gateways.informer, lambda _, old, new: (HOST,) if _spec(old) != _spec(new) else ())
        yield watch(self._tunnels.informer, self._tunnel_changed)
        yield from self._agent.sources()
        yield always(HOST)

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[str]:
        if new is None:
            self._tunnels.forget(key)
        return (HOST,) if _spec(old) != _spec(new) else ()

    def report(self) -> NetworkReport:
        """Return what was observed on this host last."""
        return self._agent.report()

    def tunnels(self) -> list[TunnelEndpoint]:
        """Return the records of all tunnels."""
        return self._tunnels.items()

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when the records are known."""
        parts = (self._gateways.informer, self._tunnels.informer, self._agent)
        return Deferred.fromCoroutine(together(part.when_synced() for part in parts))

    async def preview(self) -> tuple[HostCommand, ...]:
        """Return what a pass would change on this host now; nothing is changed."""
        if not self._tunnels.items():
            return await self._agent.preview_removal()
        return await self._agent.preview(_usable(self._derived(await self._agent.inspect_host())))

    async def remove_all(self) -> None:
        """Remove all that is ours from this host."""
        await self._agent.clear()

    async def converge(self) -> None:
        lacking = await self._agent.lacking() if self._settings.mode == UNDECIDED and not self._tunnels.items() else ""
        if lacking:
            # Control makes no tunnel then; there is nothing that this host could be asked for.
            self._summarize(f"network: no tunnels: {lacking}")
            await self._write_status(lambda before: NetworkGatewayStatus(address=before.address, lacking=lacking))
            self.ready.open()
            return
        host = await self._agent.inspect_host()
        try:
            await self._follow(host)
        except ExpectedError as error:
            self._summarize(f"network: {error}")
            await self._write_host(host, ready=False, message=str(error))
            raise
        await self._write_host(host, ready=True, message="")
        self.ready.open()

    async def cleanup(self) -> None:
        # As of the daemon that is control as well: the next agent on this host needs the same ports.
        self._agent.close()

    async def _follow(self, host: HostReport) -> None:
        # Control decides from what this host reports: the report comes before there is anything to follow.
        await self._write_host(host)
        records = self._tunnels.items()
        if not records:
            await self._agent.keep_clear(prompted=self.is_prompted)
            self._refused = {}
            self._summarize("network: there is no peer")
            return
        derived = self._derived(host)
        for record in records:
            if (refusal := derived.refused.get(record.metadata.name)) is not None:
                self._warn(record.metadata.name, refusal.message)
                await self._statuses.write_refused(record, refusal.reason, refusal.message)
        self._refused = {name: one.message for name, one in derived.refused.items()}
        report = await self._agent.converge(_usable(derived))
        await self._statuses.write(derived.network.links, report)
        self._summarize(f"network: {len(derived.network.links)} peers, {len(derived.refused)} refused")

    def _derived(self, host: HostReport) -> Derived:
        network = self._settings
        record = self._gateways.get(Key("", GATEWAY_NAME))
        spec = (record or NetworkGateway()).spec
        limits = RecordLimits(
            given=tuple(parse_networks([*network.pools, *network.accept])),
            needed=(*host.needed, *self._server, *parse_networks([*network.reserved, host.address])),
            externals=tuple(parse_networks(filter(None, (network.external_cidr, network.external_cidr_6)))),
            keys=frozenset(filter(None, (host.public_key, host.next_key))),
            closed=network.policy == "closed",
            service_pools=tuple(parse_networks(network.service_pools)),
            own_services=self._own_services,
        )
        return desired_network(spec, self._tunnels.items(), limits, host.mtu)

    def _warn(self, peer: str, message: str) -> None:
        if self._refused.get(peer) != message:
            self._log.warn("the record of the tunnel to {peer} is refused: {detail}", peer=peer, detail=message)

    async def _write_host(self, host: HostReport, *, ready: bool | None = None, message: str = "") -> None:
        """Write what there is of the host; ``ready`` None leaves whether the kernel follows the records as it is."""
        networks = self._networks_of(host)
        await self._write_status(
            lambda before: NetworkGatewayStatus(
                address=host.address,
                public_key=host.public_key,
                next_key=host.next_key,
                mtu=host.mtu,
                networks=networks,
                ready=before.ready if ready is None else ready,
                message=before.message if ready is None else message[:MAX_MESSAGE],
            )
        )

    def _networks_of(self, host: HostReport) -> list[str]:
        """Return what the host needs or reaches, as the record has room for it."""
        exact = covering(host.networks, len(host.networks))
        is_crowded = len(exact) > MAX_HOST_NETWORKS
        if is_crowded and not self._is_crowded:
            self._log.warn(
                "this host reaches {count} networks, and their record has room for {limit}: it has wider ones that "
                "hold them all, none of which a peer is given (TooManyNetworks)",
                count=len(exact),
                limit=MAX_HOST_NETWORKS,
            )
        self._is_crowded = is_crowded
        return [str(one) for one in (covering(exact, MAX_HOST_NETWORKS) if is_crowded else exact)]

    async def _write_status(self, status_after: Callable[[NetworkGatewayStatus], NetworkGatewayStatus]) -> None:
        record = self._gateways.get(Key("", GATEWAY_NAME))
        if record is None:
            body = {"metadata": {"name": GATEWAY_NAME}, "spec": {}}
            try:
                record = await self._client.create(NETWORKGATEWAYS, body, view=NetworkGateway)
            except AlreadyExists:
                return
            self._gateways.wrote(record.key, None, record)
        await self._status.write(record, status_after(record.status))

    def _summarize(self, summary: str) -> None:
        if summary != self.summary:
            self._log.info("{detail}", detail=summary)
        self.summary = summary


def _usable(derived: Derived) -> DesiredNetwork:
    """Return the desired network; raises ExpectedError where this host would have no address: its tunnels would end."""
    if not derived.network.addresses:
        raise ExpectedError("control has not written addresses that this host's settings know: nothing is changed")
    return derived.network


def _spec(record: TunnelEndpoint | NetworkGateway | None) -> View | None:
    return record.spec if record is not None else None
