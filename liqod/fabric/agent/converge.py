"""The convergence loop of a host: observes records and kernel, plans, applies; repeated after each change."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from liqod.flow.controller import After, Controller

PERIOD: Final = 10.0
"""Seconds after which the kernel is observed again: most of its changes (nftables, WireGuard) are not watched here."""
HOST: Final = "host"
"""The one key of the loop."""


class ConvergeLoop(Controller[str]):
    """One pass at a time: when a source enqueues ``HOST``, every PERIOD, and after a back-off where one failed.

    Stopping leaves the host's network unchanged: it carries the traffic of running workloads.
    """

    @abstractmethod
    async def converge(self) -> None:
        """Observe the records and the kernel, and make the second follow the first."""

    async def reconcile(self, key: str) -> After:
        await self.converge()
        return After(PERIOD)

    def refresh(self) -> None:
        """Converge soon: something changed that no source watches."""
        self.enqueue(HOST)
