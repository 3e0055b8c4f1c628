"""Run all checks and tests of the project and count them: ``python -m tests.run [--unit] [--only MODULE...]``.

A few modules that failed run once more, alone: what then passes is unsteady, which is not the same as passed. The last
line is the count, and nothing else: ``N passed, N failed, N skipped, N unsteady``. Where ``CI`` is set, a skipped or
unsteady test fails the run; elsewhere what was left out is listed with its reason.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.environment import on_ci
from tests.runner.machine import prepare
from tests.runner.report import report, write_junit
from tests.runner.schedule import REAL_AT_A_TIME, Progress, at_a_time, run_all
from tests.runner.steps import NIGHTLY, checks, is_unit, modules, steps_of


def main(argv: Sequence[str]) -> int:
    """Run everything, or the named modules only, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("--only", nargs="*", default=[], help="test modules, classes or tests")
    parser.add_argument("--unit", action="store_true", help="only tests that need no root and no clusters")
    parser.add_argument("--junit", type=Path, help="write the results to this file as JUnit XML")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times longer than usual a step may take")
    args = parser.parse_args(argv)
    begin = time.monotonic()
    # A shell starts what runs in its background with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    usual = [name for name in modules() if name not in NIGHTLY]
    names = [name for name in args.only or usual if is_unit(name) or not args.unit]
    steps = steps_of(names, args.patience)
    real = sum(step.is_real for step in steps)
    if not args.only and not args.unit:
        steps[real:real] = checks()
    if not args.only and not args.unit:
        print(f"{len(NIGHTLY)} modules are left to `make nightly`; tests/runner/steps.py names them", flush=True)
    for reason in prepare(names):
        print(f"not possible on this machine: {reason}", flush=True)
    parallel = at_a_time(real=real > 0)
    print(f"{len(steps)} steps, {parallel} at a time; {real} on real clusters, {REAL_AT_A_TIME} at a time", flush=True)
    progress = Progress(len(steps))
    run_all(progress, steps, parallel)
    progress.repeat()
    if args.junit:
        write_junit(args.junit, progress.outcomes)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"took {time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors")
    results = [result for outcome in progress.outcomes for result in outcome.results]
    lines, status = report(results, on_ci=on_ci())
    print("\n".join(lines), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
