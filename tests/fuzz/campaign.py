"""Fuzzes each target for a given time and keeps account of it: ``python -m tests.fuzz.campaign [TARGET...]``.

A target breaks, and goes on: each kind of finding counts once. What was tried, for how long and what broke is written
as JSON to ``.cache/fuzz/<commit>``, a file for each target, after every quarter of an hour, so that a campaign that was
interrupted goes on where it was; ``table.md`` beside them is the table. The exit status is 0 where nothing broke.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.fuzz.cost import BYTES, ORDINARY, SECONDS
from tests.fuzz.seeds import CORPUS
from tests.fuzz.tally import Reading, Tally, is_good, merged, parse, read, table
from tests.nightly import state
from tests.runner.steps import CHECKOUT

KEPT: Final = CHECKOUT / ".cache" / "fuzz"
SLICE: Final = 900.0
"""Seconds after which what was done is written down."""
SHORTEST: Final = 2.0
"""Seconds below which a rest of time is none."""
SPARE: Final = 240.0
"""Seconds beside its time that a run may take to load, and to confirm what is slow."""
FAILURES: Final = 20
"""Runs that end by a finding, after which a target is left: what comes then only repeats them."""


def main(argv: Sequence[str]) -> int:
    """Run the campaign, and return 1 where something broke, or nothing was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which ones; all when none is named")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long each of them for this commit [300]")
    parser.add_argument("--folder", type=Path, help="where the account is kept")
    args = parser.parse_args(argv)
    known = sorted(folder.name for folder in CORPUS.iterdir())
    if unknown := set(args.targets) - set(known):
        parser.error(f"no target is called {', '.join(sorted(unknown))}")
    # An end by SIGTERM is as orderly as one by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = args.folder or KEPT / state()
    folder.mkdir(parents=True, exist_ok=True)
    names = args.targets or known
    for name in names:
        tally = fuzz(name, args.seconds, folder)
        print(f"{name}: {tally.executions} in {tally.seconds:.0f} s, {len(tally.findings)} findings", flush=True)
    all_of_them = list(kept(folder))
    bounds = f"{SECONDS * 1000:.0f} ms and {BYTES >> 20} MiB"
    limits = f"An input of up to {ORDINARY >> 10} KiB may take {bounds}, a larger one more in proportion."
    text = table(all_of_them, f"Commit `{folder.name}`. {limits}")
    (folder / "table.md").write_text(text)
    print(text, flush=True)
    return 0 if is_good(one for one in all_of_them if one.target in names) else 1


def kept(folder: Path) -> Iterator[Tally]:
    """Yield what was written down; a file that was cut off is none."""
    for file in sorted(folder.glob("*.json")):
        try:
            yield parse(file.read_text())
        except (ValueError, TypeError, KeyError):
            continue


def fuzz(name: str, seconds: float, folder: Path) -> Tally:
    """Fuzz a target until it had so many seconds in all, and return its account."""
    tally = next((one for one in kept(folder) if one.target == name), Tally(name))
    failures = 0
    while (left := seconds - tally.seconds) >= SHORTEST and failures < FAILURES:
        begin = time.monotonic()
        reading = run(name, min(left, SLICE))
        if not reading.executions and not (reading.finding and reading.finding.input):
            # Not a finding of the target, such as a fuzzer that is not installed.
            raise SystemExit(f"{name}: nothing was tried: {reading.finding.text if reading.finding else 'no reason'}")
        failures += reading.finding is not None
        tally = merged(tally, reading, time.monotonic() - begin)
        written = folder / f"{name}.json.new"
        written.write_text(tally.line())
        written.replace(folder / f"{name}.json")
    return tally


def run(name: str, seconds: float) -> Reading:
    """Run the fuzzer once."""
    argv = [sys.executable, "-m", "tests.fuzz", "--inside", name, "--seconds", str(math.ceil(seconds))]
    try:
        ended = subprocess.run(
            argv, cwd=CHECKOUT, check=False, capture_output=True, text=True, errors="replace", timeout=seconds + SPARE
        )
    except subprocess.TimeoutExpired as late:
        said = b"".join(one for one in (late.stdout, late.stderr) if isinstance(one, bytes))
        return read(said.decode(errors="replace"), None)
    return read(f"{ended.stdout}\n{ended.stderr}", ended.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
