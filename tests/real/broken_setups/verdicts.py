"""Reads a screen of ``liqodctl status``: are cause and object on it; and makes the table of a campaign. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import asdict, evolve, field, frozen

from tests.real.broken_setups.setups import Setup
from tests.real.terminal import Shown, first_screen

DOCUMENT: Final = Path(__file__).resolve().parents[3] / "docs" / "broken-setups.md"
LIMIT: Final = 10.0
"""Seconds that ``liqodctl status`` itself may take."""

Verdict = Literal["both", "slow", "cause only", "object only", "neither", "before", "not made", "waiting"]
BETTER: Final[tuple[Verdict, ...]] = ("neither", "object only", "cause only", "slow", "both")
"""What a screen can show, the worst first."""


def _lines(text: Iterable[str]) -> tuple[str, ...]:
    return tuple(text)


@frozen(kw_only=True)
class Row:
    """What came of one set-up.

    ``verdict``: "both" are on the screen in time, "slow": in a command that took too long; "before": they were there
    when nothing was broken; "not made": the fault could not be made. ``after`` is how many seconds after the fault the
    screen was shown, ``took`` those of the command; ``healed``: all was well again afterwards.
    """

    setup: Setup
    verdict: Verdict = "waiting"
    after: float = 0.0
    took: float = 0.0
    healed: bool = False
    screen: Sequence[str] = field(default=(), converter=_lines)
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether the screen showed what it should."""
        return self.verdict == "both"


def paragraphs(screen: Iterable[str]) -> list[str]:
    """Return the paragraphs of a screen, each in one line: a line that is indented goes on with the one before."""
    found: list[str] = []
    for line in screen:
        if line.startswith((" ", "\t")) and found:
            found[-1] = f"{found[-1]} {line.strip()}"
        else:
            found.append(line.strip())
    return [re.sub(r"\s+", " ", one) for one in found if one]


def seen(screen: Sequence[str], setup: Setup) -> Verdict:
    """Return what a screen shows of a set-up: "both" are in one paragraph, or only one is anywhere."""
    found = paragraphs(screen)
    causes = [one for one in found if re.search(setup.cause, one, re.IGNORECASE)]
    objects = [one for one in found if re.search(setup.object, one, re.IGNORECASE)]
    if any(one in objects for one in causes):
        return "both"
    if causes:
        return "cause only"
    return "object only" if objects else "neither"


def judged(shown: Shown, setup: Setup) -> Verdict:
    """Return what a run of the command shows, and whether it was in time."""
    verdict = seen(first_screen(shown.text), setup)
    late = shown.seconds >= LIMIT or shown.status is None
    return "slow" if verdict == "both" and late else verdict


def better(known: Row, other: Row) -> Row:
    """Return the row whose screen shows more; the later one of two that show the same."""
    if known.verdict in BETTER and BETTER.index(known.verdict) > BETTER.index(other.verdict):
        return known
    return other


def counted(rows: Sequence[Row]) -> tuple[int, int]:
    """Return of how many numbers all set-ups are good, and how many numbers there are."""
    numbers = {row.setup.number for row in rows}
    bad = {row.setup.number for row in rows if not row.good}
    return len(numbers - bad), len(numbers)


def summary(rows: Sequence[Row]) -> str:
    """Return the count as a sentence."""
    good, all_of_them = counted(rows)
    left = sum(not row.healed and row.verdict not in ("waiting", "before") for row in rows)
    return f"{good} of {all_of_them} broken set-ups have cause and object on the first screen; {left} did not heal"


HEAD: Final = """\
# Broken set-ups

{summary}. Two real clusters, rome and milan, commit `{commit}`.

Cause and object are patterns that were written down before the run, and have to be in one paragraph of the first screen
(80x24) of `liqodctl status` at the side that is named, by a command that takes less than {limit:.0f} s.

| nr | source | set-up | at | cause | object | shown | after s | command s | healed |
| ---: | --- | --- | --- | --- | --- | --- | ---: | ---: | --- |
"""


def table(rows: Sequence[Row], commit: str) -> str:
    """Return the results as Markdown, with the screens of what was not shown."""
    lines = [_line(row) for row in rows]
    text = HEAD.format(summary=summary(rows), commit=commit, limit=LIMIT) + "\n".join(lines) + "\n"
    for row in rows:
        if not row.good and (row.screen or row.note):
            screen = "\n".join(f"    {line}".rstrip() for line in row.screen)
            text += f"\n## {row.setup.number}: {row.setup.name}: {row.verdict}\n\n{row.note}\n\n{screen}\n"
    return text


PAGE: Final = """\
# Broken set-ups

What `liqodctl status` shows of thirty broken set-ups of two real clusters, rome and milan, which borrow from each
other: the mistakes that are made most, what users of such systems have reported, by project and number, and faults that
were drawn by chance. Cause and object were written down before the run, as patterns (`tests/real/broken_setups`), and
count where one paragraph of the first screen (80x24) has both, by a command that took less than {limit:.0f} s. A number
counts when all of its rows do.

`make setups` runs them all, and `make setups ARGS=--page` writes this page by what is kept of each: the newest result,
with its commit.

{summary}.

| nr | source | what is broken | seen at | shown | after s | command s | the screen says | commit |
| ---: | --- | --- | --- | --- | ---: | ---: | --- | --- |
"""
LONGEST: Final = 160
"""Characters of a screen's paragraph on the page."""


def page(rows: Sequence[tuple[Row, str]]) -> str:
    """Return the page of documentation, by rows with the commits that they were tried of."""
    text = PAGE.format(summary=summary([row for row, _ in rows]), limit=LIMIT)
    for row, commit in rows:
        one, said = row.setup, words_of(row)
        figures = ["", ""] if row.verdict == "waiting" else [f"{row.after:.0f}", f"{row.took:.1f}"]
        shown = "not run" if row.verdict == "waiting" else row.verdict
        cells = [str(one.number), one.source, one.name, one.at, shown, *figures, said, commit[:8]]
        text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def words_of(row: Row) -> str:
    """Return the paragraph of a screen that names what is broken, as code, or the beginning of it; empty without one.

    What stands below the table of peers comes first: it has the advice.
    """
    setup = row.setup
    found = (one for one in reversed(paragraphs(row.screen)) if re.search(setup.cause, one, re.IGNORECASE))
    both = next((one for one in found if re.search(setup.object, one, re.IGNORECASE)), "").replace("`", "'")
    shown = both if len(both) <= LONGEST else f"{both[:LONGEST].rpartition(' ')[0]} ..."
    return f"`{shown}`" if shown else ""


def newest(kept: Iterable[tuple[str, Sequence[Row]]]) -> list[tuple[Row, str]]:
    """Return each set-up's last row that was tried, with its commit, by the rows of commits, the oldest first."""
    found: dict[int, tuple[Row, str]] = {}
    for commit, rows in kept:
        for place, row in enumerate(rows):
            if place not in found or row.verdict != "waiting":
                found[place] = row, commit if row.verdict != "waiting" else ""
    return [found[place] for place in sorted(found)]


def _line(row: Row) -> str:
    one = row.setup
    figures = [f"{row.after:.0f}", f"{row.took:.1f}"] if row.verdict != "waiting" else ["", ""]
    healed = "" if row.verdict == "waiting" else "yes" if row.healed else "no"
    texts = [str(one.number), one.source, one.name, one.at, f"`{one.cause}`", f"`{one.object}`", row.verdict]
    cells = [text.replace("|", "\\|") for text in (*texts, *figures, healed)]
    return f"| {' | '.join(cells)} |"


def plain_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows as plain values, for JSON."""
    return [asdict(row) for row in rows]


def read_rows(plain: Iterable[Mapping[str, Any]], setups: Iterable[Setup]) -> list[Row]:
    """Return a row for each set-up: what ``plain_rows`` made of it before, if it was the same one, or a new row."""
    known = {json.dumps(one["setup"], sort_keys=True): one for one in plain}
    rows = []
    for setup in setups:
        one = known.get(json.dumps(asdict(setup), sort_keys=True), {})
        rows.append(Row(**{**one, "setup": setup}))
    return rows


def failed(setup: Setup, why: str) -> Row:
    """Return the row of a set-up that was not made."""
    return Row(setup=setup, verdict="not made", note=why)


def healed(row: Row, why: str = "") -> Row:
    """Return a row with whether all was well afterwards: where not, why."""
    note = "\n\n".join(part for part in (row.note, f"did not heal: {why}" if why else "") if part)
    return evolve(row, healed=not why, note=note)
