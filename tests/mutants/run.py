"""Runs test modules in a copy of the checkout, in a process that may neither compute nor grow for ever."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

_TRIAL: Final = ("-m", "twisted.trial", "--reactor=asyncio", "--exitfirst")
_COVERAGE: Final = """[run]
source_pkgs = liqod
patch = subprocess, fork, _exit
"""
"""Lines count that run in processes which a test starts, and in those that fork from it."""
_FAILED: Final = re.compile(r"^\[(?:FAIL|ERROR)\]\n.*?^(tests\.[\w.]+)$", re.MULTILINE | re.DOTALL)
_MEMORY: Final = 6 << 30
"""Bytes of address space: a loop that never ends must not take the machine with it."""
LIMIT: Final = 600
"""Seconds of a processor that one process may take."""
PATIENCE: Final = 3600.0
"""Seconds after which a run ends that computes nothing: most tests have a much shorter limit of their own."""


@frozen
class Run:
    """What came of test modules: passed, the first test that failed, or neither in the time given (``late``).

    ``seconds`` are those of processors, which are the same on a busy machine; ``waited``: whether the run took far more
    than these, so that tests with a limit of their own may have failed because the machine was busy.
    """

    passed: bool
    seconds: float
    failed: str = ""
    late: bool = False
    waited: bool = False


def run(place: Path, tests: Sequence[str], limit: int = LIMIT, *, measured: Path | None = None) -> Run:
    """Run test modules in one process, up to the first failure.

    ``limit``: seconds of a processor; ``measured``: a folder in which to write which lines they run.
    """
    watch = []
    if measured is not None:
        measured.mkdir()
        (measured / "settings").write_text(_COVERAGE)
        watch = ["-m", "coverage", "run", f"--rcfile={measured / 'settings'}", f"--data-file={measured / 'lines'}"]
    begin, used = time.monotonic(), _used()
    # No pipe: a program that a broken test leaves behind would hold it open.
    said = tempfile.TemporaryFile()  # noqa: SIM115
    child = subprocess.Popen(
        [sys.executable, *watch, *_TRIAL, f"--temp-directory={place / '_trial_temp'}", *tests],
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        # With CI, Hypothesis tries the same examples each time.
        env={**os.environ, "CI": "true", "PYTHONPATH": f"{place}:{place / 'sandbox'}"},
        start_new_session=True,
        preexec_fn=functools.partial(_bounded, limit),
    )
    with said:
        try:
            child.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return Run(passed=False, seconds=_used() - used, late=True)
        finally:
            _end(child)
        said.seek(0)
        output = said.read().decode(errors="replace")
    seconds = _used() - used
    failed = _FAILED.search(output)
    return Run(
        child.returncode == 0,
        seconds,
        failed[1] if failed else output[-300:].strip(),
        late=child.returncode == -signal.SIGXCPU,
        waited=time.monotonic() - begin > 3 * seconds,
    )


def _used() -> float:
    """Return the seconds of processors that all ended children of this process took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bounded(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
