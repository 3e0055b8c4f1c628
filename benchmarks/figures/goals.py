"""Whether offloading costs little enough: medians and spreads of the repetitions, ratios, and what misses a goal. Pure.

A ratio is that of one repetition, to the local pods and to the floor of the same one, so that an hour in which the
machine was slower is no difference; shown is the median of these.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from benchmarks.figures.compare import ENOUGH, Record, repetitions, spread
from benchmarks.figures.measure import table

TIMES_FLOOR: Final = 1.15
TIMES_LOCAL: Final = 2.6
"""How many times the floor, and the local pods, offloading may take."""
GOALS: Final[Mapping[str, float]] = {"floor": TIMES_FLOOR, "local": TIMES_LOCAL}
PLACES: Final = ("local", "floor", "offloaded")
FIGURES: Final = ("seconds", "CPU ms/pod")
HEAD: Final = ("QPS", "pods", "figure", *PLACES, "times the floor", "times local", "misses")


@frozen(kw_only=True)
class Summary:
    """One figure at a request rate and a number of pods: of each repetition, by where the pods were."""

    qps: int
    pods: int
    figure: str
    repetitions: Sequence[Mapping[str, float]]

    def values(self, where: str) -> list[float]:
        """Return what it was at a place in the repetitions that were there."""
        return [one[where] for one in self.repetitions if where in one]

    def ratio(self, where: str) -> float | None:
        """Return the median of what offloading took, over what another place took in the same repetition."""
        both = [one for one in self.repetitions if "offloaded" in one and one.get(where, 0.0) > 0]
        found = [one["offloaded"] / one[where] for one in both]
        return statistics.median(found) if found else None

    @property
    def missed(self) -> list[str]:
        """The goals that are missed."""
        found = []
        for where, most in GOALS.items():
            ratio = self.ratio(where)
            if ratio is not None and ratio > most:
                found.append(f"{most:g} times {'the floor' if where == 'floor' else where}")
        return found


def summaries(runs: Iterable[Record]) -> list[Summary]:
    """Return the summaries of runs in the form that ``report.save`` writes, by request rate and pods."""
    return [
        Summary(
            qps=qps,
            pods=pods,
            figure=figure,
            repetitions=[{where: float(one[figure]) for where, one in each.items()} for each in here],
        )
        for (qps, pods), here in sorted(repetitions(runs).items())
        for figure in FIGURES
    ]


def rendered(found: Sequence[Summary]) -> str:
    """Return the summaries as a table, and a sentence on what is missed."""
    rows = [
        (
            *(one.qps or "stock", one.pods, one.figure),
            *(_shown(one.values(where)) for where in PLACES),
            *(_times(one.ratio(where)) for where in ("floor", "local")),
            ", ".join(one.missed),
        )
        for one in found
    ]
    missed = sum(bool(one.missed) for one in found)
    few = min((len(one.values("offloaded")) for one in found), default=0) < ENOUGH
    limits = f"{TIMES_FLOOR:g} times the floor, {TIMES_LOCAL:g} times local"
    text = f"{missed} of {len(found)} figures miss a goal ({limits})."
    more = f" With fewer than {ENOUGH} repetitions no spread is known." if few else ""
    return f"{table(HEAD, rows)}\n\n{text}{more}"


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    known = f" ± {spread(values):.2g}" if len(values) >= ENOUGH else ""
    return f"{statistics.median(values):.3g}{known}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
