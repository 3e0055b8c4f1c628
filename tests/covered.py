"""How much of liqod the unit tests run: ``python -m tests.covered [--again] [OPTIONS of tests.run]``.

Every process that a test starts is measured too: coverage finds its settings, those of ``setup.cfg``, by the variable
COVERAGE_PROCESS_START, wherever the process runs. The last line is the total, and it fails below ``fail_under`` there.
What was measured stays in ``.cache/coverage``; ``--again`` only counts it again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import coverage
from attrs import frozen
from coverage.exceptions import NoDataError

from tests.runner.steps import CHECKOUT

SETTINGS: Final = CHECKOUT / "setup.cfg"
PLACE: Final = CHECKOUT / ".cache" / "coverage"
ROOT: Final = "liqod"
PATIENCE: Final = "5"
"""How many times longer a step may take than without being measured."""


@frozen
class Share:
    """How many of the lines and branches of a package were run."""

    package: str
    covered: int
    total: int

    @property
    def percent(self) -> float:
        """The share in percent; all of nothing is 100."""
        return 100.0 * self.covered / self.total if self.total else 100.0


def environment(place: Path) -> dict[str, str]:
    """Return the environment in which Python measures itself and all that it starts, into files in a folder."""
    return {**os.environ, "COVERAGE_PROCESS_START": str(SETTINGS), "COVERAGE_FILE": str(place / "data")}


def read(place: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return what all processes measured together: the summary of each file of liqod, by its path in the checkout."""
    measured = coverage.Coverage(data_file=str(place / "data"), config_file=str(SETTINGS))
    measured.combine([str(place)], keep=True)
    out = place / "report.json"
    try:
        # Copies of the sources that tests broke on purpose were measured as well, and are gone.
        measured.json_report(outfile=str(out), ignore_errors=True)
    except NoDataError:
        return {}
    files: Mapping[str, Any] = json.loads(out.read_text())["files"]
    found = {_in_checkout(name): one["summary"] for name, one in files.items()}
    return {name: summary for name, summary in found.items() if PurePosixPath(name).parts[:1] == (ROOT,)}


def _in_checkout(name: str) -> str:
    """Return the path of a file from the checkout on, or nothing; the report has paths from where it is written on."""
    file = Path.cwd() / name
    return file.relative_to(CHECKOUT).as_posix() if file.is_relative_to(CHECKOUT) else ""


def shares(files: Mapping[str, Mapping[str, Any]]) -> list[Share]:
    """Return the share of each package directly below ``liqod``, the smallest first; modules there are ``liqod``."""
    counted: dict[str, tuple[int, int]] = {}
    for name, summary in files.items():
        parts = PurePosixPath(name).parts
        package = ".".join(parts[:2]) if len(parts) > 2 else parts[0]
        covered, total = counted.get(package, (0, 0))
        covered += summary["covered_lines"] + summary.get("covered_branches", 0)
        total += summary["num_statements"] + summary.get("num_branches", 0)
        counted[package] = covered, total
    found = [Share(package, *two) for package, two in counted.items()]
    return sorted(found, key=lambda one: (one.percent, one.package))


def whole(found: Sequence[Share]) -> Share:
    """Return the share of all packages together."""
    return Share("total", sum(one.covered for one in found), sum(one.total for one in found))


def report(found: Sequence[Share], floor: float) -> tuple[list[str], int]:
    """Return the lines to print, and the exit status: 1 below the floor, and where nothing was measured."""
    total = whole(found)
    width = max(len(one.package) for one in (*found, total))
    lines = [f"{one.package:{width}}  {one.percent:5.1f} %  {one.covered} of {one.total}" for one in (*found, total)]
    if not total.total:
        return [*lines, "nothing was measured"], 1
    if total.percent < floor:
        return [*lines, f"less than the floor of {floor:g} %, which is fail_under in setup.cfg"], 1
    return lines, 0


def floor_of_settings() -> float:
    """Return the least share in percent that the settings ask for."""
    value = coverage.Coverage(data_file=None, config_file=str(SETTINGS)).get_option("report:fail_under")
    assert isinstance(value, float)
    return value


def main(argv: Sequence[str]) -> int:
    """Run the unit tests and count, and return the exit status: that of the tests where they fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.covered", description="other options go to tests.run")
    parser.add_argument("--again", action="store_true", help="run nothing, count what the last run measured")
    args, rest = parser.parse_known_args(argv)
    status = 0
    if not args.again:
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(parents=True)
        words = [sys.executable, "-m", "tests.run", "--unit", f"--patience={PATIENCE}", *rest]
        status = subprocess.run(words, cwd=CHECKOUT, env=environment(PLACE), check=False).returncode
    lines, low = report(shares(read(PLACE)), floor_of_settings())
    print("\n".join(lines), flush=True)
    return status or low


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
