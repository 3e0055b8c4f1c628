"""Notifies the service manager's watchdog only while its main task runs and its reactor turns."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.agent.host.sdnotify import Notifier
from liqod.flow.timer import Timer


class Watchdog(Service):
    """Calls ``stuck`` in every interval; it returns why the daemon makes no progress, or "" to notify the watchdog.

    A blocked reactor does not get here, so that the notification is missing as well.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, notifier: Notifier, stuck: Callable[[], str]) -> None:
        self._notifier = notifier
        self._stuck = stuck
        self._timer = Timer(clock)
        self._reported = ""

    def startService(self) -> None:
        super().startService()
        if self._notifier.interval > 0:
            self._check()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._timer.cancel()
        return succeed(None)

    def _check(self) -> None:
        self._timer.start(self._notifier.interval, self._check)
        sentence = self._stuck()
        if not sentence:
            self._notifier.alive()
        elif sentence != self._reported:
            self._log.error("the watchdog is no longer notified: {detail}", detail=sentence)
        self._reported = sentence
