"""How everything grows with the number of pods, peers, services or Secrets: a curve, with its exponent.

    python -m benchmarks sweep pods|peers|services|secrets [--sizes 100,1000] [--on auto|real|sandbox] [--write]

Each size has clusters of its own; what is measured goes to ``benchmarks/results/sweep-KIND.json`` at once, so that a
sweep that was interrupted goes on. A curve is of one commit: at another one everything is measured again. On real
control planes (as root) as far as they fit on one machine, and beyond that on sandbox servers, with some of the smaller
sizes there too, so that there is a curve for each: ``--on`` takes one place alone. ``--write`` puts the table into
docs/scale.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks.figures.report import stamp
from benchmarks.scale.kinds import KINDS
from benchmarks.scale.points import PLACES, Place, Point, rendered, replaced, store_of
from benchmarks.scale.stage import LARGEST_REAL, OPENERS

PAGE: Final = Path(__file__).parents[2] / "docs/scale.md"
BESIDE: Final = 3
"""How many sizes are measured on sandbox servers as well, the largest of those that fit on real ones."""


def places(kind: str, sizes: Iterable[int], on: str) -> list[tuple[Place, list[int]]]:
    """Return which sizes are measured where."""
    wanted = sorted(set(sizes))
    if on != "auto":
        return [(place, wanted) for place in PLACES if place == on]
    fitting = [size for size in wanted if size <= LARGEST_REAL[kind]]
    beyond = [size for size in wanted if size > LARGEST_REAL[kind]]
    found: list[tuple[Place, list[int]]] = [("real", fitting)]
    if beyond:
        found.append(("sandbox", [*fitting[-BESIDE:], *beyond]))
    return found


def measured(kind: str, size: int, place: Place, commit: str) -> Point:
    """Measure one size on clusters of its own; this process is on their network afterwards."""
    what = KINDS[kind]
    with OPENERS[place](what.lenders(size), what.pods(size)) as stage:
        what.prepare(stage)
        before = stage.spending()
        seconds = what.run(stage, size)
        figures = {"seconds": seconds, **stage.spending().since(before)}
        if len(stage.pages) < 2:  # lenders in one process serve no pages
            del figures["requests, lenders"]
    return Point(kind=kind, size=size, place=place, figures=figures, commit=commit)


def apart(kind: str, size: int, place: Place, commit: str) -> Point:
    """Do so in a process of its own: one that has entered a test network does not leave it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, kind, size, place, commit).result()


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--sizes", default="", help="instead of the usual ones")
    parser.add_argument("--on", choices=["auto", *PLACES], default="auto")
    parser.add_argument("--again", action="store_true", help="measure what is there already, too")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    parser.add_argument("--json", type=Path, help="where the points are kept (benchmarks/results/)")
    args = parser.parse_args()
    what = KINDS[args.kind]
    sizes = [int(word) for word in args.sizes.split(",")] if args.sizes else what.sizes
    commit = str(stamp()["commit"])
    store = store_of(args.kind, commit, args.json)
    for place, wanted in places(args.kind, sizes, args.on):
        for size in wanted if args.again else store.missing(wanted, place):
            point = apart(args.kind, size, place, commit)
            store.add(point)
            print(f"{size} {what.unit} ({place}): {point.figures['seconds']:.1f} s", flush=True)
    text = rendered(store.points(), what.unit)
    print(text)
    if args.write:
        PAGE.write_text(replaced(PAGE.read_text(), f"sweep {args.kind}", text))


if __name__ == "__main__":
    main()
