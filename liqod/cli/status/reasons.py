"""What each reason means, and what to do: read from docs/operations.md, which the distribution carries."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import attrs

_WORD = re.compile(r"`([A-Z][A-Za-z0-9]+)`")


@attrs.frozen
class Reason:
    """A row of the table of reasons: where it appears, what it means, what to do (may be empty)."""

    code: str
    section: str
    meaning: str
    advice: str


@cache
def reasons() -> dict[str, list[Reason]]:
    """Return the rows by reason; a reason may appear in several places, and mean something else in each."""
    return parse(files("liqod.cli.status").joinpath("operations.md").read_text("utf-8"))


def parse(page: str) -> dict[str, list[Reason]]:
    """Return the rows of the tables of reasons in a page (Markdown). Pure."""
    found: dict[str, list[Reason]] = {}
    section = ""
    is_table = False
    for line in page.splitlines():
        if line.startswith("#"):
            section, is_table = line.lstrip("# "), False
        elif line.startswith("| reason |"):
            is_table = True
        elif not line.startswith("|"):
            is_table = False
        elif is_table and not line.startswith("| ---"):
            codes, meaning, advice = ([part.strip() for part in line.strip("| ").split(" | ")] + ["", ""])[:3]
            for code in _WORD.findall(codes):
                found.setdefault(code, []).append(Reason(code, section, _plain(meaning), _plain(advice)))
    return found


def advice_for(code: str, name: str) -> str:
    """Return what to do about a reason, with the peer's name in its commands; empty where there is nothing to do."""
    rows = reasons().get(code, [])
    advice = next((row.advice for row in rows if row.advice), "")
    return advice.replace("NAME", name)


def _plain(text: str) -> str:
    return text.replace("**", "").replace("|", "").strip()


@cache
def command_codes() -> dict[str, list[Reason]]:
    """Return what each code of a failed command means, from the list of codes in ``liqod.cli.console.errors``."""
    from liqod.cli.console import errors

    return {
        code: [Reason(code, "a command failed", meaning, advice)] for code, (meaning, advice) in errors.MEANINGS.items()
    }
