"""Runs Kubernetes' conformance specs on a virtual node: ``python -m tests.e2e [GROUP...]``, such as ``sig-storage``.

The groups run one after the other. What came of each is kept in ``.cache/conformance/<commit>``; a group that is there
is not run again, so that a run that was interrupted goes on where it was. The specs that fail for no reason of their
own run on the lender as well, three times. The page in ``docs`` is written when all groups have results of the same
commit, whether they came of one run or of several: a part is not the result.
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
from tests.e2e.clusters import E2EClusters, prepare
from tests.e2e.suite import SpecResult, run
from tests.e2e.verdicts import CONTROL_RUNS, Row
from tests.nightly import state
from tests.real.path import virtual_node
from tests.testbed import versions

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
KEPT: Final = Path(__file__).resolve().parents[2] / ".cache" / "conformance"
CONFORMANCE: Final = r"\[Conformance\]"
ROWS: Final = "rows.json"
"""The file of a group's rows, in its folder; it is there when the group came to its end."""
_LIMIT: Final = 3 * 3600.0


def main(argv: Sequence[str]) -> int:
    """Run what is missing, write the page once nothing is, and return 1 when a spec fails without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    about = "a pattern of the specs' names beside the group; the page in docs is of the default"
    parser.add_argument("--focus", default=CONFORMANCE, help=about)
    parser.add_argument("--no-page", action="store_true", help="leave the page in docs as it is")
    args = parser.parse_args(argv)
    if unknown := set(args.groups) - set(GROUPS):
        parser.error(f"no group is called {', '.join(sorted(unknown))}")
    prepare()
    # The sources are those of the start, also where somebody goes on to work in the checkout meanwhile.
    commit = state()
    folder = KEPT / commit
    rows: list[Row] = []
    for group in args.groups or GROUPS:
        rows += _group(group, args.focus, kept_in(folder, group, args.focus))
    if not args.no_page and args.focus == CONFORMANCE:
        print(write_page(folder, commit))
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(row.verdict for row in rows).items())))
    return int(any(row.verdict == "failed" for row in rows))


def kept_in(folder: Path, group: str, focus: str) -> Path:
    """Return where the results of a group are kept: those of each choice of specs by themselves."""
    chosen = "" if focus == CONFORMANCE else "-" + hashlib.sha256(focus.encode()).hexdigest()[:8]
    return folder / f"{group}{chosen}"


def write_page(folder: Path, commit: str, page: Path = table.DOCUMENT) -> str:
    """Write the page from all groups' rows, and say so; while a group has none, leave it and say which."""
    kept = {group: kept_in(folder, group, CONFORMANCE) / ROWS for group in GROUPS}
    if missing := [group for group, file in kept.items() if not file.exists()]:
        return f"{page.name} is left as it is: at this commit there are no results of {', '.join(missing)}"
    rows = [row for file in kept.values() for row in read_rows(file)]
    table.write(rows, commit=commit, kubernetes=versions.KUBERNETES, path=page)
    return f"{page.name} is written"


def read_rows(file: Path) -> list[Row]:
    """Return the rows that were kept in a file."""
    return [Row(**one) for one in json.loads(file.read_text())]


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Keep rows in a file."""
    file.write_text(json.dumps([_plain(row) for row in rows], indent=1))


def _group(group: str, focus: str, folder: Path) -> list[Row]:
    """Run a group that has no rows yet; return its rows."""
    kept = folder / ROWS
    if not kept.exists():
        print(f"{group}: running", flush=True)
        with E2EClusters() as clusters:
            node = virtual_node(clusters.home)["metadata"]["name"]
            results = run(clusters.home, folder, focus=[rf"\[{group}\].*{focus}"], limit=_LIMIT)
            seen = verdicts.traces(clusters.home.audited())
            control = _control(clusters, verdicts.rows(results, seen, {}, node), folder)
            found = verdicts.rows(results, seen, control, node)
        write_rows(kept, found)
    rows = read_rows(kept)
    print(f"{group}: {dict(Counter(row.verdict for row in rows))}", flush=True)
    return rows


def _control(clusters: E2EClusters, rows: Sequence[Row], folder: Path) -> dict[str, list[SpecResult]]:
    """Run what failed without a reason on the lender itself, with the daemons stopped."""
    failed = [row.name for row in rows if row.verdict == "failed"]
    found: dict[str, list[SpecResult]] = {}
    if not failed:
        return found
    clusters.stop_daemons()
    for number in range(CONTROL_RUNS):
        report = folder / f"lender-{number}"
        results = run(clusters.lender, report, focus=[re.escape(name) for name in failed], limit=_LIMIT)
        for result in results:
            found.setdefault(result.name, []).append(result)
    return found


def _plain(row: Row) -> dict[str, Any]:
    return {"name": row.name, "group": row.group, "verdict": row.verdict, "seconds": row.seconds, "text": row.text}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
