"""Counts what becomes of changes at home: how long until a lender has them, and what failed there, by kind."""

from __future__ import annotations

from collections import Counter
from typing import Final

from attrs import field, frozen

from liqod.flow.distribution import Distribution

LAGS: Final = (0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
"""Upper bounds, in seconds, of the time until a lender has a change: few, since each is a series for each kind."""


@frozen
class ReflectionCounts:
    """The counts of all virtual kubelets of a daemon, by the kind of an object: a kubelet that ends takes none away."""

    lags: dict[str, Distribution] = field(factory=dict)
    """Seconds from a change at home to the answer of the lender that has it."""
    failures: Counter[tuple[str, str]] = field(factory=Counter)
    """Failed writes at lenders, and what is not written there, by kind and reason."""

    def arrived(self, kind: str, seconds: float) -> None:
        """Count a change that a lender has."""
        if (lags := self.lags.get(kind)) is None:
            lags = self.lags[kind] = Distribution(LAGS)
        lags.observe(seconds)

    def failed(self, kind: str, reason: str) -> None:
        """Count a failure; an empty reason is none."""
        if reason:
            self.failures[kind, reason] += 1
