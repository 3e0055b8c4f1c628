"""Reachability, round-trip time and path MTU of a peer, from probes and their answers. Pure.

A probe is answered by the far end of the tunnel, through the address translation of both sides. The path MTU is found
by halving: a size that came back is possible, one that was lost while a small probe came back is not. This is packet
layer path MTU discovery (RFC 4821): it needs no ICMP messages, which firewalls between clusters tend to drop.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

from liqod.fabric.state.report import ProbeResult

INTERVAL: Final = 1.0
"""Seconds between two probes of one peer."""
WINDOW: Final = 30
"""Small probes that the loss is counted over."""
SMALL: Final = 64
"""Bytes of a small probe, as a whole IP packet: it fits any path MTU."""
MIN_SIZE: Final = 576
"""Bytes from which the path MTU is searched: every IPv4 host takes as much (RFC 791)."""
MTU_STEP: Final = 8
"""The path MTU is searched to this precision, in bytes."""
RETRY_LARGEST_EVERY: Final = 20
"""Every so many probes the largest size is tried, to see a path that shrank, or grew again."""


@attrs.define
class _Sent:
    size: int
    at: float


@attrs.define
class Health:
    """What the probes of one peer found. ``largest`` is the device's MTU, ``since`` when probing began (seconds).

    ``is_forwarding``: the far end does not say that it forwards nothing.
    """

    largest: int
    since: float
    answered_at: float | None = None
    rtt: float | None = None
    mtu: int = 0
    is_forwarding: bool = attrs.field(default=True, kw_only=True)
    _in_flight: dict[int, _Sent] = attrs.field(factory=dict, init=False)
    _results: deque[bool] = attrs.field(factory=lambda: deque(maxlen=WINDOW), init=False)
    _count: int = attrs.field(default=0, init=False)
    _low: int = attrs.field(default=MIN_SIZE, init=False)
    _high: int = attrs.field(default=0, init=False)
    _misses: dict[int, int] = attrs.field(factory=dict, init=False)

    @property
    def result(self) -> ProbeResult:
        """What is known now, as a value."""
        return ProbeResult(
            self.since, self.answered_at, self.rtt, self.loss, self.mtu, is_forwarding=self.is_forwarding
        )

    def next_size(self) -> int:
        """Return the size of the next probe, as a whole IP packet: small ones and large ones take turns."""
        self._count += 1
        if self._count % 2:
            return SMALL
        if not self._high:
            self._high = self.largest
            return self.largest
        if self._high - self._low >= MTU_STEP and self.mtu == 0:
            return (self._low + self._high + 1) // 2
        if self._count % RETRY_LARGEST_EVERY == 0:
            return self.largest
        return self.mtu or self.largest

    def sent(self, token: int, size: int, now: float) -> None:
        """Note a probe; those that were never answered are counted as lost."""
        for old in [one for one, probe in self._in_flight.items() if now - probe.at > 2 * INTERVAL]:
            self._lost(self._in_flight.pop(old).size)
        self._in_flight[token] = _Sent(size, now)

    def answered(self, token: int, now: float) -> bool:
        """Note an answer; return False for one to no probe that is in flight."""
        probe = self._in_flight.pop(token, None)
        if probe is None:
            return False
        self.answered_at = now
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
        elif self._high - self._low < MTU_STEP:
            self.mtu = self._low

    def _lost(self, size: int) -> None:
        if size == SMALL:
            self._results.append(False)
            return
        # A large one counts against its size only while small ones pass: on a lossy path size is not the cause.
        if self.loss > 0.2:
            return
        misses = self._misses[size] = self._misses.get(size, 0) + 1
        if misses < 2 and self.mtu:
            return
        self._misses.pop(size, None)
        if self.mtu and size <= self.mtu:
            self.mtu, self._low, self._high = 0, MIN_SIZE, size
        elif size < self._high or not self.mtu:
            self._high = min(self._high, size)
            if self._high - self._low < MTU_STEP:
                self.mtu = self._low

    @property
    def loss(self) -> float:
        """The share of the latest small probes that were not answered."""
        return self._results.count(False) / len(self._results) if self._results else 0.0
