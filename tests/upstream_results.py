"""Writes the results of a run into docs/upstream-tests.md: ``python -m tests.upstream_results JUNIT...``.

A row gets a result when all of its tests are in the files; other rows keep theirs. ``tests.nightly`` calls it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.runner.report import read_junit
from tests.runner.results import Verdict
from tests.runner.steps import CHECKOUT, REAL

PAGE: Final = CHECKOUT / "docs" / "upstream-tests.md"
HEAD: Final = ("Liqo's file", "Liqo's test", "here", "result")
NAMED: Final = re.compile(r"`(test_\w+\.\w+\.test_\w+)`")
NONE: Final = "none"
NOT_RUN: Final = "not run"


def cells(line: str) -> list[str]:
    """Return the cells of a line of the table; none for any other line. ValueError for another number of cells."""
    if not line.startswith("| `"):
        return []
    found = [cell.strip() for cell in line.split("|")[1:-1]]
    if len(found) != len(HEAD):
        raise ValueError(f"not four cells: {line}")
    return found


def modules_named() -> set[str]:
    """Return the names of the test modules that the page names: those whose results its rows wait for."""
    rows = [row for row in map(cells, PAGE.read_text().splitlines()) if row and row[3] != NONE]
    return {REAL + test.partition(".")[0] for row in rows for test in NAMED.findall(row[2])}


def filled(text: str, verdicts: Mapping[str, Verdict], commit: str) -> str:
    """Return the page with the results of the rows whose tests have all been run. Pure."""
    lines = []
    for line in text.splitlines():
        row = cells(line)
        tests = NAMED.findall(row[2]) if row and row[3] != NONE else []
        if tests and all(test in verdicts for test in tests):
            good = all(verdicts[test] == "passed" for test in tests)
            line = f"| {row[0]} | {row[1]} | {row[2]} | {'passed' if good else 'failed'} ({commit}) |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def verdicts_in(files: Iterable[Path]) -> dict[str, Verdict]:
    """Return what came of the tests on real clusters in JUnit files, by module, class and test.

    What was skipped was not run.
    """
    results = [result for file in files for result in read_junit(file)]
    return {
        result.test.removeprefix(REAL): result.verdict
        for result in results
        if result.test.startswith(REAL) and result.verdict != "skipped"
    }


def write(files: Iterable[Path]) -> None:
    """Write the results in JUnit files into the page, with the commit of the checkout."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    before = PAGE.read_text()
    after = filled(before, verdicts_in(files), commit)
    if after != before:
        PAGE.write_text(after)


def main(argv: Sequence[str]) -> int:
    """Write the results of the named files."""
    if not argv:
        print("which JUnit files? `python -m tests.run --junit=FILE` writes one", file=sys.stderr)
        return 2
    write(map(Path, argv))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
