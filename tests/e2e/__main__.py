"""Runs Kubernetes' conformance specs on a virtual node: ``python -m tests.e2e [GROUP...]``, such as ``sig-storage``.

The groups run one after the other, each on a virtual node and then on the lender alone. What came of each is kept in
``tests/e2e/kept/<sources>``, to be committed with the page, and the suite's own reports in ``.cache/conformance``.
``<sources>`` names the product, the test bed and what is here: a group that is there is not run again, so that a run
that was interrupted goes on where it was, on another machine as well. The specs that fail on the virtual node for no
reason of their own run on the lender too, three times. The page in ``docs`` is written when all groups have results of
both sides and of the same sources, whether they came of one run or of several: a part is not the result. Other set-ups
(``--contract``, ``--lenders``, ``--release``) are columns of that page where they were run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e import table, verdicts
from tests.e2e.clusters import LENDERS, E2EClusters, prepare
from tests.e2e.setups import ALONE, OTHERS, USUAL, Setup
from tests.e2e.suite import SpecResult, run
from tests.e2e.verdicts import CONTROL_RUNS, NO_CONTROL, Control, Row
from tests.nightly import state, state_of
from tests.testbed import versions
from tests.testbed.process import CommandFailed

GROUPS: Final = (
    "sig-apps",
    "sig-auth",
    "sig-cli",
    "sig-instrumentation",
    "sig-network",
    "sig-node",
    "sig-scheduling",
    "sig-storage",
)
SOURCES: Final = (
    *("liqod", "twisted", "tests/testbed", "tests/e2e/*.py"),
    *(f":(exclude)liqod/{one}" for one in ("cli", "demo", "model/diagnosis")),
)
"""What the specs exercise, and what runs them: not what only tells people how things are."""
KEPT: Final = Path(__file__).with_name("kept")
REPORTS: Final = Path(__file__).resolve().parents[2] / ".cache" / "conformance"
CONFORMANCE: Final = r"\[Conformance\]"
ROWS: Final = "rows.json"
"""The file of a group's rows, in its folder; it is there when the group came to its end."""
BOTH: Final = (USUAL, ALONE)
"""The set-ups that the page is made of."""
_LIMIT: Final = 3 * 3600.0


def main(argv: Sequence[str]) -> int:
    """Run what is missing, write the page once nothing is, and return 1 when a spec fails without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    about = "a pattern of the specs' names beside the group; the page in docs is of the default"
    parser.add_argument("--focus", default=CONFORMANCE, help=about)
    parser.add_argument("--no-page", action="store_true", help="leave the page in docs as it is")
    parser.add_argument("--side", choices=("home", "lender", "both"), default="both", help="where the specs run")
    parser.add_argument("--contract", action="store_true", help="the lender grants what it grants by default, no more")
    parser.add_argument("--lenders", type=int, choices=range(1, len(LENDERS) + 1), default=1, help="how many there are")
    parser.add_argument("--release", default=versions.KUBERNETES, help="the lenders' Kubernetes, such as 1.30")
    args = parser.parse_args(argv)
    if unknown := set(args.groups) - set(GROUPS):
        parser.error(f"no group is called {', '.join(sorted(unknown))}")
    chosen = Setup(lenders=args.lenders, release=args.release, contract=args.contract)
    setups = setups_of(chosen, args.side)
    for setup in setups:
        prepare(setup)
    # The sources are those of the start, also where somebody goes on to work in the checkout meanwhile.
    commit, sources = state(), state_of(SOURCES)
    folder = KEPT / sources
    rows: list[Row] = []
    ended = []
    for group, setup in ((group, setup) for setup in setups for group in args.groups or GROUPS):
        try:
            places = (kept_in(one / sources, group, args.focus, setup) for one in (KEPT, REPORTS))
            found = _group(group, args.focus, setup, *places)
        except CommandFailed as error:
            # The other groups have results of their own.
            ended.append(_title(group, setup))
            print(f"{ended[-1]}: did not come to its end: {_shortly(error)}", flush=True)
        else:
            rows += [] if setup.alone else found
    if not args.no_page and args.focus == CONFORMANCE:
        print(write_page(folder, commit))
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(row.verdict for row in rows).items())))
    return int(bool(ended) or any(row.verdict == "failed" for row in rows))


def setups_of(chosen: Setup, side: str) -> list[Setup]:
    """Return the set-ups that run; the lender alone has no contract with anybody and is one, whatever was chosen."""
    alone = [Setup(alone=True, release=chosen.release)]
    match side:
        case "home":
            return [chosen]
        case "lender":
            return alone
        case _:
            return [chosen, *(alone if chosen == USUAL else [])]


def kept_in(folder: Path, group: str, focus: str, setup: Setup = USUAL) -> Path:
    """Return where the results of a group are kept: those of each choice of specs and of clusters by themselves."""
    specs = "" if focus == CONFORMANCE else "-" + hashlib.sha256(focus.encode()).hexdigest()[:8]
    return folder / f"{group}{specs}{'@' * bool(setup.name)}{setup.name}"


def write_page(folder: Path, commit: str, page: Path = table.DOCUMENT) -> str:
    """Write the page from all groups' rows of both sides, and say so; while one has none, leave it and say which."""
    kept = {(group, setup): kept_in(folder, group, CONFORMANCE, setup) / ROWS for setup in BOTH for group in GROUPS}
    if missing := [_title(*one) for one, file in kept.items() if not file.exists()]:
        return f"{page.name} is left as it is: of these sources there are no results of {', '.join(missing)}"
    others = {title: _kept_rows(folder, setup) for title, setup in {table.ALONE: ALONE, **OTHERS}.items()}
    shown = {title: rows for title, rows in others.items() if rows}
    table.write(_kept_rows(folder, USUAL), shown, commit=commit, kubernetes=versions.KUBERNETES, path=page)
    return f"{page.name} is written"


def read_rows(file: Path) -> list[Row]:
    """Return the rows that were kept in a file."""
    return [Row(**one) for one in json.loads(file.read_text())]


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Keep rows in a file."""
    file.write_text(json.dumps([_plain(row) for row in rows], indent=1))


def _kept_rows(folder: Path, setup: Setup) -> list[Row]:
    """Return the rows of all groups that were run in a set-up."""
    files = [kept_in(folder, group, CONFORMANCE, setup) / ROWS for group in GROUPS]
    return [row for file in files if file.exists() for row in read_rows(file)]


def _group(group: str, focus: str, setup: Setup, folder: Path, report: Path) -> list[Row]:
    """Run a group that has no rows in its folder yet, and leave the suite's reports in another; return its rows."""
    kept, title = folder / ROWS, _title(group, setup)
    if not kept.exists():
        print(f"{title}: running", flush=True)
        with E2EClusters(setup) as clusters:
            results = run(clusters.home, report, focus=[rf"\[{group}\].*{focus}"], limit=_LIMIT)
            seen = verdicts.traces(clusters.home.audited())
            ebpf = verdicts.ebpf_services(clusters.facts())
            control = NO_CONTROL
            if not setup.alone:
                before = verdicts.rows(results, seen, NO_CONTROL, clusters.nodes, ebpf=ebpf)
                control = _control(clusters, [row.name for row in before if row.verdict == "failed"], report)
            found = verdicts.rows(results, seen, control, clusters.nodes, ebpf=ebpf)
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(kept, found)
    rows = read_rows(kept)
    print(f"{title}: {dict(Counter(row.verdict for row in rows))}", flush=True)
    return rows


def _control(clusters: E2EClusters, failed: Sequence[str], reports: Path) -> Control:
    """Run what failed without a reason on the lender itself, with the daemons stopped."""
    if not failed:
        return NO_CONTROL
    clusters.stop_daemons()
    found: dict[str, list[SpecResult]] = {}
    for number in range(CONTROL_RUNS):
        report = reports / f"lender-{number}"
        try:
            results = run(clusters.lender, report, focus=[re.escape(name) for name in failed], limit=_LIMIT)
        except CommandFailed as error:
            # What failed at home stands as it is: a row says more than no row.
            why = f"run {number + 1} on the lender did not come to its end"
            print(f"{why}: {_shortly(error)}", flush=True)
            return Control(found, why)
        for result in results:
            found.setdefault(result.name, []).append(result)
    return Control(found)


def _shortly(error: CommandFailed) -> str:
    """Return the end of what the program has printed: a suite prints a mark for each of thousands of specs."""
    return str(error)[-2000:]


def _title(group: str, setup: Setup) -> str:
    return f"{group} ({setup.name})" if setup.name else group


def _plain(row: Row) -> dict[str, Any]:
    return {"name": row.name, "group": row.group, "verdict": row.verdict, "seconds": row.seconds, "text": row.text}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
