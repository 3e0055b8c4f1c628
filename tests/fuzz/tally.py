"""What the runs of a fuzzer come to: executions, hours and findings of each target, and their table. Pure.

Source of the lines that are read: LLVM, libFuzzer ("Output", "Options": -print_final_stats), and what atheris prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import asdict, evolve, frozen

_EXECUTED: Final = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
_PROGRESS: Final = re.compile(r"^#(\d+)\s", re.MULTILINE)
_COVERED: Final = re.compile(r"\bcov: (\d+)")
_PEAK: Final = re.compile(r"^stat::peak_rss_mb:\s+(\d+)|\brss: (\d+)Mb", re.MULTILINE)
_UNCAUGHT: Final = re.compile(r"^ *=== Uncaught Python exception: ===\n(.*)$", re.MULTILINE)
_ERROR: Final = re.compile(r"^==\d+== *ERROR: (.*)$", re.MULTILINE)
_SAVED: Final = re.compile(r"Test unit written to (\S+)")
_DIGITS: Final = re.compile(r"\d+")
SHOWN: Final = 200


@frozen
class Finding:
    """One thing that broke: the error in a line, the first file that shows it, and how many runs ended by it."""

    text: str
    input: str = ""
    times: int = 1

    @property
    def kind(self) -> str:
        """What makes two the same: the error, whatever numbers are in it."""
        return _DIGITS.sub("N", self.text)


@frozen
class Reading:
    """What one run of the fuzzer printed: inputs that were tried, lines that were reached, MiB, what broke."""

    executions: int
    covered: int
    peak: int
    finding: Finding | None = None


@frozen
class Tally:
    """All runs of one target together."""

    target: str
    seconds: float = 0.0
    executions: int = 0
    runs: int = 0
    covered: int = 0
    peak: int = 0
    findings: tuple[Finding, ...] = ()

    def line(self) -> str:
        """Return the tally as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"


def read(output: str, code: int | None) -> Reading:
    """Return what a run printed that ended with a status, or that did not end in time (None)."""
    executed = [int(one) for one in _EXECUTED.findall(output)] or [int(one) for one in _PROGRESS.findall(output)]
    peaks = [int(one or other) for one, other in _PEAK.findall(output)]
    finding = None if code == 0 else Finding(_why(output, code), _input(output))
    covered = [int(one) for one in _COVERED.findall(output)]
    return Reading(max(executed, default=0), max(covered, default=0), max(peaks, default=0), finding)


def _why(output: str, code: int | None) -> str:
    if code is None:
        return "did not end in time"
    for pattern in (_UNCAUGHT, _ERROR):
        if found := pattern.search(output):
            return found[1].strip()[:SHOWN]
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"ended with status {code}: {last.strip()}"[:SHOWN]


def _input(output: str) -> str:
    found = _SAVED.search(output)
    return found[1] if found else ""


def merged(tally: Tally, reading: Reading, seconds: float) -> Tally:
    """Return the tally with one more run; a finding of a known kind counts as that."""
    findings = list(tally.findings)
    if reading.finding is not None:
        kinds = [one.kind for one in findings]
        if reading.finding.kind in kinds:
            at = kinds.index(reading.finding.kind)
            findings[at] = evolve(findings[at], times=findings[at].times + 1)
        else:
            findings.append(reading.finding)
    return evolve(
        tally,
        seconds=tally.seconds + seconds,
        executions=tally.executions + reading.executions,
        runs=tally.runs + 1,
        covered=max(tally.covered, reading.covered),
        peak=max(tally.peak, reading.peak),
        findings=tuple(findings),
    )


def parse(text: str) -> Tally:
    """Return the tally that ``line`` wrote; ValueError, TypeError or KeyError for anything else."""
    body: Mapping[str, Any] = json.loads(text)
    return Tally(**{**body, "findings": tuple(Finding(**one) for one in body["findings"])})


def is_good(tallies: Iterable[Tally]) -> bool:
    """Return whether there was something, all of it was tried, and nothing broke."""
    known = list(tallies)
    return bool(known) and all(one.executions and not one.findings for one in known)


def table(tallies: Iterable[Tally], head: str) -> str:
    """Return the tallies as Markdown, with their sum and what broke."""
    known = sorted(tallies, key=lambda one: one.target)
    whole = Tally(
        "all",
        sum(one.seconds for one in known),
        sum(one.executions for one in known),
        covered=0,
        peak=max((one.peak for one in known), default=0),
        findings=tuple(finding for one in known for finding in one.findings),
    )
    columns = ("target", "executions", "hours", "a second", "branches reached", "MiB", "findings")
    lines = ["# Fuzzing", "", head, "", f"| {' | '.join(columns)} |"]
    lines.append("| --- " * 7 + "|")
    for one in (*known, whole):
        rate = one.executions / one.seconds if one.seconds else 0.0
        reached = str(one.covered) if one is not whole else ""
        cells = (one.target, one.executions, f"{one.seconds / 3600:.2f}", f"{rate:.0f}", reached, one.peak)
        lines.append("| " + " | ".join(map(str, cells)) + f" | {len(one.findings)} |")
    broken = [(one.target, finding) for one in known for finding in one.findings]
    if broken:
        lines += ["", "| target | what broke | times | input |", "| --- | --- | --- | --- |"]
        lines += [f"| {name} | {_cell(one.text)} | {one.times} | {_cell(one.input)} |" for name, one in broken]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
