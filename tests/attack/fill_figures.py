"""How far somebody came who wanted to fill another cluster, whether it said so, and the table. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from attrs import asdict, frozen

MIB: Final = 1 << 20
TIMES: Final = 4.0
"""How many times its bound a fill may take in the database: earlier revisions stay until they are compacted."""
SPARE: Final = 48.0
"""MiB that a database grows by in the meantime, whatever is tried."""
MEMORY: Final = 128.0
"""MiB that a daemon's memory may grow by."""


@frozen(kw_only=True)
class Fill:
    """One attempt: by whom, at what, how much was kept, where it stopped, and what it took. Sizes are MiB.

    ``bound`` is what is to be kept at most. ``stopped``: it was refused, or ended, and not just given up. ``said`` is
    what the one that tried is shown, or its administrator; ``paced``: it is slowed down, and never refused. ``taken``
    is by how much the database, or the disk, of the other cluster grew, ``memory`` its daemon. ``well``: all of it
    works afterwards.
    """

    who: Literal["a borrower", "a lender"]
    what: str
    count: int
    kept: float
    bound: float
    stopped: bool
    said: str
    taken: float
    memory: float
    seconds: float
    well: bool
    paced: bool = False

    def text(self) -> str:
        """Return the attempt as JSON."""
        return json.dumps(asdict(self)) + "\n"


def parse(text: str) -> Fill:
    """Return what ``text`` wrote; ValueError or TypeError for anything else."""
    body: dict[str, Any] = json.loads(text)
    return Fill(**body)


def judge(fill: Fill) -> Iterator[str]:
    """Yield what is wrong, in words."""
    if not fill.paced and not fill.stopped:
        yield "nothing stopped it"
    if not fill.paced and not fill.said:
        yield "it stopped, and nothing says so"
    # What is written while a bound becomes known comes on top.
    if fill.kept > 2 * fill.bound:
        yield f"{fill.kept:.0f} MiB were kept, {fill.bound:.0f} are the bound"
    if fill.taken > TIMES * fill.bound + SPARE:
        yield f"it took {fill.taken:.0f} MiB"
    if fill.memory > MEMORY:
        yield f"the daemon grew by {fill.memory:.0f} MiB"
    if not fill.well:
        yield "the cluster did not work afterwards"


def table(fills: Iterable[Fill], head: str) -> str:
    """Return the attempts as Markdown."""
    columns = ("who", "what", "objects", "kept, MiB", "bound", "took, MiB", "daemon, MiB", "s", "what it says")
    lines = ["# Fills", "", head, "", f"| {' | '.join(columns)} | verdict |", "| --- " * (len(columns) + 1) + "|"]
    for one in sorted(fills, key=lambda one: (one.who, one.what)):
        cells = (
            one.who,
            one.what,
            str(one.count),
            *(f"{size:.1f}" for size in (one.kept, one.bound, one.taken, one.memory)),
            f"{one.seconds:.0f}",
            " ".join(one.said.replace("|", "\\|").split())[:200] or ("slowed down" if one.paced else "-"),
            "; ".join(judge(one)) or "good",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
