"""Compare two measurements of offloading, so that a regression of a tenth is seen and noise is not taken for one.

    python -m benchmarks compare BEFORE.json AFTER.json [--part 0.10]

Times and CPU are divided by those of the local pods of the same repetition, so that a slower machine or hour is no
difference; requests and memory are taken as they are, and so are all figures of other benchmarks. A figure is worse
when its median grew by at least the given part *and* by more than the noise: the greater of the two spreads (half the
distance between the quartiles of all repetitions). Where there are too few repetitions to know it, that is shown.
The exit status is 1 when a figure is worse.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.figures.measure import table

RELATIVE: Final = {
    "seconds": "seconds",
    "CPU ms/pod": "CPU ms/pod",
    "CPU ms/pod until quiet": "CPU ms/pod",
    "liqod CPU ms/pod": "CPU ms/pod",
}
"""Figures of time, and the figure of the local pods that each is divided by."""
ENOUGH: Final = 3
"""Repetitions from which a spread can be known."""
ROUNDING: Final = 1e-9
"""The part by which a quotient of figures may be off."""


class Verdict(Enum):
    """What a comparison shows."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    UNKNOWN = "too few repetitions"


@attrs.frozen
class Difference:
    """One figure before and after; ``change`` is the part by which the median grew."""

    name: str
    before: float
    after: float
    noise: float
    verdict: Verdict

    @property
    def change(self) -> float:
        return self.after / self.before - 1 if self.before else 0.0


def samples(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the values of every figure, by ``QPS PODS WHERE FIGURE``; relative ones over the local run before."""
    found: dict[str, list[float]] = defaultdict(list)
    local: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    counted: dict[tuple[int, int, str], int] = defaultdict(int)
    for one in runs:
        place = (one["qps"], one["pods"])
        if one["where"] == "local":
            local[place].append(one)
            continue
        number = counted[(*place, one["where"])]
        counted[(*place, one["where"])] += 1
        beside = local[place][number] if number < len(local[place]) else None
        for figure, value in one.items():
            if figure in ("qps", "pods", "where"):
                continue
            if figure in RELATIVE and beside is not None:
                value = value / beside[RELATIVE[figure]]
            found[f"{one['qps'] or 'stock'} {one['pods']} {one['where']} {figure}"].append(float(value))
    return found


Samples = Mapping[str, Sequence[float]]


def samples_of(measured: Mapping[str, Any]) -> Samples:
    """Return the values of every figure of a file, of this benchmark or of another one."""
    figures: Samples | None = measured.get("figures")
    return samples(measured["runs"]) if figures is None else figures


def compare(before: Samples, after: Samples, part: float) -> list[Difference]:
    """Return the differences of all figures that both have."""
    return [_difference(name, before[name], after[name], part) for name in before if name in after]


def _difference(name: str, before: Sequence[float], after: Sequence[float], part: float) -> Difference:
    old, new = statistics.median(before), statistics.median(after)
    noise = max(spread(before), spread(after))
    if min(len(before), len(after)) < ENOUGH:
        verdict = Verdict.UNKNOWN
    elif abs(new - old) <= noise or abs(new - old) < (part - ROUNDING) * old:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.WORSE if new > old else Verdict.BETTER
    return Difference(name, old, new, noise, verdict)


def spread(values: Sequence[float]) -> float:
    """Return half the distance between the quartiles; 0 where there are too few values to know it."""
    if len(values) < ENOUGH:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--part", type=float, default=0.10, help="the least that counts as a difference")
    args = parser.parse_args()
    read = [json.loads(file.read_text()) for file in (args.before, args.after)]
    found = compare(samples_of(read[0]), samples_of(read[1]), args.part)
    print(f"{read[0]['commit']} -> {read[1]['commit']}")
    rows = [[one.name, one.before, one.after, f"{one.change:+.0%}", one.noise, one.verdict.value] for one in found]
    print(table(("figure", "before", "after", "change", "noise", ""), rows))
    sys.exit(1 if any(one.verdict is Verdict.WORSE for one in found) else 0)


if __name__ == "__main__":
    main()
