"""Tries broken set-ups one after the other: break, look until it is shown, mend, wait until all is well.

None may block another: each has so much time to be shown and to heal, and where it does not heal the next one gets new
clusters.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve, field, frozen

from tests.real.borrowing import Borrowing
from tests.real.broken_setups import faults, verdicts
from tests.real.broken_setups.setups import Setup
from tests.real.broken_setups.verdicts import Row
from tests.real.path import eventually
from tests.real.terminal import Shown, first_screen, on_terminal
from tests.testbed import process

SHOWN_WITHIN: Final = 180.0
"""Seconds after which a set-up that is not shown will not be: a closed port is one after a minute."""
HEALED_WITHIN: Final = 240.0
ENDED_AFTER: Final = 40.0
"""Seconds after which a look at the status is ended; what takes more than ten is too slow already."""
PAUSE: Final = 1.0
_FAILURES: Final = (process.CommandFailed, AssertionError, LookupError, ValueError, OSError)
"""What goes wrong with programs and clusters; anything else is a mistake in here, and ends the campaign."""


@frozen
class Patience:
    """How long one set-up may take to be shown, and to heal."""

    shown: float = SHOWN_WITHIN
    healed: float = HEALED_WITHIN


def status(sides: Borrowing, name: str) -> Shown:
    """Have the administrator of a side look."""
    daemon = sides[name]
    program = str(Path(sys.executable).with_name("liqodctl"))
    options = [f"--kubeconfig={daemon.cluster.kubeconfig}", f"--config={daemon.config}"]
    return on_terminal([*process.entry(daemon.cluster.namespace), program, "status", *options], timeout=ENDED_AFTER)


def tried(sides: Borrowing, setup: Setup, patience: Patience) -> Row:
    """Return what came of one set-up; everything is undone, and ``healed`` tells whether that helped."""
    row = verdicts.failed(setup, "")
    try:
        before = status(sides, setup.at)
        if verdicts.judged(before, setup) in ("both", "slow"):
            return Row(setup=setup, verdict="before", screen=first_screen(before.text), healed=True)
        with (
            faults.begun(sides, setup.fault, setup.moment, time.sleep),
            faults.made(sides, setup.fault),
        ):
            row = _watched(sides, setup, patience.shown)
    except _FAILURES as error:
        # Of a fault that could not be undone what it had shown is known all the same.
        row = evolve(row, note=f"{type(error).__name__}: {error}")
    return _healed(sides, row, patience.healed)


def _watched(sides: Borrowing, setup: Setup, seconds: float) -> Row:
    begin = time.monotonic()
    best = Row(setup=setup, verdict="neither")
    while not best.good and time.monotonic() - begin < seconds:
        shown = status(sides, setup.at)
        row = Row(
            setup=setup,
            verdict=verdicts.judged(shown, setup),
            after=time.monotonic() - begin,
            took=shown.seconds,
            screen=first_screen(shown.text),
        )
        best = verdicts.better(best, row)
        time.sleep(PAUSE)
    return best


def _healed(sides: Borrowing, row: Row, seconds: float) -> Row:
    try:
        eventually("all is well again", sides.is_well, seconds, PAUSE)
    except _FAILURES as error:
        return verdicts.healed(row, str(error))
    return verdicts.healed(row)


@frozen
class Campaign:
    """All of them on one pair of clusters; ``report`` is called with all rows after each."""

    sides: Borrowing
    report: Callable[[Sequence[Row]], None]
    patience: Patience = field(factory=Patience)

    def run(self, known: Sequence[Row], chosen: Sequence[Setup]) -> list[Row]:
        """Try set-ups in their order; return all rows that are known, with a new one for each of these."""
        rows = list(known)
        self.report(rows)
        left = [number for number, row in enumerate(rows) if row.setup in chosen]
        for count, number in enumerate(left, 1):
            begin = time.monotonic()
            rows[number] = row = tried(self.sides, rows[number].setup, self.patience)
            print(
                f"[{count}/{len(left)}] {row.setup.number} {row.setup.name}: {row.verdict} after {row.after:.0f} s, "
                f"{'healed' if row.healed else 'not healed'}, {time.monotonic() - begin:.0f} s in all",
                flush=True,
            )
            self.report(rows)
            if not row.healed and count < len(left):
                print("new clusters", flush=True)
                try:
                    self.sides.renew()
                except _FAILURES as error:
                    print(f"none: {error}", flush=True)
                    break
        return rows
