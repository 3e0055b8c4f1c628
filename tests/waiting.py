"""Waits for what an API server or a daemon does in its own time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from twisted.internet.task import deferLater
from twisted.trial.unittest import FailTest

from liqod.flow.clocks import installed_reactor
from liqod.kube.errors import KubeError

T = TypeVar("T")
PAUSE: Final = 0.05
"""Seconds between two checks."""
BUSY: Final = 3.0
"""How many times longer a wait may take on a machine that is busy with other tests; no test measures time by it."""


async def becomes(check: Callable[[], Awaitable[T | None]], what: str, patience: float) -> T:
    """Return the first true answer of ``check``; a KubeError is a reason to wait.

    Raises FailTest when there is none in ``patience`` seconds, on a busy machine ``BUSY`` times as many.
    """
    clock = installed_reactor()
    end = clock.seconds() + patience * BUSY
    last: object = None
    while clock.seconds() < end:
        try:
            if answer := await check():
                return answer
            last = answer
        except KubeError as error:
            last = error
        await deferLater(clock, PAUSE)
    raise FailTest(f"{what}: not within {patience * BUSY} s; last seen: {last!r}")
