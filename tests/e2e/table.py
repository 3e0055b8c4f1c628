"""Writes docs/kubernetes-conformance.md from the results of a run. Pure but for the one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.e2e.verdicts import HOST, LENDER, Row

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "kubernetes-conformance.md"
_COLUMNS: Final = ("passed", HOST, LENDER, "skipped", "failed")
_HEAD: Final = """\
# Kubernetes' own tests on a virtual node

`make conformance` writes this page when all groups were run; nobody edits it. Kubernetes {kubernetes}'s conformance
specs run with a virtual node as the only schedulable node at home. The tables count the specs that had a pod on it, as
the API server's audit log shows. A spec that fails has one of two reasons, or stands below as failed:

* **{host}**: a pod of it asks for a namespace, a port or a path of the host;
* **{lender}**: it fails on the lender's own cluster too, three times of three.

Commit `{commit}`.

"""


def write(rows: Sequence[Row], *, commit: str, kubernetes: str, path: Path = DOCUMENT) -> None:
    """Write the page."""
    path.write_text(page(rows, commit=commit, kubernetes=kubernetes))


def page(rows: Sequence[Row], *, commit: str, kubernetes: str) -> str:
    """Return the page as Markdown."""
    parts = [_HEAD.format(kubernetes=kubernetes, host=HOST, lender=LENDER, commit=commit), *_counts(rows)]
    for verdict in ("failed", HOST, LENDER, "skipped"):
        if chosen := [row for row in rows if row.verdict == verdict]:
            parts += [f"\n## {verdict.capitalize()}\n\n", *(_line(row) for row in chosen)]
    return "".join(parts)


def _counts(rows: Sequence[Row]) -> list[str]:
    groups = sorted({row.group for row in rows})
    lines = [f"| group | {' | '.join(_COLUMNS)} | all |\n", f"| --- |{' ---: |' * (len(_COLUMNS) + 1)}\n"]
    for title, chosen in [*((group, [row for row in rows if row.group == group]) for group in groups), ("all", rows)]:
        counted = Counter(row.verdict for row in chosen)
        cells = [str(counted[column]) for column in _COLUMNS]
        lines.append(f"| {title} | {' | '.join(cells)} | {len(chosen)} |\n")
    return lines


def _line(row: Row) -> str:
    first = next(iter(row.text.splitlines()), "").strip()
    return f"* {row.name}{': `' + first[:160].replace('`', chr(39)) + '`' if first else ''}\n"
