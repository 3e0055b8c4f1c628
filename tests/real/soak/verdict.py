"""Judges the samples of a soak: does memory, a descriptor, a route, a rule or an object stay that should not? Pure.

Counts are taken at rest, when there is what there was at the beginning and nothing else, so that any growth is a leak.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from attrs import asdict, frozen

WARM_UP: Final = 3600.0
"""Seconds at the beginning whose memory is not judged: caches fill, and Python gets memory that it keeps."""
SHORTEST: Final = 1800.0
"""Seconds of one process after that, below which a slope is chance."""
PER_HOUR: Final = 0.01
"""The share by which the memory of a process may grow in an hour."""
FEWEST: Final = 6
"""Samples at rest, below which nothing is said of a count."""
SPARE_DESCRIPTORS: Final = 2
"""Descriptors by which two moments at rest may differ: a connection that is about to be closed, or made."""
POINTS: Final = 240
"""Points at most that a slope is taken of."""

Outcome = Literal["good", "bad", "not judged"]


@frozen(kw_only=True)
class Reading:
    """One daemon's process at one moment: its ID and start, memory in KiB, open descriptors."""

    pid: int
    birth: str
    resident: int
    descriptors: int


@frozen(kw_only=True)
class Sample:
    """One moment: seconds since the beginning, what happened before, and whether all came to rest after it.

    ``counts`` are routes, rules, links and objects by name; ``note`` is what should not have happened.
    """

    at: float
    event: str
    rested: bool
    waited: float
    daemons: Mapping[str, Reading]
    counts: Mapping[str, int]
    note: str = ""

    def line(self) -> str:
        """Return the sample as a line of JSON."""
        return json.dumps(asdict(self))


def parse(lines: Iterable[str]) -> list[Sample]:
    """Return the samples in lines of JSON; one that was cut off in the middle of being written is left out."""
    found = []
    for line in lines:
        try:
            body: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        daemons = {name: Reading(**one) for name, one in body.pop("daemons").items()}
        found.append(Sample(daemons=daemons, **body))
    return found


@frozen
class Finding:
    """What is said of one thing that was sampled."""

    subject: str
    outcome: Outcome
    text: str


def judge(samples: Sequence[Sample]) -> list[Finding]:
    """Return what the samples of a soak show, the bad first."""
    found = [*_rests(samples), *_first_daemons(samples), *_memory(samples), *_descriptors(samples), *_counts(samples)]
    order = ("bad", "not judged", "good")
    return sorted(found, key=lambda one: (order.index(one.outcome), one.subject))


def passed(findings: Iterable[Finding]) -> bool:
    """Return whether nothing is bad, and something is good."""
    outcomes = {one.outcome for one in findings}
    return "good" in outcomes and "bad" not in outcomes


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much a value grows in a second: the median of the slopes of all pairs of points (Theil and Sen).

    A few points that are far off do not change it.
    """
    thinned = points[:: -(-len(points) // POINTS)] if points else points
    slopes = [(b - a) / (then - now) for (now, a), (then, b) in itertools.combinations(thinned, 2) if then > now]
    return statistics.median(slopes) if slopes else 0.0


def growth(values: Sequence[float]) -> float:
    """Return by how much the last third of the values is above the first one, each by its median."""
    third = max(1, len(values) // 3)
    return statistics.median(values[-third:]) - statistics.median(values[:third])


def _rests(samples: Sequence[Sample]) -> Iterator[Finding]:
    restless = [one for one in samples if not one.rested]
    noted = [one for one in samples if one.note and one.rested]
    for one in (*restless, *noted):
        what = "did not come to rest" if not one.rested else "came to rest"
        yield Finding(f"minute {one.at / 60:.0f}", "bad", f"{what} after {one.event}: {one.note}")
    if samples and not restless:
        longest = max(samples, key=lambda one: one.waited)
        yield Finding("rest", "good", f"after each of {len(samples)} events, in {longest.waited:.0f} s at most")


def _first_daemons(samples: Sequence[Sample]) -> Iterator[Finding]:
    """Yield the daemons that nobody killed and that were another process in the end."""
    for name in _names(samples):
        births = {one.daemons[name].birth for one in samples if name in one.daemons}
        if name.endswith("-one") and len(births) > 1:
            yield Finding(name, "bad", f"was started {len(births)} times, and nobody ended it")


def _memory(samples: Sequence[Sample]) -> Iterator[Finding]:
    for name, life in _lives(samples):
        points = [(one.at, float(one.daemons[name].resident)) for one in life if one.at >= WARM_UP]
        subject = f"memory of {name}"
        if not points or points[-1][0] - points[0][0] < SHORTEST:
            if name.endswith("-one"):
                yield Finding(subject, "not judged", f"less than {SHORTEST / 60:.0f} min after the first hour")
            continue
        middle = statistics.median(value for _, value in points)
        share = slope(points) * 3600 / middle
        text = f"{100 * share:+.2f} % an hour at {middle / 1024:.0f} MiB"
        yield Finding(subject, "good" if share < PER_HOUR else "bad", text)


def _descriptors(samples: Sequence[Sample]) -> Iterator[Finding]:
    for name, life in _lives(samples):
        values = [float(one.daemons[name].descriptors) for one in life if one.rested]
        if len(values) < FEWEST:
            if name.endswith("-one"):
                yield Finding(f"descriptors of {name}", "not judged", f"only {len(values)} samples at rest")
            continue
        yield _count(f"descriptors of {name}", values, SPARE_DESCRIPTORS)


def _counts(samples: Sequence[Sample]) -> Iterator[Finding]:
    rested = [one for one in samples if one.rested]
    for name in sorted({name for one in rested for name in one.counts}):
        # What is not there is not counted: it is none.
        values = [float(one.counts.get(name, 0)) for one in rested]
        if len(values) < FEWEST:
            yield Finding(name, "not judged", f"only {len(values)} samples at rest")
        else:
            yield _count(name, values, 0)


def _count(subject: str, values: Sequence[float], spare: int) -> Finding:
    more = growth(values)
    text = f"{values[0]:.0f} at first, {values[-1]:.0f} at last, {more:+.0f} from the first third to the last"
    return Finding(subject, "good" if more <= spare else "bad", text)


def _names(samples: Iterable[Sample]) -> list[str]:
    return sorted({name for one in samples for name in one.daemons})


def _lives(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    """Yield the samples of each process that there was, with the name of its daemon."""
    for name in _names(samples):
        there = [one for one in samples if name in one.daemons]
        for _, life in itertools.groupby(there, key=lambda one: one.daemons[name].birth):
            yield name, list(life)


def report(findings: Sequence[Finding], head: str) -> str:
    """Return the findings as Markdown."""
    rows = [f"| {one.subject} | {one.outcome} | {one.text} |" for one in findings]
    return "\n".join(["# Soak", "", head, "", "| what | verdict | figure |", "| --- | --- | --- |", *rows, ""])
