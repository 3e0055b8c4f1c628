"""The converge loop of a host: observes records and kernel, plans, applies; again when something changed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from liqod.flow.controller import After, Controller

PERIOD: Final = 10.0
"""Seconds after which the kernel is observed again though nothing changed: it notifies of few of its changes."""
HOST: Final = "host"
"""The one key of the loop."""


class ConvergeLoop(Controller[str]):
    """One pass at a time: when a source enqueues ``HOST``, every PERIOD, and after a back-off where one failed.

    Stopping leaves the host's network as it is: it carries the traffic of workloads that go on.
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
