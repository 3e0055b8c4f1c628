"""The convergence loop of a host: observes records and kernel, plans, applies; repeated after each change."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import Settings
from liqod.fabric.agent.kernel.host import Kernel
from liqod.fabric.agent.kernel.preflight import Means
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.controller import After, Controller, ReconcileMetrics
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client

PERIOD: Final = 10.0
"""Seconds after which the kernel is observed again: most of its changes (nftables, WireGuard) are not watched here."""
CLEAR_HOLD: Final = 60.0
"""Seconds for which a host counts as clear: nothing is wanted there, and nothing of ours was found.

Passes go on every PERIOD, by records alone. An observation is a handful of programs, most of what a host without
tunnels takes at rest; all that it could find is what somebody else makes there under our names.
"""
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


def is_observation_due(clear_for: float | None, *, prompted: bool) -> bool:
    """Return whether a pass has to observe a host on which nothing is wanted: pure.

    ``clear_for`` is how many seconds ago an observation showed nothing of ours; None: none did since something was
    wanted. A pass that was ``prompted`` observes what another saw PERIOD ago or earlier; those of a start, one for each
    record of a peer, are closer together.
    """
    return clear_for is None or clear_for >= (PERIOD if prompted else CLEAR_HOLD)


class Clearness:
    """When a host was found clear, while nothing has been wanted there since."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: float | None = None

    def is_observation_due(self, *, prompted: bool) -> bool:
        """Return whether a pass has to observe the host, although nothing is wanted there."""
        clear_for = self._clock.seconds() - self._since if self._since is not None else None
        return is_observation_due(clear_for, prompted=prompted)

    def note(self, since: float) -> None:
        """Note that an observation that began at ``since`` showed nothing of ours."""
        self._since = since

    def forget(self) -> None:
        """Have the next pass observe the host: something is wanted or may be there, or others may have been here."""
        self._since = None


class ConvergeLoop(Controller[str]):
    """One pass at a time: when a source enqueues ``HOST``, every PERIOD, and after a back-off where one failed.

    Stopping leaves the host's network unchanged: it carries the traffic of running workloads.
    """

    def __init__(self, host: FabricHost) -> None:
        super().__init__(host.reactor, metrics=host.metrics)
        self.is_prompted = True
        """Whether something enqueued the pass that runs, or one failed before it; else it is due to the time alone."""
        self._is_next_prompted = True

    @abstractmethod
    async def converge(self) -> None:
        """Observe the records and the kernel, and make the second follow the first."""

    @property
    def undone(self) -> str:
        """What something else on this host removes again and again, as a sentence; empty where nothing does."""
        return ""

    @property
    def is_forwarding(self) -> bool:
        """Whether the host forwards packets, as far as it was looked at."""
        return True

    def enqueue(self, key: str, after: float = 0.0) -> None:
        self._is_next_prompted = True
        super().enqueue(key, after)

    async def reconcile(self, key: str) -> After:
        self.is_prompted, self._is_next_prompted = self._is_next_prompted, False
        try:
            await self.converge()
        except Exception:
            self._is_next_prompted = True
            raise
        return After(PERIOD)

    def refresh(self) -> None:
        """Converge soon: something changed that no source watches."""
        self.enqueue(HOST)
