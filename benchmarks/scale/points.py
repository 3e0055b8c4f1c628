"""The points of a sweep: what was measured at each size and where, kept as JSON, and shown as a table. Pure but for
the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import asdict, frozen

from benchmarks.figures.measure import table
from benchmarks.figures.report import RESULTS, stamp
from benchmarks.scale.fit import power

Place = Literal["real", "sandbox"]
PLACES: Final[tuple[Place, ...]] = ("real", "sandbox")
FIGURES: Final = (
    "seconds",
    "requests, borrower",
    "requests, lenders",
    "CPU s, borrower",
    "CPU s, lenders",
    "MiB, borrower",
    "MiB, lenders",
    "watches, borrower",
)
"""What is measured at each size; each is what was added by the objects of the sweep."""


@frozen(kw_only=True)
class Point:
    """What so many objects took: ``figures`` by name; ``commit`` is what was measured."""

    kind: str
    size: int
    place: Place
    figures: Mapping[str, float]
    commit: str = ""


@frozen
class Store:
    """The points of one kind in a file, which each new one is written to at once: what is there is not measured again.

    Points of another commit count as measured, unless ``again``.
    """

    kind: str
    file: Path
    again: bool = False

    def points(self) -> list[Point]:
        """Return the points in the order of places and sizes; none where there is no file."""
        if not self.file.exists():
            return []
        return sorted((_point(one) for one in json.loads(self.file.read_text())["points"]), key=_order)

    def missing(self, sizes: Iterable[int], place: Place, commit: str) -> list[int]:
        """Return the sizes that are still to be measured at a place, the smallest first."""
        known = {one.size for one in self.points() if one.place == place and (not self.again or one.commit == commit)}
        return sorted(set(sizes) - known)

    def add(self, point: Point) -> None:
        """Keep a point in place of a former one of its size and place."""
        kept = [one for one in self.points() if (one.size, one.place) != (point.size, point.place)]
        kept = sorted([*kept, point], key=_order)
        text = json.dumps({**stamp(), "kind": self.kind, "points": [asdict(one) for one in kept]}, indent=1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # Complete or not there: a run that is interrupted goes on with what it had.
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(f"{text}\n")
        fresh.replace(self.file)


def store_of(kind: str, *, again: bool = False, file: Path | None = None) -> Store:
    """Return where the points of a kind are kept."""
    return Store(kind, file or RESULTS / f"sweep-{kind}.json", again)


def rendered(points: Sequence[Point], unit: str) -> str:
    """Return the points as a table, with a row for the exponents of each place.

    The two places are fitted apart: a sandbox server answers in another time than a real one.
    """
    head = [unit, "servers", *FIGURES]
    rows: list[list[object]] = []
    for place in PLACES:
        here = [one for one in points if one.place == place]
        rows += [[one.size, place, *(_cell(one.figures, name) for name in FIGURES)] for one in here]
        if len(here) > 1:
            rows.append(["exponent", place, *(exponent(here, name) for name in FIGURES)])
    return table(head, rows) if rows else "Not measured yet."


def exponent(points: Sequence[Point], name: str) -> str:
    """Return the exponent by which a figure grows, and how many times the worst point is off; a dash without one."""
    known = [(float(one.size), one.figures[name]) for one in points if name in one.figures]
    found = power(known)
    return "-" if found is None else f"{found.exponent:.2f} (x{found.off:.2f})"


def replaced(page: str, name: str, text: str) -> str:
    """Return a page with the text between the marks of a name replaced; LookupError where they are not."""
    begin, end = (f"<!-- {word} of {name} -->\n" for word in ("begin", "end"))
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise LookupError(f"the page has no marks {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{text}\n{end}{after}"


def _cell(figures: Mapping[str, float], name: str) -> object:
    return figures.get(name, "-")


def _order(point: Point) -> tuple[int, int]:
    return PLACES.index(point.place), point.size


def _point(one: Mapping[str, Any]) -> Point:
    return Point(
        kind=one["kind"],
        size=int(one["size"]),
        place="real" if one["place"] == "real" else "sandbox",
        figures={name: float(value) for name, value in one["figures"].items()},
        commit=one.get("commit", ""),
    )
