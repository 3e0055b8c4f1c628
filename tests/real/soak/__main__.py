"""Runs two real clusters for hours and tells what has grown: ``python -m tests.real.soak --hours 2``.

Each minute something happens (``plan``), everything comes to rest, and one line of JSON is written to
``.cache/soak/<commit>-<seed>.jsonl``; the verdict on all of them stands beside it. A run of minutes judges counts and
descriptors; memory is judged after the first hour. The exit status is 0 where nothing has grown.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import define, field

from tests.nightly import state
from tests.real.borrowing import Borrowing, prepare
from tests.real.path import eventually
from tests.real.soak import events, sampling
from tests.real.soak.plan import Event, plan
from tests.real.soak.verdict import Reading, Sample, judge, parse, passed, report
from tests.runner.steps import CHECKOUT
from tests.testbed.process import CommandFailed

KEPT: Final = CHECKOUT / ".cache" / "soak"
PACE: Final = 60.0
"""Seconds from the beginning of one event to that of the next, at least."""
REST_WITHIN: Final = 300.0
GIVEN_UP: Final = 3
"""Events in a row without a rest after which the soak ends: what comes then only repeats that."""
_FAILURES: Final = (CommandFailed, AssertionError, LookupError, ValueError, OSError)


@define
class Soak:
    """One soak: takes one event after the other and writes a sample after each."""

    sides: Borrowing
    file: Path
    pace: float = PACE
    _begin: float = field(factory=time.monotonic, init=False)
    _pods: dict[str, str] = field(factory=dict, init=False)
    _counts: sampling.Counts | None = field(default=None, init=False)

    def run(self, seconds: float, seed: int) -> None:
        """Go on for so long, or until nothing comes to rest any more."""
        self._pods = self.sides.pods() or {}
        self._counts = sampling.Counts(self.sides)
        self._begin = time.monotonic()
        self._write(self._rested("the beginning", ""))
        restless = 0
        for number, event in enumerate(plan(seed), 1):
            begin = time.monotonic()
            if begin - self._begin >= seconds or restless >= GIVEN_UP:
                return
            sample = self._one(event, number)
            restless = 0 if sample.rested else restless + 1
            self._write(sample)
            time.sleep(max(0.0, begin + self.pace - time.monotonic()))

    def _one(self, event: Event, number: int) -> Sample:
        note = ""
        try:
            events.happen(self.sides, event, number)
        except _FAILURES as error:
            note = f"{type(error).__name__}: {error}"
        return self._rested(event.text, note)

    def _rested(self, event: str, note: str) -> Sample:
        """Wait until all is as it was at the beginning, and return what there is then."""
        begin, rested = time.monotonic(), True
        try:
            eventually("all is at rest", self._is_at_rest, REST_WITHIN, 1.0)
        except AssertionError as error:
            rested, note = False, " ".join(filter(None, (note, str(error))))
        waited = time.monotonic() - begin
        daemons: dict[str, Reading] = {}
        counts: dict[str, int] = {}
        try:
            assert self._counts is not None
            daemons, counts = sampling.daemons(self.sides), self._counts.take()
        except _FAILURES as error:
            rested, note = False, " ".join(filter(None, (note, str(error))))
        at = time.monotonic() - self._begin
        return Sample(
            at=at, event=event, rested=rested, waited=waited, daemons=daemons, counts=counts, note=note[:2000]
        )

    def _is_at_rest(self) -> bool:
        for name in self.sides.daemons:
            assert events.is_led_by_first(self.sides, name), f"{name}: {self.sides.leader(name)} leads"
            assert self.sides.standbys[name].running, f"the second daemon of {name} has ended"
        assert self.sides.is_well()
        pods = self.sides.pods()
        assert pods == self._pods, f"the pods that run all the time are others: {pods}, not {self._pods}"
        return True

    def _write(self, sample: Sample) -> None:
        with self.file.open("a") as file:
            file.write(sample.line() + "\n")
        memory = ", ".join(f"{name} {one.resident // 1024} MiB" for name, one in sample.daemons.items())
        print(f"{sample.at / 60:.0f} min: {sample.event}; {memory} {sample.note}".rstrip(), flush=True)


def main(argv: Sequence[str]) -> int:
    """Run the soak, or judge the samples of one, and return 1 where something has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long; 0.2 for a short one [2]")
    parser.add_argument("--seed", type=int, default=17, help="what happens when [17]")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="only judge the samples of a file")
    args = parser.parse_args(argv)
    file = args.judge or KEPT / f"{state()}-{args.seed}.jsonl"
    if not args.judge:
        # An end by SIGTERM is as orderly as one by Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        prepare()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with Borrowing(standbys=True) as sides:
            Soak(sides, file).run(args.hours * 3600, args.seed)
    samples = parse(file.read_text().splitlines())
    findings = judge(samples)
    minutes = samples[-1].at / 60 if samples else 0.0
    text = report(findings, f"{minutes:.0f} minutes, {len(samples)} samples, `{file.name}`.")
    if not args.judge:
        file.with_suffix(".md").write_text(text)
    print(text, flush=True)
    return 0 if passed(findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
