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
from benchmarks.figures.report import RESULTS, keep, stamp
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
    """The points of one kind in a file, which each new one is written to at once.

    A curve is of one version: points of another ``commit`` stay in the file, and are neither shown nor gone on with.
    """

    kind: str
    file: Path
    commit: str

    def points(self) -> list[Point]:
        """Return the points of the commit in the order of places and sizes; none where there is no file."""
        return sorted((one for one in self._all() if one.commit == self.commit), key=_order)

    def missing(self, sizes: Iterable[int], place: Place) -> list[int]:
        """Return the sizes that are still to be measured at a place, the smallest first."""
        known = {one.size for one in self.points() if one.place == place}
        return sorted(set(sizes) - known)

    def add(self, point: Point) -> None:
        """Keep a point in place of a former one of its size, place and commit."""
        kept = [one for one in self._all() if _what(one) != _what(point)]
        kept = sorted([*kept, point], key=_order)
        machine = stamp()["machine"]
        keep(self.file, {"kind": self.kind, "machine": machine, "points": [asdict(one) for one in kept]})

    def _all(self) -> list[Point]:
        return [_point(one) for one in json.loads(self.file.read_text())["points"]] if self.file.exists() else []


def store_of(kind: str, commit: str, file: Path | None = None) -> Store:
    """Return where the points of a kind are kept, and those of a commit are found."""
    return Store(kind, file or RESULTS / f"sweep-{kind}.json", commit)


def rendered(points: Sequence[Point], unit: str) -> str:
    """Return the points as a table, with a row for the exponents of each place, and the commits that they are of.

    The two places are fitted apart: a sandbox server answers in another time than a real one.
    """
    head = [unit, "servers", *FIGURES]
    rows: list[list[object]] = []
    for place in PLACES:
        here = [one for one in points if one.place == place]
        rows += [[one.size, place, *(_cell(one.figures, name) for name in FIGURES)] for one in here]
        if len(here) > 1:
            rows.append(["exponent", place, *(exponent(here, name) for name in FIGURES)])
    commits = ", ".join(sorted({one.commit for one in points}))
    return f"{table(head, rows)}\n\nMeasured at commit {commits}." if rows else "Not measured yet."


def exponent(points: Sequence[Point], name: str) -> str:
    """Return the exponent by which a figure grows, and how many times the worst point is off; a dash without one.

    A size at which nothing was added has no logarithm: then it is said how many sizes the curve is of.
    """
    known = [(float(one.size), one.figures[name]) for one in points if name in one.figures]
    found = power(known)
    if found is None:
        return "-"
    grown = sum(value > 0 for _, value in known)
    few = "" if grown == len(known) else f", {grown} of {len(known)} sizes"
    return f"{found.exponent:.2f} (x{found.off:.2f}{few})"


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


def _what(point: Point) -> tuple[int, str, str]:
    return point.size, point.place, point.commit


def _point(one: Mapping[str, Any]) -> Point:
    return Point(
        kind=one["kind"],
        size=int(one["size"]),
        place="real" if one["place"] == "real" else "sandbox",
        figures={name: float(value) for name, value in one["figures"].items()},
        commit=one.get("commit", ""),
    )
