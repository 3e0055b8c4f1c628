"""The convergence loop of a host: observes records and kernel, plans, applies; repeated after each change."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final

import attrs

from liqod.config.schema import Settings
from liqod.fabric.agent.kernel.host import Kernel
from liqod.fabric.agent.kernel.preflight import Means
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.controller import After, Controller, ReconcileMetrics
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client

PERIOD: Final = 10.0
"""Seconds after which the kernel is observed again: most of its changes (nftables, WireGuard) are not watched here."""
HOST: Final = "host"
"""The one key of the loop."""


@attrs.frozen(kw_only=True)
class FabricHost:
    """The host that a loop runs on, and the cluster whose records it follows.

    ``address`` is the host's among the cluster's nodes; ``metrics`` count the steps of what runs on it; ``kernel`` None
    is this process's own; ``environ`` tells whether the process runs under systemd, ``means`` what it has for changing
    the network.
    """

    reactor: Reactor
    client: Client
    informers: Informers
    settings: Settings
    address: str
    metrics: ReconcileMetrics
    kernel: Kernel | None = None
    environ: Mapping[str, str] = os.environ
    means: Means = attrs.field(factory=Means)
    wall: WallClock = utc_now


class ConvergeLoop(Controller[str]):
    """One pass at a time: when a source enqueues ``HOST``, every PERIOD, and after a back-off where one failed.

    Stopping leaves the host's network unchanged: it carries the traffic of running workloads.
    """

    def __init__(self, host: FabricHost) -> None:
        super().__init__(host.reactor, metrics=host.metrics)

    @abstractmethod
    async def converge(self) -> None:
        """Observe the records and the kernel, and make the second follow the first."""

    async def reconcile(self, key: str) -> After:
        await self.converge()
        return After(PERIOD)

    def refresh(self) -> None:
        """Converge soon: something changed that no source watches."""
        self.enqueue(HOST)
