"""Counts values by upper bound, as a histogram of Prometheus has them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

import attrs


@attrs.define
class Distribution:
    """How many values were at most each of ``bounds``, which ascend, and how many were larger."""

    bounds: tuple[float, ...]
    total: float = attrs.field(default=0.0, init=False)
    """The sum of all values."""
    _counts: list[int] = attrs.field(init=False)

    @_counts.default
    def _none(self) -> list[int]:
        return [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.total += value
        self._counts[bisect_left(self.bounds, value)] += 1

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound with the number of values that were not larger; the last bound is infinite."""
        return zip((*self.bounds, math.inf), accumulate(self._counts), strict=True)
