"""Findings of ``check``, ``doctor`` and ``netcheck``: verdict, text and hint, in groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import attrs

from liqod.cli.console.render import plural

Verdict = Literal["good", "warning", "bad"]
MARKS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


@attrs.frozen
class Finding:
    """The result of one check; ``hint`` is the remedy, empty where the verdict is good, ``code`` the reason if any."""

    group: str
    verdict: Verdict
    text: str
    hint: str = ""
    code: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return attrs.asdict(self)


def good(group: str, text: str) -> Finding:
    """Return a passed check."""
    return Finding(group, "good", text)


def warning(group: str, text: str, hint: str, code: str = "") -> Finding:
    """Return a warning: liqod works, but not as well as it could."""
    return Finding(group, "warning", text, hint, code)


def bad(group: str, text: str, hint: str, code: str = "") -> Finding:
    """Return a failed check: liqod does not work."""
    return Finding(group, "bad", text, hint, code)


def failed(findings: Iterable[Finding]) -> bool:
    """Return whether any check failed."""
    return any(finding.verdict == "bad" for finding in findings)


def lines(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return the lines to show, each with its style; groups in the order in which they first appear."""
    shown: list[tuple[str, str]] = []
    for group in dict.fromkeys(finding.group for finding in findings):
        shown.append((group, "bold"))
        for finding in findings:
            if finding.group != group:
                continue
            mark, style = MARKS[finding.verdict]
            shown.append((f"  {mark} {finding.text}", style))
            if finding.hint:
                shown.append((f"      {finding.hint}", ""))
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in MARKS}
    shown.append((f"{counts['good']} passed, {plural(counts['warning'], 'warning')}, {counts['bad']} failed", "bold"))
    return shown
