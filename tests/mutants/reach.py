"""Which lines of the daemon a test module runs, found out when first asked and kept in a file."""

from __future__ import annotations

import ast
import hashlib
import json
import tempfile
from collections.abc import Collection
from pathlib import Path

import coverage
from attrs import asdict, define

from tests.mutants.changes import Change, definitions
from tests.mutants.run import run


@define
class Known:
    """What an unchanged run of a test module showed.

    ``seconds`` are those of processors, while lines are recorded: about twice of what it takes otherwise.
    ``lines``: by module and function a digest of the function as it was then, and the lines that ran, counted from its
    first one.
    """

    text: str
    passed: bool
    seconds: float
    lines: dict[str, dict[str, tuple[str, list[int]]]]

    def reaches(self, module: str, source: bytes, change: Change) -> bool:
        """Return whether the changed statement ran; where the function was edited since, whether any of it did."""
        digest, ran = self.lines.get(module, {}).get(change.definition, ("", []))
        if not ran:
            return False
        head, now = functions(source)[change.definition]
        if now != digest:
            return True
        first, last = (line - head for line in change.statement)
        return any(first <= line <= last for line in ran)


class Reach:
    """What all test modules run.

    It only leaves out tests: what was found out on an older version of the code can make a mutant survive, never die.
    """

    def __init__(self, place: Path, kept: Path) -> None:
        self._place = place
        self._kept = kept
        found = json.loads(kept.read_text()) if kept.exists() else {}
        self._known = {name: Known(**known) for name, known in found.items()}

    def of(self, test: str) -> Known:
        """Return what is known of a test module."""
        if not self.is_known(test):
            self._known[test] = self._measure(test)
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            # What failed here and now is measured again by the next run.
            kept = {name: asdict(known) for name, known in self._known.items() if known.passed}
            self._kept.write_text(json.dumps(kept))
        return self._known[test]

    def is_known(self, test: str) -> bool:
        """Return whether it was found out what a test module runs, as it is now."""
        known = self._known.get(test)
        return known is not None and known.text == self._text(test)

    def seconds(self, test: str) -> float:
        """Return the seconds of processors that a test module takes, 0 as long as nobody knows."""
        known = self._known.get(test)
        return known.seconds if known is not None else 0.0

    def _text(self, test: str) -> str:
        file = self._place.joinpath(*test.split(".")).with_suffix(".py")
        return hashlib.sha256(file.read_bytes()).hexdigest()[:12]

    def _measure(self, test: str) -> Known:
        with tempfile.TemporaryDirectory(dir=self._place) as folder:
            measured = Path(folder) / "coverage"
            ended = run(self._place, [test], measured=measured)
            lines = coverage.CoverageData(no_disk=True)
            for one in measured.glob("lines*"):
                part = coverage.CoverageData(str(one))
                part.read()
                lines.update(part)
        found: dict[str, dict[str, tuple[str, list[int]]]] = {}
        for file in map(Path, lines.measured_files()):
            if file.is_relative_to(self._place):
                ran = lines_by_function(file.read_bytes(), frozenset(lines.lines(str(file)) or ()))
                if ran:
                    found[".".join(file.relative_to(self._place).with_suffix("").parts)] = ran
        return Known(self._text(test), ended.passed, ended.seconds, found)


def functions(source: bytes) -> dict[str, tuple[int, str]]:
    """Return the first line of each function and a digest of its text, by dotted name."""
    lines = source.splitlines()
    return {
        name: (node.lineno, hashlib.sha256(b"\n".join(lines[node.lineno - 1 : node.end_lineno])).hexdigest()[:8])
        for name, node in definitions(ast.parse(source))
    }


def lines_by_function(source: bytes, lines: Collection[int]) -> dict[str, tuple[str, list[int]]]:
    """Return for each function of whose body something ran its digest, and the lines, counted from its first one."""
    known = functions(source)
    found: dict[str, tuple[str, list[int]]] = {}
    for name, node in definitions(ast.parse(source)):
        assert node.end_lineno is not None
        ran = [line - node.lineno for line in range(node.body[0].lineno, node.end_lineno + 1) if line in lines]
        if ran:
            found[name] = (known[name][1], ran)
    return found
