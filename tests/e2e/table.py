"""Writes docs/kubernetes-conformance.md from the results of runs. Pure but for the one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.verdicts import EBPF, HOST, LENDER, REASONS, Row

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "kubernetes-conformance.md"
ALONE: Final = "the lender alone"
_COLUMNS: Final = ("passed", *REASONS, "skipped", "failed")
_HEAD: Final = """\
# Kubernetes' own tests on a virtual node

`make conformance` writes this page when all groups were run; nobody edits it. Kubernetes {kubernetes}'s conformance
specs run with a virtual node as the only schedulable node at home. The table counts the specs that had a pod on it, as
the API server's audit log shows; a group without one is not there. A spec that fails has one of three reasons, or
stands below as failed:

* **{host}**: a pod of it asks for a namespace, a port or a path of the host;
* **{lender}**: it fails on the lender's own cluster too, three times of three;
* **{ebpf}**: it made a Service, and at home or at the lender programs in the kernel carry out Services.

The columns after "all" are runs of the same specs elsewhere, and say how many passed of how many: on the lender's
cluster without a daemon, and where they were run, under the contract that a lender has by default, with two lenders,
and with a lender of another release. Everywhere else the lender's contract is as wide as the specs need.

Commit `{commit}`.

"""
_NOT_RUN: Final = "-"


def write(
    rows: Sequence[Row], others: Mapping[str, Sequence[Row]], *, commit: str, kubernetes: str, path: Path = DOCUMENT
) -> None:
    """Write the page."""
    path.write_text(page(rows, others, commit=commit, kubernetes=kubernetes))


def page(rows: Sequence[Row], others: Mapping[str, Sequence[Row]], *, commit: str, kubernetes: str) -> str:
    """Return the page as Markdown; ``others`` are the rows of other set-ups, by the titles of their columns."""
    head = _HEAD.format(kubernetes=kubernetes, host=HOST, lender=LENDER, ebpf=EBPF, commit=commit)
    parts = [head, *_counts(rows, others)]
    for verdict in ("failed", *REASONS, "skipped"):
        if chosen := [row for row in rows if row.verdict == verdict]:
            parts += [f"\n## {_capital(verdict)}\n\n", *map(_line, chosen)]
    passed = {row.name for row in rows if row.verdict == "passed"}
    for title, there in others.items():
        if lost := [row for row in there if row.name in passed and row.verdict not in ("passed", "skipped")]:
            parts += [f"\n## Passed, and fails elsewhere: {title}\n\n", *map(_line, lost)]
    return "".join(parts)


def _counts(rows: Sequence[Row], others: Mapping[str, Sequence[Row]]) -> list[str]:
    groups = sorted({row.group for row in rows})
    titles = [*_COLUMNS, "all", *others]
    lines = [f"| group | {' | '.join(titles)} |\n", f"| --- |{' ---: |' * len(titles)}\n"]
    for title in (*groups, "all"):
        chosen = _of(rows, title)
        counted = Counter(row.verdict for row in chosen)
        cells = [*(str(counted[column]) for column in _COLUMNS), str(len(chosen))]
        cells += [_passed_of(_of(there, title)) for there in others.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |\n")
    return lines


def _of(rows: Sequence[Row], group: str) -> list[Row]:
    return [row for row in rows if group in (row.group, "all")]


def _passed_of(rows: Sequence[Row]) -> str:
    return f"{sum(row.verdict == 'passed' for row in rows)} of {len(rows)}" if rows else _NOT_RUN


def _capital(verdict: str) -> str:
    return verdict[0].upper() + verdict[1:]


def _line(row: Row) -> str:
    first = next(iter(row.text.splitlines()), "").strip()
    return f"* {row.name}{': `' + first[:160].replace('`', chr(39)) + '`' if first else ''}\n"
