"""Whether offloading costs little enough: medians and spreads of the repetitions, ratios, and what misses a goal. Pure.

A ratio is that of one repetition, to the local pods and to the floor of the same one, so that an hour in which the
machine was slower is no difference; shown is the median of these.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from benchmarks.figures.compare import ENOUGH, spread
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
    """One figure of all repetitions at a request rate and a number of pods, by where the pods were."""

    qps: int
    pods: int
    figure: str
    values: Mapping[str, Sequence[float]]

    def ratio(self, where: str) -> float | None:
        """Return the median of what offloading took, over what another place took in the same repetition."""
        pairs = zip(self.values["offloaded"], self.values[where], strict=False)
        found = [offloaded / other for offloaded, other in pairs if other > 0]
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

    @property
    def repetitions(self) -> int:
        """How often it was measured."""
        return len(self.values["offloaded"])


def summaries(runs: Iterable[Mapping[str, Any]]) -> list[Summary]:
    """Return the summaries of runs in the form that ``report.save`` writes, by request rate and pods."""
    found: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for one in runs:
        found.setdefault((one["qps"], one["pods"]), []).append(one)
    return [
        Summary(
            qps=qps,
            pods=pods,
            figure=figure,
            values={where: [one[figure] for one in here if one["where"] == where] for where in PLACES},
        )
        for (qps, pods), here in sorted(found.items())
        for figure in FIGURES
    ]


def rendered(found: Sequence[Summary]) -> str:
    """Return the summaries as a table, and a sentence on what is missed."""
    rows = [
        (
            *(one.qps or "stock", one.pods, one.figure),
            *(_shown(one.values[where]) for where in PLACES),
            *(_times(one.ratio(where)) for where in ("floor", "local")),
            ", ".join(one.missed),
        )
        for one in found
    ]
    missed = sum(bool(one.missed) for one in found)
    few = min((one.repetitions for one in found), default=0) < ENOUGH
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
