"""Runs one step in a process group of its own, in a temporary directory of its own, to its end or its limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from tests.runner.results import Result, Verdict, count, judge
from tests.runner.steps import CHECKOUT, Step


@frozen
class Outcome:
    """What came of a step; ``output`` is everything that it wrote."""

    step: Step
    seconds: float
    output: str
    results: Sequence[Result] = ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many of its tests have each verdict."""
        return count(self.results)


def execute(step: Step) -> Outcome:
    """Run one step to its end; one that takes too long is ended with all of its children, and has failed."""
    begin = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="liqod-test-"))
    record = place / "record"
    child = [sys.executable, "-m", "tests.runner.child", str(record), str(place / "trial"), *step.names]
    try:
        code, output = _run(child if step.names else step.argv, step.limit, place)
        written = record.read_text() if record.exists() else ""
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seconds = time.monotonic() - begin
    if step.names:
        return Outcome(step, seconds, output, judge(step.title, code, written))
    passed = Result(step.title, "passed", seconds)
    return Outcome(step, seconds, output, [passed if code == 0 else Result(step.title, "failed", seconds, output)])


def _run(argv: Sequence[str], limit: float, place: Path) -> tuple[int, str]:
    """Return the exit status and all output of a process."""
    running = subprocess.Popen(
        argv,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(place)},
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _end(running)
        output = (running.communicate()[0] or "") + f"\nended after {limit:.0f} s\n"
        return running.returncode or 1, output
    except BaseException:
        _end(running)
        raise
    return running.returncode, output


def _end(running: subprocess.Popen[str]) -> None:
    """End a process and its children, giving it a moment to clean up behind itself."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(running.pid, signum)
            running.wait(15)
