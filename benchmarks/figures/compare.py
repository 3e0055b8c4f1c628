"""Compare two measurements, so that a regression of a tenth is seen and noise is not taken for one.

    python -m benchmarks compare BEFORE.json AFTER.json [--part 0.10]

Times and CPU are divided by those of the local pods of the same repetition, so that a slower machine or hour is no
difference; requests and memory are taken as they are, and so are all figures of other benchmarks. A figure is worse
when its median grew by at least the given part *and* by more than the noise: what two medians of so many repetitions
differ by in nineteen of twenty cases when nothing has changed. It is the same when it did not, and the noise is below
that part; where the noise is not, nobody can tell, and more repetitions are what helps. What only one file has is
named. The exit status is 1 when a figure is worse, and 3 when nothing can be said of any.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
ABSOLUTE: Final = ", without local pods"
"""What the name of such a figure ends with that has no local pods to be divided by: it is another figure."""
BESIDE: Final = frozenset({"qps", "pods", "where", "processes, CPU ms/pod"})
"""What stands beside the figures of a run: what it was, and the parts of one of them."""
ENOUGH: Final = 3
"""Repetitions from which a spread can be known."""
ROUNDING: Final = 1e-9
"""The part by which a quotient of figures may be off."""
MEDIAN: Final = 1.2533 / 0.6745
"""The standard error of the median of n values is this many times their spread, divided by the root of n.

That is 1.2533 (the root of half of pi) standard deviations, of which the spread is 0.6745; both as of a normal
distribution.
"""
CERTAIN: Final = 1.96
"""Standard errors that nineteen of twenty differences are within."""


class Verdict(Enum):
    """What a comparison shows."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NOISY = "cannot tell: noise"
    UNKNOWN = "too few repetitions"


SAID: Final = frozenset({Verdict.SAME, Verdict.BETTER, Verdict.WORSE})
"""Verdicts that say something."""
NOTHING: Final = 3
"""The exit status when none does; a command line that is wrong ends with 2."""

Samples = Mapping[str, Sequence[float]]
"""The values of every figure, by its name."""
Record = Mapping[str, Any]
"""One run as ``report.save`` writes it."""


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


def repetitions(runs: Iterable[Record]) -> dict[tuple[int, int], list[dict[str, Record]]]:
    """Return the runs of each repetition by where the pods were, for each request rate and number of pods.

    A repetition begins with a run where the one before has one already: one that was interrupted lacks some.
    """
    found: dict[tuple[int, int], list[dict[str, Record]]] = defaultdict(list)
    for one in runs:
        here = found[one["qps"], one["pods"]]
        if not here or one["where"] in here[-1]:
            here.append({})
        here[-1][one["where"]] = one
    return found


def samples(runs: Iterable[Record]) -> dict[str, list[float]]:
    """Return the values of every figure, by ``QPS PODS WHERE FIGURE``; relative ones over the local run beside."""
    found: dict[str, list[float]] = defaultdict(list)
    for (qps, pods), each in repetitions(runs).items():
        for repetition in each:
            local = repetition.get("local")
            for where, one in repetition.items():
                if where == "local":
                    continue
                for figure, value in one.items():
                    if figure in BESIDE:
                        continue
                    name = f"{qps or 'stock'} {pods} {where} {figure}"
                    if figure not in RELATIVE:
                        found[name].append(float(value))
                    elif local is None:
                        found[name + ABSOLUTE].append(float(value))
                    else:
                        found[name].append(value / local[RELATIVE[figure]])
    return found


def samples_of(measured: Mapping[str, Any]) -> Samples:
    """Return the values of every figure of a file, of this benchmark or of another one."""
    figures: Samples | None = measured.get("figures")
    found: Samples = samples(measured["runs"]) if figures is None else figures
    return {name: values for name, values in found.items() if values}


def compare(before: Samples, after: Samples, part: float) -> list[Difference]:
    """Return the differences of all figures that both have."""
    return [_difference(name, before[name], after[name], part) for name in before if name in after]


def alone(before: Samples, after: Samples) -> list[str]:
    """Return what only one of both has, as sentences."""
    found = [f"{name}: only before" for name in before if name not in after]
    return found + [f"{name}: only after" for name in after if name not in before]


def status(found: Sequence[Difference]) -> int:
    """Return the exit status of a comparison: 1 when a figure is worse, 3 when nothing can be said of any."""
    verdicts = {one.verdict for one in found}
    return 1 if Verdict.WORSE in verdicts else 0 if verdicts & SAID else NOTHING


def _difference(name: str, before: Sequence[float], after: Sequence[float], part: float) -> Difference:
    old, new = statistics.median(before), statistics.median(after)
    noise = CERTAIN * math.hypot(error(before), error(after))
    least = (part - ROUNDING) * abs(old)
    if min(len(before), len(after)) < ENOUGH:
        verdict = Verdict.UNKNOWN
    elif abs(new - old) > noise and abs(new - old) >= least:
        verdict = Verdict.WORSE if new > old else Verdict.BETTER
    else:
        verdict = Verdict.NOISY if noise > least else Verdict.SAME
    return Difference(name, old, new, noise, verdict)


def error(values: Sequence[float]) -> float:
    """Return the standard error of the median; 0 where there are too few values to know it."""
    return MEDIAN * spread(values) / math.sqrt(len(values))


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
    before, after = map(samples_of, read)
    found = compare(before, after, args.part)
    print(f"{read[0]['commit']} -> {read[1]['commit']}")
    rows = [[one.name, one.before, one.after, f"{one.change:+.0%}", one.noise, one.verdict.value] for one in found]
    print(table(("figure", "before", "after", "change", "noise", ""), rows))
    print(*alone(before, after), sep="\n")
    if not found:
        print("the two have no figure in common")
    sys.exit(status(found))


if __name__ == "__main__":
    main()
