"""The result of one test or check, and what a process wrote down about its tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from attrs import evolve, frozen

Verdict = Literal["passed", "failed", "skipped", "unsteady"]
VERDICTS: Final[tuple[Verdict, ...]] = ("passed", "failed", "skipped", "unsteady")
END: Final = {"end": True}
"""The last line that a process writes; without it the process did not get to the end of its tests."""
PROCESS: Final = "[process]"


@frozen
class Result:
    """What came of one test: its full name, the verdict, its seconds, and why it failed or was skipped."""

    test: str
    verdict: Verdict
    seconds: float = 0.0
    detail: str = ""


def parse(text: str) -> tuple[list[Result], bool]:
    """Return the results in a record, one for each test, and whether the record has its end.

    Each line is a JSON object. A test may have several lines, such as a failure and an error when it was cleaned up:
    the worst counts. A line that was cut off when the process died is not a line.
    """
    found: dict[str, Result] = {}
    ended = False
    for line in text.split("\n")[:-1]:
        body = json.loads(line)
        if body == END:
            ended = True
            continue
        result = Result(**body)
        known = found.get(result.test)
        if known is None or _gravity(result) > _gravity(known):
            found[result.test] = result
    return list(found.values()), ended


def judge(title: str, code: int, record: str) -> list[Result]:
    """Return the results of a process of tests; one that did not finish, or ran nothing, is one failure more."""
    results, ended = parse(record)
    failed = any(result.verdict == "failed" for result in results)
    if not ended:
        why = f"ended with exit status {code} before its tests were done"
    elif code != 0 and not failed:
        why = f"ended with exit status {code} although no test failed"
    elif not results:
        why = "there was no test in it"
    else:
        return results
    return [*results, Result(f"{title} {PROCESS}", "failed", 0.0, why)]


def merge(first: Sequence[Result], again: Sequence[Result]) -> list[Result]:
    """Return the results after a second run: what failed in one of two runs is unsteady, in both it failed.

    ``again`` is of all processes of the second run; that a process failed is compared as a whole, because the tests of
    one process run in several the second time. What was not repeated stays as it was.
    """
    second = {_identity(result): result for result in again}
    known = {_identity(result) for result in first}
    if PROCESS in known:
        second.setdefault(PROCESS, Result(PROCESS, "passed"))
    merged = []
    for result in first:
        other = second.get(_identity(result), result)
        failures = [one for one in (result, other) if one.verdict == "failed"]
        merged.append(evolve(failures[0], verdict="unsteady") if len(failures) == 1 else result)
    return merged + [result for result in again if _identity(result) not in known]


def count(results: Iterable[Result]) -> dict[Verdict, int]:
    """Return how many results have each verdict."""
    counted = Counter(result.verdict for result in results)
    return {verdict: counted[verdict] for verdict in VERDICTS}


def phrase(counts: dict[Verdict, int]) -> str:
    """Return counts as ``N passed, N failed, N skipped, N unsteady``."""
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def _identity(result: Result) -> str:
    return PROCESS if result.test.endswith(PROCESS) else result.test


def _gravity(result: Result) -> int:
    return ("passed", "skipped", "unsteady", "failed").index(result.verdict)
