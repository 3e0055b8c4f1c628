"""The network of the daemon that leads: control, and the gateway's network agent in this process or in another one.

One pass of the converge loop is always the same, whatever it was that changed::

    sync records of peers -> settle who has a tunnel (where nobody has, the host is cleared) -> inspect the host
    -> negotiate (what is assigned is written before it is used)
    -> the agent converges: observe, plan, apply, probe -> record its report

Between the two halves there is nothing but ``DesiredNetwork`` one way, ``HostReport`` and ``NetworkReport`` the other
way (``fabric.state``): as values where both run in this process, else as records. This module alone knows both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred

from liqod.fabric.agent.converge import HOST, ConvergeLoop, FabricHost
from liqod.fabric.agent.gateway import GatewayAgent
from liqod.fabric.agent.kernel.model import HostCommand
from liqod.fabric.agent.tunnel_status import TunnelDevice
from liqod.fabric.agent.tunnel_statuses import TunnelStatuses
from liqod.fabric.control.exported_addresses import ExportedAddresses, NetworkUser
from liqod.fabric.control.network_control import NetworkControl
from liqod.fabric.control.recorded_agent import RecordedAgent
from liqod.fabric.state.report import NetworkAgent, NetworkReport
from liqod.flow.controller import Source, always
from liqod.model.ids import ClusterID
from liqod.model.records.network import UNDECIDED, AddressMap


class Fabric(ConvergeLoop):
    """Pod traffic with all peers, on the host that is the cluster's gateway.

    Attach a ``NetworkUser`` to have addresses exported and to be notified after each pass; call ``refresh`` when what
    it asks for has changed.
    """

    name = "network"

    def __init__(self, host: FabricHost) -> None:
        super().__init__(host)
        client, informers, settings = host.client, host.informers, host.settings
        is_split = settings.daemon.role == "control"
        self._control = NetworkControl(client, host.reactor, informers, settings, is_split=is_split, wall=host.wall)
        self._is_auto = settings.network.mode == UNDECIDED
        self._local: GatewayAgent | None = None
        if is_split:
            self._remote = RecordedAgent(client, host.reactor, informers, self._control.tunnels, host.wall)
            self._agent: NetworkAgent = self._remote
        else:
            self._local = GatewayAgent(host)
            self._local.setServiceParent(self)
            self._agent = self._local
        device = TunnelDevice(settings.network.device, settings.network.listen_port)
        self._statuses = TunnelStatuses(client, host.reactor, self._control.tunnels, host.wall, device)

    def attach(self, user: NetworkUser) -> None:
        """Export what ``user`` asks for, and notify it when what is known about the network may have changed."""
        self._control.exports.user = user

    # For the rest of the daemon.

    @property
    def exports(self) -> ExportedAddresses:
        """The single addresses that peers reach here besides pods."""
        return self._control.exports

    def addresses(self, peer: ClusterID) -> AddressMap:
        """Return how a peer's pod addresses are seen here."""
        return self._control.addresses(peer)

    def map_address(self, peer: ClusterID, address: str) -> str:
        """Return how one pod address of a peer is seen here; empty while that is not known."""
        return self.addresses(peer).seen(address)

    def families(self, peer: ClusterID) -> frozenset[str]:
        """Return the IP families of a peer's pods as Kubernetes names them; none while they are not known."""
        names = {4: "IPv4", 6: "IPv6"}
        return frozenset(names[seen.version] for _, seen in self.addresses(peer).pairs)

    def export_address(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach one of our pod addresses; empty while that is not known."""
        return self._control.export_address(peer, address)

    def translation(self, peer: ClusterID) -> object:
        """Return a value that changes when an address of this cluster or of a peer may read otherwise at the other."""
        return self._control.translation(peer)

    def direct_address(self, lender: ClusterID, address: str) -> tuple[ClusterID, str] | None:
        """Return which other lender has the pod of an address here, and its own address there; None if not direct."""
        return self._control.direct_address(lender, address)

    def home_services(self, peer: ClusterID) -> tuple[bool | None, str, str]:
        """Return whether our pods at a peer call our Services by their addresses (None: not known yet), and why."""
        return self._control.home_services(peer)

    def service_addresses(self, peer: ClusterID) -> AddressMap:
        """Return how a peer's pods call our Services by address; a map that translates nothing while they do not."""
        return self._control.service_addresses(peer)

    def has_tunnel(self, peer: ClusterID) -> bool:
        """Return whether there is a tunnel to a peer, or may be one once that is decided."""
        return self._control.has_tunnel(peer)

    def status(self, peer: ClusterID) -> tuple[bool | None, str]:
        """Return whether packets cross to a peer now (None: not known yet), and a sentence about it."""
        return self._control.status(peer, self._agent.report())

    def report(self) -> NetworkReport:
        """Return what the network agent observed last."""
        return self._agent.report()

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when what was agreed earlier is known."""
        return self._control.when_records_synced()

    async def preview(self) -> tuple[HostCommand, ...]:
        """Return what a pass would change on this host now; nothing is written, neither there nor in the records."""
        await self._control.when_synced()
        if self._local is None:
            return ()
        if not self._control.has_tunnels:
            return await self._local.preview_removal()
        host = await self._local.inspect_host()
        return await self._local.preview(await self._control.preview(host, await self._local.observe()))

    async def remove_all(self) -> None:
        """Remove all that is ours from this host."""
        await self._agent.clear()

    # The converge loop.

    def sources(self) -> Iterable[Source[str]]:
        yield from self._control.sources(HOST)
        if self._local is not None:
            yield from self._local.sources()
        else:
            yield from self._remote.sources(HOST)
        yield always(HOST)

    async def converge(self) -> None:
        await self._control.sync_peers()
        await self._control.settle(await self._agent.lacking() if self._control.is_deciding else "")
        if not self._control.has_tunnels:
            await self._leave_host()
            await self._control.record_no_peers()
            self._control.exports.user.network_changed()
            return
        host = await self._agent.inspect_host()
        desired = await self._control.negotiate(host, self._agent.report())
        report = await self._agent.converge(desired)
        await self._control.record(desired)
        if self._local is not None:
            await self._statuses.write(desired.links, report)
        self._control.exports.user.network_changed()

    @property
    def undone(self) -> str:
        return self._local.losses.sentence if self._local is not None else ""

    @property
    def is_forwarding(self) -> bool:
        return self._local is None or self._local.is_forwarding

    async def _leave_host(self) -> None:
        # A host may be without tunnels because it has nothing to make one with; then nothing of ours is there either.
        if self._local is None:
            await self._agent.clear()
        elif not self._is_auto or self._local.is_equipped():
            await self._local.keep_clear(prompted=self.is_prompted)

    async def cleanup(self) -> None:
        # A pass in progress may have opened sockets. They would be held until the process exits, and the next leader on
        # this host could not bind their port (EADDRINUSE).
        if self._local is not None:
            self._local.close()
