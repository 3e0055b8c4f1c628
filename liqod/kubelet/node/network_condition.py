"""Debounces the NetworkUnavailable condition of a virtual node: a change shorter than the hold time is not shown."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.node.debounce import Debounced, debounce


class NetworkCondition(Service):
    """Observes the status of the network to one lender; ``state`` is the debounced status.

    ``state`` keeps its message while a reading differs from it for less than the hold time. An unknown status changes
    nothing: a restart of the network does not invalidate the last known status. Where it is decided meanwhile whether
    there is a tunnel (``is_managed``), nothing that held before does.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, status: Latest[Readiness], lender: str, is_managed: Callable[[], bool]
    ) -> None:
        self.state: Latest[Readiness] = Latest(status.value)
        self.usable: Latest[bool] = Latest(_is_usable(status.value))
        """Whether packets reach the lender's pods; True while this is unknown."""
        self._clock = clock
        self._status = status
        self._lender = lender
        self._is_managed = is_managed
        self._was_managed = is_managed()
        self._debounced = Debounced()
        self._timer = Timer(clock)
        self._unsubscribe: Callable[[], None] = lambda: None

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = self._status.subscribe(lambda _: self.refresh())
        self.refresh()

    def stopService(self) -> Deferred[None]:
        self._unsubscribe()
        self._timer.cancel()
        return maybeDeferred(super().stopService)

    def refresh(self) -> None:
        """Re-evaluate the condition, because the status changed or a hold time has passed."""
        if not self.running:
            return
        self._timer.cancel()
        if self._was_managed is not (managed := self._is_managed()):
            self._was_managed, self._debounced = managed, Debounced()
        status, before = self._status.value, self._debounced.value
        reading = status.ready if status.known else None
        self._debounced, again = debounce(self._debounced, reading, self._clock.seconds())
        if again is not None:
            self._timer.start(again, self.refresh)
        value = self._debounced.value
        if before is not None and value is not before:
            self._log.info(
                "the network to {peer} is {state}: {detail}",
                peer=self._lender,
                state="up" if value else "down",
                detail=status.message,
            )
        if value is None or value is status.ready:
            self.state.set(status)
            self.usable.set(_is_usable(status))


def _is_usable(state: Readiness) -> bool:
    return state.ready or not state.known
