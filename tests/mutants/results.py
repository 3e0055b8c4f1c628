"""Results as lines of JSON, the table by package, and what is said about a survivor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.mutants.sample import Mutant
from tests.mutants.trials import Outcome, Result

_COLUMNS: Final[tuple[Outcome, ...]] = ("killed", "survived", "equivalent")


@frozen
class Verdict:
    """A mutant with its result."""

    mutant: Mutant
    result: Result


class Results:
    """The file of results; the last line about a mutant counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self._found = {line["name"]: line for line in map(json.loads, lines)}

    def of(self, mutant: Mutant) -> Result | None:
        """Return the result that a mutant had."""
        line = self._found.get(mutant.name)
        return Result(line["outcome"], line["by"], line["seconds"], line["tests"]) if line is not None else None

    def add(self, verdict: Verdict) -> None:
        """Keep a result."""
        mutant, result = verdict.mutant, verdict.result
        line = {
            "name": mutant.name,
            "where": mutant.where,
            "definition": mutant.change.definition,
            "rule": mutant.change.rule,
            "was": mutant.was,
            "now": mutant.now,
            "outcome": result.outcome,
            "by": result.by,
            "seconds": round(result.seconds, 1),
            "tests": result.tests,
        }
        self._found[mutant.name] = line
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def describe(mutant: Mutant) -> str:
    """Return where a mutant is and the lines it changes."""
    head = f"{mutant.name} {mutant.where} {mutant.change.definition}: {mutant.change.rule}"
    return f"{head}\n  - {mutant.was}\n  + {mutant.now}"


def table(verdicts: Iterable[Verdict]) -> str:
    """Return how many mutants of each package were run, killed, survived, and are equivalent."""
    counts: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        package = ".".join(verdict.mutant.module.split(".")[:2])
        for name in (package, "all"):
            row = counts.setdefault(name, dict.fromkeys(("run", *_COLUMNS), 0))
            row["run"] += 1
            row[verdict.result.outcome] += 1
    return _render({name: counts[name] for name in sorted(counts, key=lambda name: (name == "all", name))})


def _render(rows: Mapping[str, Mapping[str, int]]) -> str:
    head = f"{'package':24}" + "".join(f"{name:>12}" for name in ("run", *_COLUMNS))
    lines = [f"{name:24}" + "".join(f"{number:>12}" for number in row.values()) for name, row in rows.items()]
    return "\n".join((head, *lines))
