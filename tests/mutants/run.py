"""Runs test modules in a copy of the checkout, and finds out which functions each of them reaches."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
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

import coverage
from attrs import asdict, define, frozen

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


@define
class Known:
    """What an unchanged run of a test module showed: ``reached`` has the definitions it ran, by module."""

    text: str
    passed: bool
    seconds: float
    reached: dict[str, list[str]]


class Reach:
    """Which test modules run a function, found out when first asked and kept in a file.

    It only leaves out tests: what was found out on an older version of the code can make a mutant survive, never die.
    """

    def __init__(self, place: Path, kept: Path) -> None:
        self._place = place
        self._kept = kept
        found = json.loads(kept.read_text()) if kept.exists() else {}
        self._known = {name: Known(**known) for name, known in found.items()}

    def of(self, test: str) -> Known:
        """Return what is known of a test module."""
        file = self._place.joinpath(*test.split(".")).with_suffix(".py")
        text = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
        known = self._known.get(test)
        if known is None or known.text != text:
            known = self._known[test] = self._measure(test, text)
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            self._kept.write_text(json.dumps({name: asdict(known) for name, known in self._known.items()}))
        return known

    def seconds(self, test: str) -> float:
        """Return how long a test module takes, 0 as long as nobody knows."""
        known = self._known.get(test)
        return known.seconds if known is not None else 0.0

    def _measure(self, test: str, text: str) -> Known:
        data = self._place / "measured"
        ended = run(self._place, [test], measured=data)
        reached: dict[str, list[str]] = {}
        if data.exists():
            lines = coverage.CoverageData(str(data))
            lines.read()
            for measured in lines.measured_files():
                file = Path(measured)
                names = definitions_at(file.read_bytes(), frozenset(lines.lines(measured) or ()))
                if names:
                    reached[".".join(file.relative_to(self._place).with_suffix("").parts)] = names
            data.unlink()
        return Known(text, ended.passed, ended.seconds, reached)


def definitions_at(source: bytes, lines: frozenset[int]) -> list[str]:
    """Return the dotted names of the functions of which some line of the body is among these."""
    names = []

    def visit(body: Sequence[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{above}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if not lines.isdisjoint(range(node.body[0].lineno, node.end_lineno + 1)):
                    names.append(f"{above}{node.name}")

    visit(ast.parse(source).body, "")
    return names
