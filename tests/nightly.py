"""What takes longer than continuous integration has time for: ``python -m tests.nightly [PART...]``; no name means all.

Parts run one after the other. What came of each is kept in ``.cache/nightly/<commit>``: ``PART.xml`` (JUnit) and
``PART.log``. A part that has its XML is not run again, so that a night that was interrupted goes on where it was; a
part that is named is run again. A new part is a line in ``PARTS``.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import field, frozen

from tests.e2e.table import DOCUMENT as CONFORMANCE_PAGE
from tests.environment import on_ci
from tests.fuzz.seeds import CORPUS
from tests.real.broken_setups.verdicts import DOCUMENT as SETUPS_PAGE
from tests.runner.execute import Outcome, run_to_end
from tests.runner.report import read_junit, report, write_junit
from tests.runner.results import Result, count, phrase
from tests.runner.steps import CHECKOUT, NETNS, NIGHTLY, PROGRAMS, REAL, Step
from tests.upstream_results import PAGE as UPSTREAM_PAGE
from tests.upstream_results import modules_named
from tests.upstream_results import write as write_upstream_results

KEPT: Final = CHECKOUT / ".cache" / "nightly"
WRITTEN: Final = (CONFORMANCE_PAGE, UPSTREAM_PAGE, SETUPS_PAGE)
"""Pages that a night writes itself. They are no state of the sources: the next part would begin everything again."""
HOUR: Final = 3600.0
JUNIT: Final = "{junit}"
"""In a command: the file that it writes its results to as JUnit XML. Without it the exit status is the one result."""


@frozen
class Part:
    """One part of the night: its name, the words after ``python -m``, seconds after which it is ended, variables."""

    name: str
    words: tuple[str, ...]
    limit: float
    environ: Mapping[str, str] = field(factory=dict)

    def run(self, folder: Path) -> None:
        """Run the part and leave its log and its XML in a folder; when it is interrupted there is no XML."""
        junit, fresh = folder / f"{self.name}.xml", folder / f"{self.name}.fresh"
        junit.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)
        log = folder / f"{self.name}.log"
        argv = [sys.executable, "-m", *(word.replace(JUNIT, str(fresh)) for word in self.words)]
        begin = time.monotonic()
        code = run_to_end(argv, self.limit, log, self.environ)
        if fresh.exists():
            fresh.replace(junit)
            return
        seconds = time.monotonic() - begin
        tail = log.read_text(errors="replace")[-20_000:]
        # A command that was to write results and wrote none has not done its work, whatever its exit status.
        good = code == 0 and not any(JUNIT in word for word in self.words)
        result = Result(f"nightly.{self.name}", "passed" if good else "failed", seconds, "" if good else tail)
        write_junit(junit, [Outcome(Step(self.name, self.limit), seconds, tail, [result])])


def _subject(module: str) -> str:
    """Return what a test module is about, in the words of its name."""
    return module.rpartition(".test_")[2].replace("_", "-")


APART: Final[Mapping[str, str]] = {
    "metrics-server": "tests.real.test_metrics_server",
    "flannel": "tests.real.test_network_flannel",
    "kube-router": "tests.real.test_network_kube_router",
    "move-volume": "tests.real.test_move_volume",
    "releases": "tests.real.test_releases",
    **{f"program-{_subject(name)}": name for name in NIGHTLY if name.startswith(PROGRAMS)},
}
"""Modules that are a part each, by its name: they build programs of their own, and take up to an hour."""


CHART: Final = (
    "tests.real.chart_install",
    "tests.real.chart.first_pod",
    "tests.real.chart.under_load",
    "tests.real.chart.streams",
    "tests.real.chart.by_kubectl",
)
"""Modules about the pods of an installation, which share an image; one of them builds the oldest Kubernetes."""


def _left_to_the_night(folder: str) -> list[str]:
    return sorted(name for name in NIGHTLY - set(APART.values()) if name.startswith(folder))


PARTS: Final = (
    Part(
        "unit", ("tests.run", "--unit", "--patience=10", f"--junit={JUNIT}"), 6 * HOUR, {"LIQOD_SCENARIO_FACTOR": "10"}
    ),
    *(
        Part(name, ("tests.run", "--only", *_left_to_the_night(folder), "--patience=3", f"--junit={JUNIT}"), limit)
        for name, folder, limit in (("real", REAL, 5 * HOUR), ("netns", NETNS, 3 * HOUR))
    ),
    Part(
        "upstream",
        ("tests.run", "--only", *sorted(modules_named() - NIGHTLY), "--patience=3", f"--junit={JUNIT}"),
        3 * HOUR,
    ),
    Part("coverage", ("tests.covered",), 3 * HOUR),
    *(
        Part(name, ("tests.run", "--only", module, "--patience=4", f"--junit={JUNIT}"), 3 * HOUR)
        for name, module in sorted(APART.items())
    ),
    Part("alerts", ("tests.run", "--only", "tests.packaging.alert_rules", f"--junit={JUNIT}"), HOUR),
    Part(
        "browser",
        ("tests.run", "--only", "tests.cli.web.browser", "tests.real.browser", "--patience=3", f"--junit={JUNIT}"),
        HOUR,
    ),
    Part("systemd", ("tests.run", "--only", "tests.real.systemd_boot", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part("machines", ("tests.run", "--only", "tests.real.two_machines", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part("chart", ("tests.run", "--only", *CHART, "--patience=3", f"--junit={JUNIT}"), 3 * HOUR),
    Part("mixed", ("tests.run", "--only", "tests.real.mixed_forms", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part("hindered", ("tests.run", "--only", "tests.real.hindered_install", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part("bytes", ("tests.run", "--only", "tests.packaging.same_bytes", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part("surroundings", ("tests.run", "--only", "tests.real.surroundings", "--patience=3", f"--junit={JUNIT}"), HOUR),
    Part(
        "monitoring", ("tests.run", "--only", "tests.real.alerting.fire", "--patience=3", f"--junit={JUNIT}"), 2 * HOUR
    ),
    Part("setups", ("tests.real.broken_setups", f"--junit={JUNIT}"), 4 * HOUR),
    Part("soak", ("tests.real.soak", "--hours=2"), 4 * HOUR),
    Part("floods", ("tests.attack.floods", f"--junit={JUNIT}"), 2 * HOUR),
    Part("fills", ("tests.attack.fills", f"--junit={JUNIT}"), 2 * HOUR),
    Part("conformance", ("tests.e2e",), 12 * HOUR),
    Part("mutants", ("tests.mutants",), 8 * HOUR),
    *(
        Part(f"fuzz-{target.name}", ("tests.fuzz.campaign", target.name, "--seconds=300"), 900.0)
        for target in sorted(CORPUS.iterdir())
    ),
)


def state(checkout: Path = CHECKOUT) -> str:
    """Return a name for the sources as they are: the commit, and a digest of what was changed since."""
    commit = _git(checkout, "rev-parse", "HEAD").strip()
    but = ("--", ".", *(f":(exclude){page.relative_to(CHECKOUT)}" for page in WRITTEN))
    changes = _git(checkout, "diff", "HEAD", *but)
    changes += _git(checkout, "ls-files", "--others", "--exclude-standard", *but)
    return f"{commit}-{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


def state_of(paths: Sequence[str], checkout: Path = CHECKOUT) -> str:
    """Return a name for a part of the sources as they are, by Git's patterns: other commits may have the same."""
    only = ("--", *paths)
    content = _git(checkout, "ls-files", "--stage", *only) + _git(checkout, "diff", *only)
    content += _git(checkout, "ls-files", "--others", "--exclude-standard", *only)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def run_parts(parts: Sequence[Part], folder: Path, *, again: bool) -> list[Result]:
    """Run the parts that have no results yet, or all of them; return the results of all."""
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for number, part in enumerate(parts, 1):
        junit = folder / f"{part.name}.xml"
        known = junit.exists() and not again
        if not known:
            print(f"[{number}/{len(parts)}] {part.name}: running, ended after {part.limit / 60:.0f} min", flush=True)
            part.run(folder)
        found = read_junit(junit)
        results += found
        print(f"[{number}/{len(parts)}] {part.name}: {phrase(count(found))}{', from before' * known}", flush=True)
    return results


def main(argv: Sequence[str]) -> int:
    """Run the night, or the parts that are named, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    args = parser.parse_args(argv)
    if unknown := set(args.parts) - {part.name for part in PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = KEPT / state()
    print(f"results are kept in {folder}")
    parts = [part for part in PARTS if part.name in args.parts or not args.parts]
    lines, status = report(run_parts(parts, folder, again=bool(args.parts)), on_ci=on_ci())
    print("\n".join(lines), flush=True)
    write_upstream_results(sorted(folder.glob("*.xml")))
    return status


def _git(checkout: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=checkout, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
