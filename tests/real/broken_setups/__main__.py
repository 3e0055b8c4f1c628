"""Breaks two real clusters in thirty ways: ``python -m tests.real.broken_setups [NUMBER...]``.

What ``liqodctl status`` has to name is written to ``.cache/broken-setups/<commit>.md`` before the first one is tried,
and what it named after each. What was tried of the same sources before is not tried again, unless its number is given.
The exit status is 0 where its first screen had cause and object of all that were asked for.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.nightly import state
from tests.real.borrowing import Borrowing, prepare
from tests.real.broken_setups import verdicts
from tests.real.broken_setups.campaign import Campaign, Patience
from tests.real.broken_setups.drawing import SEED, thirty
from tests.real.broken_setups.setups import Setup
from tests.real.broken_setups.verdicts import Row
from tests.runner.execute import Outcome
from tests.runner.report import write_junit
from tests.runner.results import Result
from tests.runner.steps import CHECKOUT, Step

KEPT: Final = CHECKOUT / ".cache" / "broken-setups"
TITLE: Final = "tests.real.broken_setups"


def main(argv: Sequence[str]) -> int:
    """Try all, or those that are named, and return 1 where one was not shown."""
    parser = argparse.ArgumentParser(prog=f"python -m {TITLE}", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="only these, of 1 to 30")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the last ten [{SEED}]")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times longer than usual each may take")
    parser.add_argument("--list", action="store_true", help="print what must be shown, and break nothing")
    parser.add_argument(
        "--page", action="store_true", help=f"write docs/{verdicts.DOCUMENT.name} by what is kept, and break nothing"
    )
    parser.add_argument("--junit", type=Path, help="write the results to this file as JUnit XML")
    args = parser.parse_args(argv)
    asked = [one for one in thirty(args.seed) if one.number in args.numbers or not args.numbers]
    commit = state()
    if args.list:
        print(verdicts.table([Row(setup=one) for one in asked], commit))
        return 0
    if args.page:
        verdicts.DOCUMENT.write_text(verdicts.page(verdicts.newest(_all_kept(args.seed))))
        return 0
    kept = KEPT / f"{commit}.json"
    known = verdicts.read_rows(json.loads(kept.read_text()) if kept.exists() else [], thirty(args.seed))
    chosen = asked if args.numbers else [row.setup for row in known if row.verdict == "waiting"]
    # An end by SIGTERM is as orderly as one by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    prepare()
    KEPT.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()

    def report(rows: Sequence[Row]) -> None:
        (KEPT / f"{commit}.md").write_text(verdicts.table(rows, commit))
        kept.write_text(json.dumps(verdicts.plain_rows(rows), indent=1))

    usual = Patience()
    patience = Patience(usual.shown * args.patience, usual.healed * args.patience)
    rows = known
    if chosen:
        with Borrowing() as sides:
            rows = Campaign(sides, report, patience).run(known, chosen)
    rows = [row for row in rows if row.setup in asked]
    if args.junit:
        results = [_result(row) for row in rows]
        write_junit(args.junit, [Outcome(Step(TITLE, 0.0), time.monotonic() - begin, "", results)])
    print(f"{verdicts.summary(rows)}: {KEPT / f'{commit}.md'}", flush=True)
    return 0 if all(row.good and row.healed for row in rows) else 1


def _all_kept(seed: int) -> list[tuple[str, list[Row]]]:
    """Return all rows that are kept, by commit, the oldest first; at least what has to be shown."""
    files = sorted(KEPT.glob("*.json"), key=lambda file: file.stat().st_mtime)
    kept = [(one.stem, verdicts.read_rows(json.loads(one.read_text()), thirty(seed))) for one in files]
    return [("", [Row(setup=one) for one in thirty(seed)]), *kept]


def _result(row: Row) -> Result:
    good = row.good and row.healed
    outcome = f"{row.verdict}; {'healed' if row.healed else 'not healed'}"
    detail = "" if good else "\n".join([outcome, row.note, *row.screen])
    return Result(f"{TITLE}.{_name(row.setup)}", "passed" if good else "failed", row.after, detail)


def _name(setup: Setup) -> str:
    """Return the name of a set-up as that of a test: the dots in it divide nothing."""
    return f"{setup.number:02d} {setup.name}".replace(".", "_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
