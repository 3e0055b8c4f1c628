"""What a run prints at its end, its exit status, and its results as JUnit XML for other programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.runner.execute import Outcome
from tests.runner.results import Result, Verdict, count, phrase

_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FEW: Final = 3


def report(results: Sequence[Result], *, on_ci: bool) -> tuple[list[str], int]:
    """Return the last lines of a run and its exit status; the last line is the count and nothing else.

    On continuous integration a run in which a test was skipped or unsteady has failed; elsewhere both are only named.
    """
    counts = count(results)
    lines = list(_left_out(results))
    lines += [
        f"unsteady: {one.test}: failed in one of two runs; what it said stands above"
        for one in results
        if one.verdict == "unsteady"
    ]
    lines += [f"failed: {one.test}" for one in results if one.verdict == "failed"]
    if not counts["passed"]:
        lines.append("nothing passed" if results else "there was nothing to run")
    incomplete = counts["skipped"] + counts["unsteady"]
    if on_ci and incomplete:
        lines.append(f"failed: {incomplete} tests were skipped or unsteady, and CI takes neither for passed")
    lines.append(phrase(counts))
    good = not counts["failed"] and counts["passed"] and not (on_ci and incomplete)
    return lines, 0 if good else 1


def _left_out(results: Sequence[Result]) -> Iterator[str]:
    """Yield one line for each reason for which tests were skipped, with their names, or the number where many."""
    skipped = sorted((one.detail, one.test) for one in results if one.verdict == "skipped")
    for reason, group in groupby(skipped, key=lambda pair: pair[0]):
        tests = [test for _, test in group]
        modules = sorted({test.rpartition(".")[0].rpartition(".")[0] for test in tests})
        names = ", ".join(tests) if len(tests) <= _FEW else f"{len(tests)} tests of {', '.join(modules)}"
        yield f"left out: {names} because {' '.join(reason.split())}"


def write_junit(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the results as JUnit XML, at once and complete; an unsteady test is a failure of type ``unsteady``."""
    root = ElementTree.Element("testsuites")
    for outcome in outcomes:
        counts = outcome.counts
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=outcome.step.title,
            tests=str(len(outcome.results)),
            failures=str(counts["failed"] + counts["unsteady"]),
            skipped=str(counts["skipped"]),
            time=f"{outcome.seconds:.3f}",
        )
        for result in outcome.results:
            _add_case(suite, result)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.fresh")
    ElementTree.ElementTree(root).write(fresh, encoding="utf-8", xml_declaration=True)
    fresh.replace(path)


def read_junit(path: Path) -> list[Result]:
    """Return the results that were written to a file."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        test = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        marks = [child for child in case if child.tag in ("failure", "skipped")]
        verdict: Verdict = "passed"
        if marks:
            verdict = "skipped" if marks[0].tag == "skipped" else _verdict(marks[0].get("type", ""))
        detail = (marks[0].text or marks[0].get("message") or "") if marks else ""
        found.append(Result(test, verdict, float(case.get("time", 0)), detail))
    return found


def _verdict(kind: str) -> Verdict:
    return "unsteady" if kind == "unsteady" else "failed"


def _add_case(suite: ElementTree.Element, result: Result) -> None:
    classname, _, name = result.test.rpartition(".")
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name, time=f"{result.seconds:.3f}")
    # XML has no way to write control characters, which output of programs is full of.
    text = _NOT_XML.sub("?", result.detail)
    if result.verdict == "skipped":
        ElementTree.SubElement(case, "skipped", message=text)
    elif result.verdict != "passed":
        failure = ElementTree.SubElement(case, "failure", type=result.verdict, message=text.strip().split("\n")[-1])
        failure.text = text
