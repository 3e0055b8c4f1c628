"""How a figure grows: a power of the size, or a line, by least squares. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

CONSTANT: Final = 0.15
"""Exponents up to this count as no growth: a measured figure that stays is never quite the same."""
LINEAR: Final = (0.85, 1.15)
"""Exponents between these count as linear."""
SQUARE: Final = 1.85

Points = Sequence[tuple[float, float]]
"""Sizes, and the figure at each."""


@frozen
class Power:
    """``factor * size ** exponent``; ``off`` is how many times too high or too low it is at the worst of the points."""

    factor: float
    exponent: float
    off: float

    def at(self, size: float) -> float:
        """Return the figure at a size."""
        return self.factor * math.pow(size, self.exponent)

    @property
    def shape(self) -> str:
        """How it grows, in words."""
        if abs(self.exponent) <= CONSTANT:
            return "stays"
        if self.exponent < 0:
            return "falls"
        if self.exponent < LINEAR[0]:
            return "less than linear"
        if self.exponent <= LINEAR[1]:
            return "linear"
        return "more than linear" if self.exponent < SQUARE else "square or more"


@frozen
class Line:
    """``offset + slope * size``."""

    offset: float
    slope: float

    def at(self, size: float) -> float:
        """Return the figure at a size."""
        return self.offset + self.slope * size


def power(points: Points) -> Power | None:
    """Return the power that fits best on logarithms; None with fewer than two sizes at which there is anything."""
    logs = [(math.log(size), math.log(value)) for size, value in points if size > 0 and value > 0]
    found = line(logs)
    if found is None:
        return None
    off = max(abs(found.at(size) - value) for size, value in logs)
    return Power(math.exp(found.offset), found.slope, math.exp(off))


def line(points: Points) -> Line | None:
    """Return the line that fits best; None with fewer than two different sizes."""
    if len({size for size, _ in points}) < 2:
        return None
    middle, level = (_mean(values) for values in zip(*points, strict=True))
    wide = math.fsum((size - middle) ** 2 for size, _ in points)
    if wide == 0:  # sizes that differ by less than a float can tell
        return None
    slope = math.fsum((size - middle) * (value - level) for size, value in points) / wide
    return Line(level - slope * middle, slope)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known)
