"""What both kinds of host have in common: one loop that makes the kernel follow the records, turn after turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from liqod.fabric.kernel.host import HostKernel, Kernel, apply
from liqod.fabric.kernel.model import Step
from liqod.fabric.kernel.plan import show
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue

PERIOD: Final = 10.0
"""Seconds after which the kernel is looked at again though nothing changed."""
_TURN: Final = "turn"


class Turns(MultiService):
    """One turn at a time: again when something changed, every PERIOD, and later where it failed.

    ``work`` says what is done, for the log. Stopping leaves the data path as it is: it carries the traffic of
    workloads that go on.
    """

    _log = Logger()

    def __init__(self, reactor: Any, kernel: Kernel | None, work: str) -> None:
        super().__init__()
        self._reactor = reactor
        self._kernel: Kernel = kernel if kernel is not None else HostKernel(reactor)
        self._work = work
        self._queue: WorkQueue[str] = WorkQueue(reactor, work)
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._plan: tuple[Step, ...] = ()

    @abstractmethod
    async def _listen(self) -> None:
        """Wait for what a turn needs to know, and have every change of it call ``_poke`` from then on."""

    @abstractmethod
    def _deafen(self) -> None:
        """Listen to nothing any more."""

    @abstractmethod
    async def _turn(self) -> None:
        """Look at the records and at the kernel, and make the second follow the first."""

    def show_plan(self) -> str:
        """Return what the last turn did, in the words of ip, bridge, wg and nft."""
        return show(self._plan)

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._begin(), f"starting: {self._work}")

    async def _begin(self) -> None:
        await self._listen()
        Workers(self._queue, 1, self._once, f"{self._work}:").setServiceParent(self)
        self._poke()

    def stopService(self) -> Deferred[None]:
        self._deafen()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await maybeDeferred(super().stopService)
        self._queue.close()
        # The turn that was under way may have opened what was closed before. It would be held for as long as the
        # process lives, and nobody who leads here later could have it.
        self._deafen()

    def _poke(self) -> None:
        self._queue.add(_TURN)

    async def _once(self, _: str) -> float:
        await self._turn()
        return PERIOD

    async def _carry_out(self, steps: Sequence[Step], why: str) -> None:
        """Do what a plan says, if anything, and say so."""
        self._plan = tuple(steps)
        if self._plan:
            self._log.info("{why} in {steps} steps", why=why, steps=len(self._plan))
            self._log.debug("the network's plan:\n{plan}", plan=show(self._plan))
            await apply(self._kernel, self._plan)
