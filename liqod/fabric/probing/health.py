"""Whether packets cross to a peer, how fast, and how large they may be, from probes and their answers. Pure.

A probe is answered by the far end of the tunnel, through the address translation of both sides. The path MTU is found
by halving: a size that came back is possible, one that was lost while a small probe came back is not.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

INTERVAL: Final = 1.0
"""Seconds between two probes of one peer."""
SILENCE: Final = 5.0
"""Seconds without any answer after which nothing crosses any more."""
WINDOW: Final = 30
SMALL: Final = 64
LEAST: Final = 576
STEP: Final = 8
"""The path MTU is searched to this precision, in bytes."""
AGAIN: Final = 20
"""Every so many probes the largest size is tried, to see a path that shrank, or grew again."""


@attrs.define
class _Sent:
    size: int
    at: float


@attrs.define
class Health:
    """What the probes of one peer told. ``largest`` is the device's MTU, ``since`` when probing began (seconds)."""

    largest: int
    since: float
    heard: float | None = None
    rtt: float | None = None
    mtu: int = 0
    _under_way: dict[int, _Sent] = attrs.field(factory=dict, init=False)
    _results: deque[bool] = attrs.field(factory=lambda: deque(maxlen=WINDOW), init=False)
    _count: int = attrs.field(default=0, init=False)
    _low: int = attrs.field(default=LEAST, init=False)
    _high: int = attrs.field(default=0, init=False)
    _misses: dict[int, int] = attrs.field(factory=dict, init=False)

    def next_size(self) -> int:
        """Return the size of the next probe, as a whole IP packet: small ones and large ones take turns."""
        self._count += 1
        if self._count % 2:
            return SMALL
        if not self._high:
            self._high = self.largest
            return self.largest
        if self._high - self._low >= STEP and self.mtu == 0:
            return (self._low + self._high + 1) // 2
        if self._count % AGAIN == 0:
            return self.largest
        return self.mtu or self.largest

    def sent(self, token: int, size: int, now: float) -> None:
        """Note a probe; those that were never answered are counted as lost."""
        for old in [one for one, probe in self._under_way.items() if now - probe.at > 2 * INTERVAL]:
            self._lost(self._under_way.pop(old).size)
        self._under_way[token] = _Sent(size, now)

    def answered(self, token: int, now: float) -> bool:
        """Note an answer; False for one that nobody waits for."""
        probe = self._under_way.pop(token, None)
        if probe is None:
            return False
        self.heard = now
        if probe.size == SMALL:
            self._results.append(True)
            took = now - probe.at
            self.rtt = took if self.rtt is None else 0.8 * self.rtt + 0.2 * took
        else:
            self._passed(probe.size)
        return True

    def _passed(self, size: int) -> None:
        self._misses.clear()
        self._low = max(self._low, size)
        if size >= self.largest:
            self._low = self._high = self.largest
            self.mtu = self.largest
        elif self._high - self._low < STEP:
            self.mtu = self._low

    def _lost(self, size: int) -> None:
        if size == SMALL:
            self._results.append(False)
            return
        # A large one counts only against its size, and only when small ones pass.
        if self.loss > 0.2:
            return
        misses = self._misses[size] = self._misses.get(size, 0) + 1
        if misses < 2 and self.mtu:
            return
        self._misses.pop(size, None)
        if self.mtu and size <= self.mtu:
            self.mtu, self._low, self._high = 0, LEAST, size
        elif size < self._high or not self.mtu:
            self._high = min(self._high, size)
            if self._high - self._low < STEP:
                self.mtu = self._low

    @property
    def loss(self) -> float:
        """The share of the latest small probes that were not answered."""
        return self._results.count(False) / len(self._results) if self._results else 0.0

    def crosses(self, now: float) -> bool:
        """Tell whether packets cross now."""
        return self.heard is not None and now - self.heard < SILENCE

    def fresh(self, now: float) -> bool:
        """Tell whether probing has only just begun: what was known before holds until there was time for an answer."""
        return self.heard is None and now - self.since < SILENCE

    def undecided(self, now: float) -> bool:
        """Tell whether it is too early to say that nothing crosses."""
        return self.heard is None and now - self.since < 2 * SILENCE


def rtt_in_words(seconds: float | None) -> str:
    """Return a round trip as a step of a scale, so that what is shown changes seldom."""
    if seconds is None:
        return ""
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    return next((f"under {step} ms" for step in steps if seconds * 1000 < step), "over 500 ms")


def loss_in_words(share: float) -> str:
    """Return a loss as a step of a scale."""
    scale = ((0.0, "0 %"), (0.1, "under 10 %"), (0.5, "under 50 %"))
    return next((words for limit, words in scale if share <= limit), "over 50 %")
