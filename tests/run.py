"""Run all checks and tests of the project and count them: ``python -m tests.run [--only MODULE...]``.

Every test module runs in a trial process of its own, with a working directory of its own. Modules on real clusters run
two at a time: each has clusters to itself, and waits for them most of its time. Beside them run the modules that need
nothing but this machine and keep it busy; when either kind is done, the other has the machine to itself.
A few modules that failed run once more, alone: what then passes is listed as unsteady, in the open, and counts as
passed; what is broken fails twice. The last line is the count, and nothing else: ``N passed, N failed, N skipped``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

CHECKOUT: Final = Path(__file__).resolve().parents[1]
REAL: Final = "tests.real."
UNIT_LIMIT: Final = 600.0
REAL_LIMIT: Final = 1500.0
PATIENT: Final = (REAL, "tests.netns.", "tests.contract.")
"""What waits for other programs and for the network, and takes as much longer on a slow machine as these do."""
REAL_AT_A_TIME: Final = 2
_LONG_REAL: Final = (
    *("three", "node", "network", "unpeer", "namespaces", "relay", "unpeer_network", "kill"),
    *("conformance_reflection", "kubelet_api", "conformance", "reflect", "offload", "network_mesh", "reflect_path"),
)
_LONG_SERVICES: Final = ("cli_commands", "hosting_service", "kubelet_service", "peering_service", "reflect_service")
LONG: Final = (
    *(f"tests.real.test_{name}" for name in _LONG_REAL),
    *("tests.netns.test_fabric", "tests.netns.test_failures", "tests.contract.test_real", "tests.scenario.test_kill"),
    *(f"tests.test_{name}" for name in _LONG_SERVICES),
)
"""Modules that take longest, which begin first, so that none of them is left alone at the end."""
_SAY_EVERY: Final = 30.0
AGAIN: Final = 4
"""Modules that are run once more when they failed: if more of them did, it is not chance."""

_SUMMARY: Final = re.compile(r"^(?:PASSED|FAILED)(?: \(([^)]*)\))?$", re.MULTILINE)
_SKIPPED: Final = re.compile(r"^\[SKIPPED\]\n(.*?)\n\n((?:[\w.]+\n)+)", re.MULTILINE | re.DOTALL)
_PASSED_WORDS: Final = ("successes", "expectedFailures")
_FAILED_WORDS: Final = ("failures", "errors", "unexpectedSuccesses")


@frozen
class Step:
    """One check or test module: its title, its command line, how long it may take."""

    title: str
    argv: Sequence[str]
    limit: float
    is_trial: bool = True

    @property
    def is_real(self) -> bool:
        """Whether the step runs on real clusters."""
        return self.title.startswith(REAL)


@frozen
class Outcome:
    """What came of a step; ``output`` is everything that it wrote."""

    step: Step
    seconds: float
    output: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def skips(self) -> list[tuple[str, str]]:
        """Pairs of a test that was skipped and the reason."""
        groups = _SKIPPED.findall(self.output) if self.step.is_trial else []
        return [(test, reason) for reason, tests in groups for test in tests.split()]


@define
class Progress:
    """Counts what is done and prints one line for each step that ends."""

    total: int
    outcomes: list[Outcome] = field(factory=list)
    unsteady: list[str] = field(factory=list)
    _running: dict[str, float] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def run(self, step: Step) -> Outcome:
        """Run a step, report it, and keep its outcome."""
        with self._lock:
            self._running[step.title] = time.monotonic()
        outcome = execute(step)
        with self._lock:
            del self._running[step.title]
            self.outcomes.append(outcome)
            counts = f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
            print(f"[{len(self.outcomes)}/{self.total}] {step.title}: {counts}, {outcome.seconds:.1f} s", flush=True)
            if outcome.failed:
                print(f"{'-' * 20} {step.title}\n{outcome.output.rstrip()}\n{'-' * 20}", flush=True)
        return outcome

    def repeat(self) -> None:
        """Run the modules that failed once more, one after the other, if they are few."""
        failed = [outcome for outcome in self.outcomes if outcome.failed and outcome.step.is_trial]
        if len(failed) > AGAIN:
            return
        for first in failed:
            print(f"once more, alone: {first.step.title}", flush=True)
            second = execute(first.step)
            counts = f"{second.passed} passed, {second.failed} failed, {second.skipped} skipped"
            print(f"{first.step.title}, again: {counts}, {second.seconds:.1f} s", flush=True)
            if not second.failed:
                self.outcomes[self.outcomes.index(first)] = second
                self.unsteady.append(first.step.title)

    def tell(self) -> None:
        """Say what runs now, when a step takes long."""
        with self._lock:
            now = time.monotonic()
            slow = [f"{title} for {now - begin:.0f} s" for title, begin in self._running.items()]
        if slow:
            print(f"[{len(self.outcomes)}/{self.total}] running: {', '.join(slow)}", flush=True)


def execute(step: Step) -> Outcome:
    """Run one step to its end; one that takes too long is ended with all of its children, and has failed."""
    begin = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="liqod-test-"))
    argv = [*step.argv[:-1], f"--temp-directory={place / 'trial'}", step.argv[-1]] if step.is_trial else step.argv
    running = subprocess.Popen(
        argv,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With CI Hypothesis runs the same cases every time, and does not judge how long they take on a busy machine.
        env={"CI": "true", **os.environ, "TMPDIR": str(place)},
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=step.limit)
    except subprocess.TimeoutExpired:
        _end(running)
        output = (running.communicate()[0] or "") + f"\nended after {step.limit:.0f} s\n"
    except BaseException:
        _end(running)
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    passed, failed, skipped = judge(step, running.returncode, output)
    return Outcome(step, time.monotonic() - begin, output, passed, failed, skipped)


def judge(step: Step, code: int, output: str) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped; a process that did not finish is one failure more."""
    if not step.is_trial:
        return (1, 0, 0) if code == 0 else (0, 1, 0)
    summaries = list(_SUMMARY.finditer(output))
    words = (summaries[-1][1] or "") if summaries else ""
    counts = {name: int(number) for name, _, number in (word.partition("=") for word in words.split(", ")) if number}
    passed = sum(counts.get(word, 0) for word in _PASSED_WORDS)
    failed = sum(counts.get(word, 0) for word in _FAILED_WORDS)
    if failed == 0 and (code != 0 or not summaries):
        failed = 1
    return passed, failed, counts.get("skips", 0)


def modules() -> list[str]:
    """Return the names of all test modules below ``tests``, in the order in which they begin."""
    files = sorted((CHECKOUT / "tests").rglob("test_*.py"))
    names = [".".join(file.relative_to(CHECKOUT).with_suffix("").parts) for file in files]
    return sorted(names, key=lambda name: LONG.index(name) if name in LONG else len(LONG))


def trial(name: str) -> Step:
    """Return the step that runs a test module, a class in it, or one test."""
    argv = [sys.executable, "-m", "twisted.trial", "--reactor=asyncio", name]
    return Step(name, argv, REAL_LIMIT if name.startswith(PATIENT) else UNIT_LIMIT)


def lint_steps() -> list[Step]:
    """Return the checks of the source code; the import contracts are checked by a test module."""
    python = [sys.executable, "-m"]
    checks = {
        "ruff check": [*python, "ruff", "check", "."],
        "ruff format": [*python, "ruff", "format", "--check", "."],
        "mypy": [*python, "mypy"],
    }
    return [Step(title, argv, UNIT_LIMIT, is_trial=False) for title, argv in checks.items()]


def prepare_clusters() -> str:
    """Install and build what real clusters need; return why that is not possible here, or nothing."""
    from tests.testbed import build, process, system

    try:
        system.require()
        build.ensure()
    except (system.Missing, process.CommandFailed) as error:
        return str(error)
    return ""


def main(argv: Sequence[str]) -> int:
    """Run everything, or the named modules only, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("--only", nargs="*", default=[], help="test modules, classes or tests")
    parser.add_argument("--no-real", action="store_true", help="leave the real clusters out")
    args = parser.parse_args(argv)
    begin = time.monotonic()
    # A shell starts what runs in its background with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = args.only or modules()
    real = [] if args.no_real else [trial(name) for name in names if name.startswith(REAL)]
    unit = [trial(name) for name in names if not f"{name}.".startswith(REAL)]
    checks = [] if args.only else lint_steps()
    progress = Progress(len(checks) + len(unit) + len(real))
    # More than there are processors: who waits for a cluster needs none.
    parallel = max(2, os.cpu_count() or 1) + (REAL_AT_A_TIME - 1 if real else 0)
    if real:
        print("preparing real clusters: system packages and programs", flush=True)
        if reason := prepare_clusters():
            print(f"no real clusters on this machine: {reason}", flush=True)
    print(
        f"{len(checks)} checks, {len(unit)} test modules, {len(real)} modules on real clusters; {parallel} at a time, "
        f"on real clusters {REAL_AT_A_TIME} of them"
    )
    run_all(progress, [*real, *checks, *unit], parallel)
    progress.repeat()
    return _report(progress, time.monotonic() - begin)


@define
class Turns:
    """Hands out steps in their order, but no more on real clusters than may run at a time."""

    _waiting: list[Step]
    _real: int = 0
    _lock: threading.Condition = field(factory=threading.Condition)

    def take(self) -> Step | None:
        """Return the next step that may begin, waiting until there is one; None when no step is left."""
        with self._lock:
            while self._waiting:
                for step in self._waiting:
                    if not step.is_real or self._real < REAL_AT_A_TIME:
                        self._waiting.remove(step)
                        self._real += step.is_real
                        return step
                self._lock.wait()
        return None

    def done(self, step: Step) -> None:
        """Take note that a step has ended."""
        with self._lock:
            self._real -= step.is_real
            self._lock.notify_all()

    def drop(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._waiting.clear()
            self._lock.notify_all()


def run_all(progress: Progress, steps: Iterable[Step], parallel: int) -> None:
    """Run steps, several at a time, in their order as far as that may be."""
    turns = Turns(list(steps))

    def work() -> None:
        while step := turns.take():
            try:
                progress.run(step)
            finally:
                turns.done(step)

    with ThreadPoolExecutor(parallel) as pool:
        workers = [pool.submit(work) for _ in range(parallel)]
        told = time.monotonic()
        try:
            while not all(one.done() for one in workers):
                time.sleep(0.1)
                if time.monotonic() - told > _SAY_EVERY:
                    told = time.monotonic()
                    progress.tell()
        except BaseException:
            turns.drop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for one in workers:
            one.result()


def _report(progress: Progress, seconds: float) -> int:
    total = _sum(progress.outcomes)
    for outcome in progress.outcomes:
        for test, reason in outcome.skips:
            print(f"skipped: {test}: {reason}")
    for title in progress.unsteady:
        print(f"unsteady: {title}: failed at first, passed alone; its first output stands above")
    for outcome in progress.outcomes:
        if outcome.failed:
            print(f"failed: {outcome.step.title}: {outcome.failed}")
    if not progress.outcomes:
        print("there was nothing to run")
    print(f"took {seconds:.0f} s")
    print("{} passed, {} failed, {} skipped".format(*total), flush=True)
    return 0 if total[1] == 0 and total[0] > 0 else 1


def _sum(outcomes: Iterable[Outcome]) -> tuple[int, int, int]:
    passed, failed, skipped = 0, 0, 0
    for one in outcomes:
        passed, failed, skipped = passed + one.passed, failed + one.failed, skipped + one.skipped
    return passed, failed, skipped


def _end(running: subprocess.Popen[str]) -> None:
    """End a process and its children, giving it a moment to clean up behind itself."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(running.pid, signum)
            running.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
