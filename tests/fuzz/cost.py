"""What an input costs: the second oracle round every target, beside what the target checks itself.

A decoder of strangers' bytes takes at most ``SECONDS`` of its thread's time and ``BYTES`` of memory for any of up to
``ORDINARY`` bytes, and for a larger one in proportion: what grows faster than its input is a finding at any size.
Time depends on the machine, so the tests count the calls instead, and measure it only where nothing else runs.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

Target = Callable[[bytes], None]

SECONDS: Final = 0.020
BYTES: Final = 32 << 20
CALLS: Final = 100_000
"""Calls of functions, also of those written in C; on a slow machine a call of Python takes some 0.1 us."""
NOTABLE: Final = 0.002
"""Seconds from which on the memory is measured as well: what allocates much takes a while."""
LONG: Final = 3072
"""Bytes of an input whose memory is always measured."""
ORDINARY: Final = 64 << 10
"""Bytes of an input that may take ``SECONDS``: a transport reads as many at a time."""
TIMES: Final = 24
"""Bytes of memory for each byte of an input, beside ``BYTES``: an empty list is 56 bytes, and three of JSON."""


class TooCostly(AssertionError):
    """An input costs more than a stranger may have us pay."""


def timed(target: Target, is_confirmed: Callable[[bytes], bool] = lambda _: True) -> Target:
    """Return a target that raises TooCostly for an input that takes too long, or too much memory.

    What takes too long is run twice again and the best time counts: a machine that is busy is no finding. Then
    ``is_confirmed`` is asked, for a process whose code is slower than that of the daemon; where it says no, what is
    no slower is no finding either.
    """
    slack = 1.0

    def run(data: bytes) -> None:
        nonlocal slack
        took, most = seconds(target, data), seconds_for(len(data))
        if took > slack * most:
            took = min(took, seconds(target, data), seconds(target, data))
            if took > slack * most and is_confirmed(data):
                raise TooCostly(f"{len(data)} bytes take {took * 1000:.0f} ms")
            slack = max(slack, took / most)
        if took > NOTABLE or len(data) > LONG:
            check_memory(target, data)

    return run


def seconds_for(size: int) -> float:
    """Return the seconds of its thread that an input of a size may take."""
    return SECONDS * max(1.0, size / ORDINARY)


def step_of(data: bytes, most: int) -> int:
    """Return the size of the pieces in which an input comes: what its first byte says, up to ``most``, or a thousandth.

    How many pieces there may be is for the bounds of what reads them; here counts what is in them.
    """
    return max((data[0] % most if data else 0) + 1, len(data) >> 10)


def counted(target: Target) -> Target:
    """Return a target that raises TooCostly for too many calls: the same on every machine."""

    def run(data: bytes) -> None:
        count = calls(target, data)
        if count > CALLS:
            raise TooCostly(f"{len(data)} bytes take {count} calls")

    return run


def seconds(target: Target, data: bytes) -> float:
    """Return the time of this thread that an input takes."""
    began = time.thread_time()
    target(data)
    return time.thread_time() - began


def calls(target: Callable[[bytes], object], data: bytes) -> int:
    """Return how many functions an input calls, those in C among them."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        target(data)
    finally:
        sys.setprofile(before)
    return count


def check_memory(target: Target, data: bytes) -> None:
    """Raise TooCostly for an input that takes too much memory at any moment."""
    tracemalloc.start()
    try:
        target(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak > BYTES + TIMES * len(data):
        raise TooCostly(f"{len(data)} bytes take {peak >> 20} MiB of memory")
