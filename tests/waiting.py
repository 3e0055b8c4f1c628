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


async def becomes(check: Callable[[], Awaitable[T | None]], what: str, patience: float) -> T:
    """Return the first true answer of ``check`` within ``patience`` seconds; a KubeError is a reason to wait."""
    clock = installed_reactor()
    end = clock.seconds() + patience
    last: object = None
    while clock.seconds() < end:
        try:
            if answer := await check():
                return answer
            last = answer
        except KubeError as error:
            last = error
        await deferLater(clock, PAUSE)
    raise FailTest(f"{what}: not within {patience} s; last seen: {last!r}")
