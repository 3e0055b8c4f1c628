"""The lines of the README, and of other pages, that their readers type, as a test types them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

README: Final = Path(__file__).resolve().parents[2] / "README.md"
OPERATIONS: Final = README.with_name("docs") / "operations.md"
UPGRADE: Final = README.with_name("docs") / "guides" / "upgrade.md"
INSTALL: Final = ("**On a host of each cluster**", "**As pods of each cluster**")
BY_HELM: Final = ("**As pods of each cluster**", "or without it, by the same command")
BORROW: Final = ("### Borrow", "### See that it works")
SPLIT: Final = ("For two processes instead of one", "`liqodctl install --host` writes the service")


def lines_of(part: tuple[str, str], page: Path = README) -> list[str]:
    """Return the lines to type in the part of a page from one text to another, with the comments among them."""
    text = page.read_text()
    start = text.index(part[0])
    found = text[start : text.index(part[1], start)].splitlines()
    return [line.strip() for line in found if line.startswith("    ") and line.strip()]


def joined(lines: Sequence[str]) -> list[str]:
    """Return lines as a shell reads them: one that ends with a backslash goes on in the next. Pure."""
    return "\n".join(lines).replace("\\\n", "").splitlines()


def by_cluster(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines to type at each cluster: a comment names the one that those after it are for. Pure."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("# "):
            name = re.findall(r"\w+", line)[0]
        else:
            found.setdefault(name, []).append(line)
    return found


def undoing(word: str) -> str:
    """Return the command of the table of what is undone that has a word as its own; LookupError for none."""
    table = README.read_text().partition("### Pause, stop, undo")[2].partition("\n## ")[0]
    for command in re.findall(r"`(liqodctl [^`]+)`", table):
        if command.split()[1] == word:
            return str(command)
    raise LookupError(f"the README undoes nothing by {word}")


def upgrading(kind: str) -> tuple[list[str], list[str]]:
    """Return the commands of an upgrade of some kind of installation, and those of going back, by the guide."""
    row = re.search(rf"^\| {kind} \| (.+) \| (.+) \|$", UPGRADE.read_text(), re.MULTILINE)
    if row is None:
        raise LookupError(f"the guide has no row for {kind}")
    there, back = (re.findall(r"`([^`]+)`", cell) for cell in row.groups())
    return there, back
