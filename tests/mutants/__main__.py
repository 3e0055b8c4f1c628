"""The command line of the mutation tests; the package says what they do."""

from __future__ import annotations

import argparse
import sys

from tests.mutants.checkout import ROOT, Copy
from tests.mutants.equivalent import EQUIVALENT, reason_of, stale
from tests.mutants.imports import Imports
from tests.mutants.reach import Reach
from tests.mutants.results import Results, Verdict, describe, table
from tests.mutants.sample import EXCLUDED, GROUPS, Mutant, draw, is_below
from tests.mutants.trials import Result, Trials

KEPT = ROOT / ".cache" / "mutants"


def main() -> int:
    """Run a sample; the exit status is 1 when a mutant survived."""
    given = _arguments()
    copy = Copy()
    try:
        drawn = _drawn(copy, given)
        if given.list:
            print(*(describe(mutant) for mutant in drawn), sep="\n")
            return 0
        sources = {module: text for module, text in copy.sources().items() if module in {k.module for k in EQUIVALENT}}
        out_of_date = stale(sources)
        reach = Reach(copy.path, KEPT / "reached.json")
        trials = Trials(copy, Imports(), reach, budget=given.budget, wide=given.wide)
        verdicts = _judge(drawn, trials, Results(KEPT / "results.jsonl"), again=given.again)
    finally:
        copy.remove()
    for known in out_of_date:
        print(f"tests/mutants/equivalent.py: {known.module} {known.definition} does not make: {known.now}")
    survivors = [verdict.mutant for verdict in verdicts if verdict.result.outcome == "survived"]
    print("", *(describe(mutant) for mutant in survivors), "", table(verdicts), sep="\n")
    return 1 if survivors else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--count", type=int, default=40, help="how many mutants of it")
    parser.add_argument("--package", nargs="*", default=[], help="modules or packages to draw from")
    parser.add_argument("--group", choices=(*GROUPS, "elsewhere"), help="or one of these groups of them")
    parser.add_argument("--without", nargs="*", default=[], help="modules or packages to leave out")
    parser.add_argument("--only", nargs="*", default=[], help="mutants to run, by the name that --list shows")
    parser.add_argument("--list", action="store_true", help="only show the sample")
    parser.add_argument("--again", action="store_true", help="try once more what survived before")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of a processor for tests of a mutant")
    parser.add_argument("--wide", action="store_true", help="ask tests of other packages and the scenarios too")
    return parser.parse_args()


def _drawn(copy: Copy, given: argparse.Namespace) -> list[Mutant]:
    guarded = [prefix for prefixes in GROUPS.values() for prefix in prefixes]
    inside = [*given.package, *GROUPS.get(given.group, ())] or ["liqod"]
    outside = [*EXCLUDED, *given.without, *(guarded if given.group == "elsewhere" else ())]
    sources = {
        module: text
        for module, text in copy.sources().items()
        if is_below(module, inside) and not is_below(module, outside)
    }
    count = None if given.only else given.count
    return list(draw(sources, given.seed, count, only=given.only))


def _judge(drawn: list[Mutant], trials: Trials, results: Results, *, again: bool) -> list[Verdict]:
    verdicts = []
    for number, mutant in enumerate(drawn, 1):
        result = results.of(mutant)
        if reason_of(mutant):
            result = Result("equivalent", "", 0.0, 0)
        elif result is None or (again and result.outcome == "survived"):
            result = trials.attempt(mutant)
            results.add(Verdict(mutant, result))
        verdicts.append(Verdict(mutant, result))
        reported = f"{result.outcome} by {result.by}" if result.by else result.outcome
        print(f"[{number}/{len(drawn)}] {mutant.name} {mutant.where}: {reported}, {result.seconds:.0f} s", flush=True)
        if result.outcome == "survived":
            print(f"  - {mutant.was}\n  + {mutant.now}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
