"""Writes the status of the tunnels' records; an unchanged one is not written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.agent.tunnel_status import Moment, TunnelDevice, same_but_measurements, tunnel_status
from liqod.fabric.state.network import Link
from liqod.fabric.state.report import NetworkReport
from liqod.flow.clocks import WallClock
from liqod.kube.client import Client
from liqod.kube.resources import TUNNELENDPOINTS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.status_writer import StatusWriter, require
from liqod.model.ids import Key
from liqod.model.objects.meta import MAX_MESSAGE, Condition, set_condition
from liqod.model.records.network import TunnelEndpoint, TunnelEndpointStatus
from liqod.model.timestamps import rfc3339

MEASUREMENT_INTERVAL: Final = 30.0
"""Seconds between two writes of a tunnel's status for measurements alone."""


class TunnelStatuses:
    """The statuses of all TunnelEndpoints. ``device`` is the tunnel's."""

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        tunnels: MutationCache[TunnelEndpoint],
        wall: WallClock,
        device: TunnelDevice,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._device = device
        self._tunnels = tunnels
        self._writer = StatusWriter(client, TUNNELENDPOINTS, TunnelEndpoint, tunnels)
        self._measured: dict[str, float] = {}

    async def write(self, links: Iterable[Link], report: NetworkReport) -> None:
        """Write how the tunnels of these links are; those whose record is not there yet are left out."""
        names = set()
        for link in links:
            names.add(str(link.peer))
            record = self._tunnels.get(Key("", link.peer))
            if record is None:
                continue
            moment = Moment(self._clock.seconds(), self._wall())
            await self._write(record, tunnel_status(link, report, record.status, self._device, moment))
        for name in self._measured.keys() - names:
            del self._measured[name]

    async def write_refused(self, record: TunnelEndpoint, reason: str, message: str) -> None:
        """Write that a record is not carried out on this host, and why."""
        condition = Condition(type="Connected", status="False", reason=reason, message=message)
        status = TunnelEndpointStatus(
            phase="Error",
            reason=reason,
            message=message,
            device=self._device.name,
            conditions=set_condition(record.status.conditions, condition, rfc3339(self._wall())),
        )
        await self._write(record, status)

    async def _write(self, record: TunnelEndpoint, status: TunnelEndpointStatus) -> None:
        peer, now = record.metadata.name, self._clock.seconds()
        status = msgspec.structs.replace(status, message=status.message[:MAX_MESSAGE])
        if status == record.status:
            return
        recent = now - self._measured.get(peer, -MEASUREMENT_INTERVAL) < MEASUREMENT_INTERVAL
        if same_but_measurements(status, record.status) and recent:
            return
        if status.phase != record.status.phase:
            state = {"Connected": "up", "Error": "down"}.get(status.phase, "not known yet")
            self._log.info("network to {peer} is {state}: {detail}", peer=peer, state=state, detail=status.message)
        self._measured[peer] = now
        require(await self._writer.write(record, status))
