"""A hundred daemons in virtual time, a model of them checked against those, and what it says of a thousand.

    python -m benchmarks clusters [--counts 10,25,50,100] [--shapes ring,star,random] [--forecast 1000,10000] [--write]

Every reading runs in a process of its own (``benchmarks.scale.crowd``) and is kept in ``benchmarks/results``, so that a
run that was interrupted goes on; what was read at another commit stays there and is of no use to this one. The model
is fitted to all but the largest number of clusters, and compared with that; ``--write`` puts the tables into
docs/scale.md. Needs neither root nor clusters; a hundred daemons take some gigabytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from attrs import asdict, evolve

from benchmarks.figures.measure import table
from benchmarks.figures.report import RESULTS, keep, stamp
from benchmarks.scale.crowd import decoded
from benchmarks.scale.graphs import SHAPES
from benchmarks.scale.model import Forecast, Model, Reading, deviation, fitted, forecast
from benchmarks.scale.points import replaced

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/scale.md"
SEED: Final = 11
PATIENCE: Final = 4 * 3600.0
"""Seconds that a reading may take: a hundred whole daemons share one processor."""


def known(file: Path) -> list[Reading]:
    """Return the readings in a file; none where there is no file."""
    return [decoded(one) for one in json.loads(file.read_text())["readings"]] if file.exists() else []


def added(readings: Sequence[Reading], one: Reading) -> list[Reading]:
    """Return readings with one more, in place of a former one of its graph, its clusters and its commit. Pure."""
    others = [each for each in readings if _what(each) != _what(one)]
    return sorted([*others, one], key=_what)


def of_commit(readings: Sequence[Reading], commit: str) -> list[Reading]:
    """Return the readings of one version: others say nothing of it. Pure."""
    return [one for one in readings if one.commit == commit]


def _what(one: Reading) -> tuple[int, str, str]:
    return one.clusters, one.shape, one.commit


def measured(shape: str, clusters: int, commit: str) -> Reading:
    """Take one reading of a commit in a process of its own; SystemExit with what it says where it fails."""
    words = [sys.executable, "-m", "benchmarks.scale.crowd", shape, str(clusters), str(SEED)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{shape} of {clusters}: {done.stderr[-2000:]}")
    return evolve(decoded(json.loads(done.stdout.splitlines()[-1])), commit=commit)


def readings_table(readings: Sequence[Reading]) -> str:
    """Return what was measured."""
    head = ["graph", "clusters", "sessions", "most peers", "agree after s", "after kills s", "after a partition s"]
    head += ["sessions it ended", "MiB per daemon", "events/s", "requests/s"]
    rows = [
        (
            *(one.shape, one.clusters, one.sessions, one.most, one.agreed, one.churned, one.healed),
            f"{one.lost} of {one.cut}",
            *(one.mib, one.events, one.requests),
        )
        for one in readings
    ]
    return table(head, rows)


def check_table(model: Model, readings: Sequence[Reading]) -> str:
    """Return how many times more was measured than the model says, for readings that it was not fitted to."""
    names = ["MiB", "events", "requests", "agreed"]
    rows: list[list[object]] = []
    for one in readings:
        found = deviation(forecast(model, one.clusters, SHAPES[one.shape](one.clusters, Random(SEED))), one)
        rows.append([one.shape, one.clusters, *(f"{found[name]:.2f}" for name in names)])
    return table(["graph", "clusters", *(f"{name}, measured / model" for name in names)], rows)


def forecast_table(model: Model, counts: Sequence[int], shapes: Sequence[str]) -> str:
    """Return what the model says of more clusters than were run."""
    head = ["graph", "clusters", "sessions", "most peers", "agree after s", "CPU of the busiest s", "its handshakes s"]
    head += ["MiB of the busiest", "its idle CPU %", "events/s of all", "requests/s of all", "obstacle"]
    rows: list[tuple[object, ...]] = []
    for clusters in counts:
        for shape in shapes:
            one: Forecast = forecast(model, clusters, SHAPES[shape](clusters, Random(SEED)))
            rows.append(
                (
                    *(shape, clusters, one.sessions, one.most, one.longest, one.cpu_seconds, one.admission),
                    *(one.busiest_mib, one.busiest_idle, one.events, one.requests, one.obstacle or "none"),
                )
            )
    return table(head, rows)


def texts(readings: Sequence[Reading], forecasts: Sequence[int], shapes: Sequence[str]) -> dict[str, str]:
    """Return the tables by the names of their marks in the page; without anything to fit to only the first."""
    largest = max((one.clusters for one in readings), default=0)
    commits = ", ".join(sorted({one.commit for one in readings}))
    found = {"clusters measured": f"{readings_table(readings)}\n\nMeasured at commit {commits}."}
    fit_to = [one for one in readings if one.clusters < largest]
    if fit_to:
        model = fitted(fit_to)
        found["clusters checked"] = check_table(model, [one for one in readings if one.clusters == largest])
        found["clusters forecast"] = forecast_table(fitted(readings), forecasts, shapes)
    return found


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="10,25,50,100")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--forecast", default="1000,10000")
    parser.add_argument("--again", action="store_true", help="measure what is there already, too")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    parser.add_argument("--json", type=Path, default=RESULTS / "clusters.json")
    args = parser.parse_args()
    counts = sorted(int(word) for word in args.counts.split(","))
    shapes = args.shapes.split(",")
    commit, everything = str(stamp()["commit"]), known(args.json)
    done = [] if args.again else of_commit(everything, commit)
    there = {(one.shape, one.clusters) for one in done}
    for clusters in counts:
        for shape in shapes:
            if (shape, clusters) in there:
                continue
            one = measured(shape, clusters, commit)
            print(f"{shape} of {clusters}: all agree after {one.agreed:.1f} s", flush=True)
            everything = added(everything, one)
            keep(args.json, {"machine": stamp()["machine"], "readings": [asdict(each) for each in everything]})
    forecasts = [int(word) for word in args.forecast.split(",")]
    found = texts(of_commit(everything, commit), forecasts, shapes)
    for name, text in found.items():
        print(f"\n{name}\n\n{text}")
    if args.write:
        page = PAGE.read_text()
        for name, text in found.items():
            page = replaced(page, name, text)
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
