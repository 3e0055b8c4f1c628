"""The tables of a benchmark of offloading, its figures as JSON, and what they say of the goals.

    python -m benchmarks report [FILE...]

prints medians, spreads and ratios of the files that `benchmarks offload` wrote, the latest one where none is named, and
marks what takes more than 1.15 times the floor or 2.6 times the local pods. The exit status is 1 where something does.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.figures import goals
from benchmarks.figures.measure import per_pod, table

RESULTS: Final = Path(__file__).parents[1] / "results"
"""Where figures go unless another file is named; git ignores them, so that a measured commit is not a changed one."""

HEAD = (
    "QPS",
    "where",
    "pods",
    "all Ready s",
    "CPU ms/pod until Ready",
    "cores busy",
    "until quiet",
    "liqod CPU s",
    "liqod peak MiB",
    "req/pod home",
    "lender",
)


@attrs.frozen(kw_only=True)
class Run:
    """One Deployment, created and deleted again.

    ``busy`` is the CPU of every process until the last pod is Ready; ``cpu`` goes on until all is quiet again, and so
    holds what is left to be done then, and what control planes spend at rest for as long.
    """

    qps: int
    where: str
    pods: int
    ready: float
    busy: dict[str, float]
    cpu: dict[str, float]
    peak: dict[str, float]
    created: dict[str, Counter[tuple[str, str]]]
    deleted: dict[str, Counter[tuple[str, str]]]
    delete_cpu: dict[str, float]

    @property
    def figures(self) -> dict[str, float]:
        """What is compared: seconds, CPU milliseconds and requests of each pod, MiB."""
        calls = {name: sum(n for _, _, n in per_pod(counted, self.pods)) for name, counted in self.created.items()}
        return {
            "seconds": self.ready,
            "CPU ms/pod": 1000 * sum(self.busy.values()) / self.pods,
            "CPU ms/pod until quiet": 1000 * sum(self.cpu.values()) / self.pods,
            "liqod CPU ms/pod": 1000 * _ours(self.cpu) / self.pods,
            "peak MiB": max(self.peak.values(), default=0.0),
            "requests/pod home": calls.get("c1", 0.0),
            "requests/pod lender": calls.get("c2", 0.0),
        }


def text(runs: Sequence[Run], peering: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """Render everything as Markdown."""
    summary = goals.rendered(goals.summaries(records(runs)))
    parts = [table(HEAD, map(_row, runs)), "\nMedians, and the medians of the ratios of each repetition:\n", summary]
    parts += [f"\nPeering: {json.dumps(peering)}\n", f"Idle: {json.dumps(rest)}\n"]
    largest = max((one.pods for one in runs), default=0)
    seen = set()
    for one in runs:
        if one.pods != largest or one.where == "local" or (one.qps, one.where) in seen:
            continue
        seen.add((one.qps, one.where))
        rate = f"{one.where}, {one.pods} pods, QPS {one.qps or 'stock'}"
        for title, counts in (("create", one.created), ("delete", one.deleted)):
            for cluster, counted in counts.items():
                parts.append(f"\n{title}, {cluster}, {rate}\n")
                parts.append(table(["verb", "resource", "per pod"], per_pod(counted, one.pods)))
        parts.append(f"\nCPU seconds by process, {rate}\n")
        parts.append(
            table(["process", "create", "delete"], ([n, v, one.delete_cpu.get(n, 0.0)] for n, v in one.cpu.items()))
        )
    return "\n".join(parts)


def _row(one: Run) -> Iterable[object]:
    figures = one.figures
    return [
        *(one.qps or "stock", one.where, one.pods, one.ready, figures["CPU ms/pod"]),
        sum(one.busy.values()) / one.ready,
        *(figures["CPU ms/pod until quiet"], _ours(one.cpu)),
        "/".join(f"{value:.0f}" for value in one.peak.values()),
        *(figures["requests/pod home"], figures["requests/pod lender"]),
    ]


def _ours(cpu: Mapping[str, float]) -> float:
    return sum(value for name, value in cpu.items() if name.endswith("/liqod"))


def records(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return the figures of each run with what it was, and the CPU of each process beside, as they are kept."""
    return [{**_what(one), **one.figures, "processes, CPU ms/pod": _by_process(one)} for one in runs]


def _what(one: Run) -> dict[str, Any]:
    return {"qps": one.qps, "where": one.where, "pods": one.pods}


def _by_process(one: Run) -> dict[str, float]:
    shares = {name: 1000 * seconds / one.pods for name, seconds in one.cpu.items()}
    return {name: round(share, 2) for name, share in shares.items() if share > 0}


def save(file: Path | None, runs: Sequence[Run]) -> Path:
    """Write the figures of every run, with the commit and the machine that they are of; return where."""
    return _write("offload", file, {"runs": records(runs)})


def save_figures(name: str, figures: Mapping[str, Sequence[float]], file: Path | None, **about: Any) -> Path:
    """Write the values of each figure of another benchmark likewise, and what they are about; return where."""
    return _write(name, file, {"about": about, "figures": {what: list(values) for what, values in figures.items()}})


def stamp() -> dict[str, Any]:
    """Return the commit and the machine that figures are of."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    machine = {"processor": platform.machine(), "kernel": platform.release(), "python": platform.python_version()}
    return {"commit": commit.stdout.strip(), "machine": machine}


def _write(name: str, file: Path | None, measured: Mapping[str, Any]) -> Path:
    file = file or RESULTS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    keep(file, {**stamp(), **measured})
    return file


def keep(file: Path, measured: Mapping[str, Any]) -> None:
    """Write figures in place of what is there: complete or not at all, as a run may be interrupted."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps(measured, indent=1) + "\n")
    fresh.replace(file)


def latest() -> list[Path]:
    """Return the file of the latest measurement of offloading; none where there is none."""
    return sorted(RESULTS.glob("offload-*.json"))[-1:]


def main() -> None:
    """Print what files say of the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="the latest of benchmarks/results/ without one")
    args = parser.parse_args()
    files = args.files or latest()
    if not files:
        sys.exit("there is nothing to report on: run `python -m benchmarks offload --repeat 5`")
    measured = [json.loads(file.read_text()) for file in files]
    found = goals.summaries(one for each in measured for one in each["runs"])
    print(f"{', '.join(sorted({each['commit'] for each in measured}))}\n\n{goals.rendered(found)}")
    sys.exit(1 if any(one.missed for one in found) else 0)


if __name__ == "__main__":
    main()
