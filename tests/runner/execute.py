"""Runs one step in a process group of its own, in a temporary directory of its own, to its end or its limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.runner.results import Result, Verdict, count, judge
from tests.runner.steps import CHECKOUT, Step

_RUNNING: Final[set[subprocess.Popen[bytes]]] = set()
"""The processes of steps. An interrupt of the run reaches none of them: each has a session of its own."""


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
    log = place / "output"
    try:
        environ = {"TMPDIR": str(place), "PYTHONPATH": _sources()}
        code = run_to_end(child if step.names else step.argv, step.limit, log, environ)
        output = log.read_text(errors="replace")
        written = record.read_text() if record.exists() else ""
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seconds = time.monotonic() - begin
    if step.names:
        return Outcome(step, seconds, output, judge(step.title, code, written))
    passed = Result(step.title, "passed", seconds)
    return Outcome(step, seconds, output, [passed if code == 0 else Result(step.title, "failed", seconds, output)])


def _sources() -> str:
    """Return the search path with this checkout first: its code is tested, and not what happens to be installed."""
    before = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, (str(CHECKOUT), str(CHECKOUT / "sandbox"), before)))


def run_to_end(argv: Sequence[str], limit: float, log: Path, environ: Mapping[str, str]) -> int:
    """Return the exit status of a process that writes to a file; after ``limit`` seconds it is ended, with 1 or more.

    ``environ`` is added to the environment.
    """
    with log.open("w") as output:
        running = subprocess.Popen(
            argv,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environ},
            start_new_session=True,
        )
        _RUNNING.add(running)
        try:
            return running.wait(limit)
        except subprocess.TimeoutExpired:
            _end(running)
            output.seek(0, os.SEEK_END)
            output.write(f"\nended after {limit:.0f} s\n")
            return running.returncode or 1
        except BaseException:
            _end(running)
            raise
        finally:
            _RUNNING.discard(running)


def end_all() -> None:
    """End what runs in any thread, with all that it started; it cleans up behind itself first."""
    ending = [threading.Thread(target=_end, args=(running,)) for running in tuple(_RUNNING)]
    for one in ending:
        one.start()
    for one in ending:
        one.join()


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a process and its children, giving it a moment to clean up behind itself."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(running.pid, signum)
            running.wait(15)
