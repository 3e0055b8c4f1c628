"""A one-shot timer that can be started again, and cancelled at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVarTuple

from twisted.internet.interfaces import IDelayedCall, IReactorTime

Args = TypeVarTuple("Args")


class Timer:
    """Calls a function once, a number of seconds after it was started.

    It is idle again when the function is called, which may start it again. An idle timer has no reference to a
    function, so that it makes no cycle with its owner. Source: ``IReactorTime.callLater``.
    """

    __slots__ = ("_call", "_clock")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._call: IDelayedCall | None = None

    @property
    def running(self) -> bool:
        """Whether a call is pending."""
        return self._call is not None

    def start(self, seconds: float, work: Callable[[*Args], object], *args: *Args) -> None:
        """Call ``work`` after ``seconds``; a pending call is cancelled."""
        self.cancel()
        self._call = self._clock.callLater(seconds, self._fire, work, args)

    def start_unless_running(self, seconds: float, work: Callable[[*Args], object], *args: *Args) -> None:
        """Call ``work`` after ``seconds``, unless a call is pending."""
        if self._call is None:
            self.start(seconds, work, *args)

    def start_if_earlier(self, seconds: float, work: Callable[[*Args], object], *args: *Args) -> None:
        """Call ``work`` after ``seconds``, unless a call is pending that is due by then."""
        if self._call is None or self._call.getTime() > self._clock.seconds() + seconds:
            self.start(seconds, work, *args)

    def cancel(self) -> None:
        """Cancel a pending call, if there is one."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _fire(self, work: Callable[[*Args], object], args: tuple[*Args]) -> None:
        self._call = None
        work(*args)
