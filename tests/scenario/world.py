"""One virtual clock, and one thing happening after the other: the same run every time, as fast as it computes.

Everything that happens is an *event* in one queue, ordered by its time and then by when it was planned. Each belongs to
the one that planned it, so that it can be dropped or held back with its owner.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer


class Owner(Protocol):
    """Whose events run, are held back, or are dropped."""

    def admits(self, event: Event) -> bool: ...


@implementer(IDelayedCall)
class Event:
    """Something planned for a moment; what a reactor's ``callLater`` returns."""

    __slots__ = ("_world", "call", "moment", "number", "owner", "state")

    def __init__(self, world: World, moment: float, owner: Owner | None, call: Callable[[], object]) -> None:
        self._world = world
        self.owner = owner
        self.call: Callable[[], object] | None = call
        self.moment = moment
        self.number = 0
        self.state = "waiting"

    def getTime(self) -> float:
        return self.moment

    def active(self) -> bool:
        return self.state == "waiting"

    def cancel(self) -> None:
        self._check()
        self.drop()

    def drop(self) -> None:
        """Make sure that it never happens."""
        self.state = "cancelled"
        self.call = None

    def reset(self, seconds: float) -> None:
        self._check()
        self._world.plan(self, self._world.now + seconds)

    def delay(self, seconds: float) -> None:
        self._check()
        self._world.plan(self, self.moment + seconds)

    def _check(self) -> None:
        if self.state == "called":
            raise AlreadyCalled
        if self.state == "cancelled":
            raise AlreadyCancelled


class World:
    """The queue of events; ``now`` is the time of day in seconds since 1970, ``steps`` how many events there were."""

    _log = Logger()

    def __init__(self, now: float) -> None:
        self.now = now
        self.steps = 0
        self._queue: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count(1)

    def call(
        self, seconds: float, owner: Owner | None, call: Callable[..., object], *args: Any, **kwargs: Any
    ) -> Event:
        """Plan a call so many seconds from now."""
        whole = (lambda: call(*args, **kwargs)) if args or kwargs else call
        event = Event(self, self.now + seconds, owner, whole)
        self.plan(event, event.moment)
        return event

    def plan(self, event: Event, moment: float) -> None:
        """Plan an event, or plan it again: of several entries in the queue the one with its number counts."""
        event.moment = moment
        event.number = next(self._numbers)
        heapq.heappush(self._queue, (moment, event.number, event))

    def step(self) -> bool:
        """Let the next event happen; returns False when nothing is planned."""
        while self._queue:
            moment, number, event = heapq.heappop(self._queue)
            if event.state != "waiting" or event.number != number:
                continue
            self.now = max(self.now, moment)
            if event.owner is not None and not event.owner.admits(event):
                continue
            call, event.call, event.state = event.call, None, "called"
            self.steps += 1
            try:
                if call is not None:
                    call()
            except Exception:
                self._log.failure("an event failed")
            return True
        return False

    def next_moment(self) -> float | None:
        """Return when the next event is planned, or None."""
        while self._queue:
            moment, number, event = self._queue[0]
            if event.state == "waiting" and event.number == number:
                return moment
            heapq.heappop(self._queue)
        return None

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while (moment := self.next_moment()) is not None and moment <= end:
            self.step()
        self.now = end

    def until(self, holds: Callable[[], object], seconds: float, *, look: float = 0.02) -> float | None:
        """Let time pass until something holds, looking now and then; returns the seconds, None when it was too long."""
        begin = self.now
        while not holds():
            if self.now - begin >= seconds:
                return None
            moment = self.next_moment()
            pause = look if moment is None else max(look, min(moment, begin + seconds) - self.now)
            self.run(pause)
        return self.now - begin
