"""Fuzzing by coverage: ``python -m tests.fuzz [TARGET...] [--seconds N]``; ``make fuzz`` installs what it needs.

Each target runs in a process of its own, from the corpus on; what it finds on the way is kept under build/fuzz, an
input that breaks something too. The exit status is that of the first target that broke.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.fuzz.mutate import MOST_PLACES, grown, mutated

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
FOUND = ROOT / "build" / "fuzz"


def main() -> int:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", help="which ones; all when none is named")
    parser.add_argument("--seconds", type=int, default=10, help="how long each of them")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--cost", help="only run this target on the standard input, with the code as it is")
    given = parser.parse_args()
    if given.cost:
        _cost(given.cost)
        return 0
    if given.inside:
        _fuzz(given.inside, given.seconds)
    names = given.targets or sorted(folder.name for folder in CORPUS.iterdir())
    broken = 0
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--inside", name, "--seconds", str(given.seconds)]
        ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        # The figures at the end are for tests.fuzz.campaign.
        lines = [line for line in ended.stderr.splitlines() if not line.startswith("stat::")]
        done = [line for line in lines if line.startswith(("#", "Done"))]
        print(f"{name}: {'ok' if ended.returncode == 0 else 'BROKEN'}; {done[-1] if done else ''}", flush=True)
        if ended.returncode:
            print(ended.stdout[-4000:], *lines[-8:], sep="\n")
            broken = broken or ended.returncode
    return broken


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["liqod", "h11"]):
        from tests.fuzz.cost import timed
        from tests.fuzz.sizes import largest
        from tests.fuzz.targets.every import TARGETS

    size = largest(name)

    def change(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if seed % 16 == 1:
            made: bytes | None = grown(data, random, min(most, size) >> random.randrange(8))
        else:
            made = mutated(data, random, MOST_PLACES) if seed % 4 else None
        return bytes(atheris.Mutate(data, most)) if made is None or len(made) > most else made

    def is_confirmed(data: bytes) -> bool:
        # Code that reports its coverage takes several times as long.
        argv = [sys.executable, "-m", "tests.fuzz", "--cost", name]
        return subprocess.run(argv, cwd=ROOT, check=False, input=data, capture_output=True).returncode != 0

    kept, artifacts = FOUND / name, FOUND / f"broken-{name}-"
    kept.mkdir(parents=True, exist_ok=True)
    # Sizes up to the largest from the beginning: the changes above make few that are.
    options = [f"-max_total_time={seconds}", f"-max_len={size}", "-len_control=0", "-rss_limit_mb=2048", "-timeout=60"]
    options.append("-print_final_stats=1")
    options.append(f"-artifact_prefix={artifacts}")
    atheris.Setup(
        [sys.argv[0], *options, str(kept), str(CORPUS / name)],
        timed(TARGETS[name], is_confirmed),
        custom_mutator=change,
    )
    atheris.Fuzz()


def _cost(name: str) -> None:
    from tests.fuzz.cost import timed
    from tests.fuzz.targets.every import TARGETS

    timed(TARGETS[name])(sys.stdin.buffer.read())


if __name__ == "__main__":
    sys.exit(main())
