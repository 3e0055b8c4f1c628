"""Whether packets cross to the pods at a lender, as virtual node and pods show it: the fabric's word, steadied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.node.debounce import Steady, follow


class Crossing(Service):
    """Keeps ``state``: what the network counts as now. ``ask`` is the fabric's word; ``look`` when it may have changed.

    While the fabric's word wavers ``state`` keeps the word that counts.
    """

    _log = Logger()

    def __init__(self, reactor: Any, ask: Callable[[], Readiness], what: str) -> None:
        self.state: Latest[Readiness] = Latest(ask())
        self._reactor = reactor
        self._ask = ask
        self._what = what
        self._steady = Steady()
        self._timer: IDelayedCall | None = None

    def startService(self) -> None:
        super().startService()
        self.look()

    def stopService(self) -> Deferred[None]:
        self._disarm()
        return maybeDeferred(super().stopService)

    def look(self) -> None:
        """The fabric's word may have changed."""
        if not self.running:
            return
        self._disarm()
        word = self._ask()
        before = self._steady.shown
        self._steady, again = follow(self._steady, word.ready if word.known else None, self._reactor.seconds())
        if again is not None:
            self._timer = self._reactor.callLater(again, self.look)
        shown = self._steady.shown
        if before is not None and shown is not before:
            told = "again" if shown else "no more"
            self._log.info(
                "packets cross to the pods at {what} {told}: {why}", what=self._what, told=told, why=word.message
            )
        if shown is None or shown is word.ready:
            self.state.set(word)

    def _disarm(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
