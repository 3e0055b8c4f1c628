"""How long a user waits for ``liqodctl`` at the shell: its version, its help, and what a TAB offers.

    python -m benchmarks shell [--rounds 20]

Starts a program of its own for each, as a shell does, and prints the median and the slowest, and the CPU time, which
counts on a busy machine. Names of peers, namespaces
and pods are asked of the current cluster by kubectl; without one the answer is nothing, and sooner.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.figures.measure import table

COMPLETE: Final = "_LIQODCTL_COMPLETE"
LINES: Final = {
    "TAB after `liqodctl st`": "liqodctl st",
    "TAB after `liqodctl status --w`": "liqodctl status --w",
    "TAB after `liqodctl trust `, by kubectl": "liqodctl trust ",
}


def seconds_of(argv: Sequence[str], more: Mapping[str, str], rounds: int) -> list[tuple[float, float]]:
    """Return how long each run of ``liqodctl`` took, and its CPU time; one before the first is not counted."""
    found = []
    for _ in range(rounds + 1):
        begin, spent = time.perf_counter(), _spent()
        subprocess.run(
            [sys.executable, "-m", "liqod.cli", *argv], env={**os.environ, **more}, capture_output=True, check=False
        )
        found.append((time.perf_counter() - begin, _spent() - spent))
    return found[1:]


def _spent() -> float:
    """Return the CPU time of all programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shell(rounds: int) -> str:
    """Return the table of the figures."""
    cases: list[tuple[str, Sequence[str], Mapping[str, str]]] = [
        ("`liqodctl version`", ["version"], {}),
        ("`liqodctl --help`", ["--help"], {}),
    ]
    for what, line in LINES.items():
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), COMPLETE: "bash_complete"}
        cases.append((what, [], words))
    rows = []
    for what, argv, more in cases:
        took = seconds_of(argv, more, rounds)
        times, spent = zip(*took, strict=True)
        rows.append((what, f"{statistics.median(times):.3f}", f"{max(times):.3f}", f"{statistics.median(spent):.3f}"))
    return table(("what is typed", "median s", "slowest s", "median s of CPU"), rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="runs of each [20]")
    print(shell(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
