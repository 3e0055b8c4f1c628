"""Feeds the service manager's watchdog only while the daemon gets on with its work."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from liqod.agent.host.sdnotify import Notifier


class Watchdog(Service):
    """Asks ``stuck`` at every turn; an empty answer feeds the watchdog, a sentence lets it starve.

    A blocked reactor never comes here at all, which starves it as well.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, notifier: Notifier, stuck: Callable[[], str]) -> None:
        self._clock = clock
        self._notifier = notifier
        self._stuck = stuck
        self._timer: IDelayedCall | None = None
        self._said = ""

    def startService(self) -> None:
        super().startService()
        if self._notifier.interval > 0:
            self._turn()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return succeed(None)

    def _turn(self) -> None:
        self._timer = self._clock.callLater(self._notifier.interval, self._turn)
        sentence = self._stuck()
        if not sentence:
            self._notifier.alive()
        elif sentence != self._said:
            self._log.error("the watchdog is not fed any more: {why}", why=sentence)
        self._said = sentence
