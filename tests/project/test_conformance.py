"""The page of conformance names tests that exist, and all of them run on real clusters."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase, TestCase

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = CHECKOUT / "docs" / "conformance.md"
TEST: Final = re.compile(r"(test_\w+)\.(\w+)\.(test_\w+)")
DOCUMENTS: Final = ("000", "001", "003", "004")
HEAD: Final = ("the sentence", "shown by", "result")


@frozen
class Row:
    """A row of a table: its document, the sentence, the tests as they are written there, and the result."""

    document: str
    sentence: str
    tests: str
    result: str


def rows(text: str) -> list[Row]:
    """Return the rows of all tables on the page; ValueError for one that has not three cells."""
    found, document = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            document = line[3:].partition(":")[0]
        elif line.startswith("|"):
            cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            if len(cells) != len(HEAD):
                raise ValueError(f"not three cells: {line}")
            if cells != HEAD and not set("".join(cells)) <= set("- "):
                found.append(Row(document, *cells))
    return found


def missing(test: str) -> str:
    """Return why a test cannot be what a row says, or nothing."""
    match = TEST.fullmatch(test)
    if match is None:
        return f"{test!r} is not MODULE.CLASS.TEST"
    module, name, method = match.groups()
    if not (CHECKOUT / "tests" / "real" / f"{module}.py").exists():
        return f"there is no module tests/real/{module}.py"
    case = getattr(importlib.import_module(f"tests.real.{module}"), name, None)
    if not isinstance(case, type) or not issubclass(case, SynchronousTestCase | TestCase):
        return f"{module} has no tests {name}"
    return "" if callable(getattr(case, method, None)) else f"{module}.{name} has no {method}"


class ConformancePageTests(SynchronousTestCase):
    """What ``docs/conformance.md`` says can be checked."""

    def test_every_row_has_tests_that_exist(self) -> None:
        """Each sentence names at least one test, and each of them is a test on real clusters."""
        wrong = []
        for row in rows(PAGE.read_text()):
            tests = [part.strip().strip("`") for part in row.tests.split(",") if part.strip()]
            wrong += [f"{row.sentence[:60]}: no test"] if not tests else []
            wrong += [f"{row.sentence[:60]}: {why}" for why in map(missing, tests) if why]
        self.assertEqual(wrong, [])

    def test_every_row_says_its_result(self) -> None:
        """A result is "shown", with or without how; whatever is not shown has no row here."""
        wrong = [row.sentence for row in rows(PAGE.read_text()) if not re.fullmatch(r"shown(: .+)?", row.result)]
        self.assertEqual(wrong, [])

    def test_every_document_has_rows(self) -> None:
        """All documents that say what the system does are there, and no sentence twice in one."""
        found = rows(PAGE.read_text())
        self.assertEqual(tuple(dict.fromkeys(row.document for row in found)), DOCUMENTS)
        sentences = [(row.document, row.sentence) for row in found]
        self.assertEqual(len(set(sentences)), len(sentences))

    def test_what_is_missing_is_found(self) -> None:
        """A module, a class, a test or a form that does not exist is told."""
        there = rows(PAGE.read_text())[0].tests.split(",")[0].strip("`")
        module, name, method = there.split(".")
        self.assertEqual(missing(there), "")
        for wrong in (f"test_x.{name}.{method}", f"{module}.X.{method}", f"{module}.{name}.test_x", module):
            self.assertTrue(missing(wrong), wrong)
        with self.assertRaises(ValueError):
            rows("| one | two |")
