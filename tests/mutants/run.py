"""Runs test modules in a copy of the checkout, in a process that may neither last nor grow for ever."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

_TRIAL: Final = ("-m", "twisted.trial", "--reactor=asyncio", "--exitfirst")
_FAILED: Final = re.compile(r"^\[(?:FAIL|ERROR)\]\n.*?^(tests\.[\w.]+)$", re.MULTILINE | re.DOTALL)
_MEMORY: Final = 6 << 30
"""Bytes of address space: a loop that never ends must not take the machine with it."""
LIMIT: Final = 600.0


@frozen
class Run:
    """What came of test modules: passed, the first test that failed, or neither in the time given (``late``)."""

    passed: bool
    seconds: float
    failed: str = ""
    late: bool = False


def run(place: Path, tests: Sequence[str], limit: float = LIMIT, *, measured: Path | None = None) -> Run:
    """Run test modules in one process, up to the first failure; ``measured``: where to write which lines they run."""
    watch = ["-m", "coverage", "run", f"--data-file={measured}", "--source=liqod"] if measured is not None else []
    begin = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, *watch, *_TRIAL, f"--temp-directory={place / '_trial_temp'}", *tests],
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # With CI, Hypothesis tries the same examples each time.
        env={**os.environ, "CI": "true", "PYTHONPATH": str(place / "sandbox")},
        start_new_session=True,
        preexec_fn=_bounded,
    )
    try:
        output = child.communicate(timeout=limit)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        return Run(passed=False, seconds=time.monotonic() - begin, late=True)
    finally:
        _end(child)
    failed = _FAILED.search(output)
    return Run(child.returncode == 0, time.monotonic() - begin, failed[1] if failed else output[-300:].strip())


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
