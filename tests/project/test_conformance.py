"""The page of conformance has every sentence of the documents, and names tests that exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase, TestCase

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = CHECKOUT / "docs" / "conformance.md"
TEST: Final = re.compile(r"((?:\w+\.)?test_\w+)\.(\w+)\.(test_\w+)")
SENTENCES: Final = Path(__file__).with_name("sentences.txt")
"""The sentences of the documents, a line each after the document's number; the documents are not in the checkout."""
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


def sentences(text: str) -> dict[str, list[str]]:
    """Return all sentences on the page by document, those in tables and those that are only listed."""
    found: dict[str, list[str]] = {}
    document = ""
    for line in text.splitlines():
        if line.startswith("## "):
            document = line[3:].partition(":")[0]
        elif line.startswith("* "):
            found.setdefault(document, []).append(line[2:])
    for row in rows(text):
        found.setdefault(row.document, []).append(row.sentence)
    return found


def documented() -> dict[str, list[str]]:
    """Return the sentences of each document."""
    found: dict[str, list[str]] = {}
    for line in SENTENCES.read_text().splitlines():
        document, _, sentence = line.partition(" ")
        found.setdefault(document, []).append(sentence)
    return found


def letters(group: Iterable[str]) -> dict[str, str]:
    """Return sentences by their letters alone; what is in brackets before one is a heading."""
    return {re.sub(r"[^a-z0-9]", "", re.sub(r"^\([^)]*\) ", "", one).lower()): one for one in group}


def differences(text: str) -> list[str]:
    """Return which sentences are on a page and in no document of that number, or the other way round, or twice."""
    page, documents = sentences(text), documented()
    found = []
    for document in sorted({*page, *documents}):
        here, there = letters(page.get(document, ())), letters(documents.get(document, ()))
        found += [f"{document} has on the page alone: {here[one]}" for one in here.keys() - there.keys()]
        found += [f"{document} has not on the page: {there[one]}" for one in there.keys() - here.keys()]
        if len(here) != len(page.get(document, ())):
            found.append(f"{document} has a sentence twice")
    return found


def missing(test: str) -> str:
    """Return why a test cannot be what a row says, or nothing."""
    match = TEST.fullmatch(test)
    if match is None:
        return f"{test!r} is not MODULE.CLASS.TEST"
    module, name, method = match.groups()
    where = module if "." in module else f"real.{module}"
    file = f"tests/{where.replace('.', '/')}.py"
    if not (CHECKOUT / file).exists():
        return f"there is no module {file}"
    case = getattr(importlib.import_module(f"tests.{where}"), name, None)
    if not isinstance(case, type) or not issubclass(case, SynchronousTestCase | TestCase):
        return f"{module} has no tests {name}"
    return "" if callable(getattr(case, method, None)) else f"{module}.{name} has no {method}"


class ConformancePageTests(SynchronousTestCase):
    """What ``docs/conformance.md`` says can be checked."""

    def test_every_row_has_tests_that_exist(self) -> None:
        """Each sentence names at least one test on real clusters; where it names others too, the result says so."""
        wrong = []
        for row in rows(PAGE.read_text()):
            tests = [part.strip().strip("`") for part in row.tests.split(",") if part.strip()]
            simulated = [test for test in tests if test.count(".") > 2]
            wrong += [f"{row.sentence[:60]}: no test on real clusters"] if len(tests) == len(simulated) else []
            wrong += [f"{row.sentence[:60]}: {why}" for why in map(missing, tests) if why]
            if simulated and "simulated" not in row.result:
                wrong.append(f"{row.sentence[:60]}: does not say what is simulated")
        self.assertEqual(wrong, [])

    def test_every_row_says_its_result(self) -> None:
        """A result is "shown", with or without how; whatever is not shown has no row here."""
        wrong = [row.sentence for row in rows(PAGE.read_text()) if not re.fullmatch(r"shown(: .+)?", row.result)]
        self.assertEqual(wrong, [])

    def test_every_sentence_is_there(self) -> None:
        """No sentence of a document is left out, changed or twice on the page."""
        text = PAGE.read_text()
        self.assertEqual(differences(text), [])
        (first, *_), *_ = sentences(text).values()
        changed = differences(text.replace(first, "Other."))
        self.assertEqual(len(changed), 2, changed)
        self.assertIn("000 has on the page alone: Other.", changed)

    def test_what_is_missing_is_found(self) -> None:
        """A module, a class, a test or a form that does not exist is reported."""
        there = rows(PAGE.read_text())[0].tests.split(",")[0].strip("`")
        module, name, method = there.split(".")
        self.assertEqual(missing(there), "")
        for wrong in (f"test_x.{name}.{method}", f"{module}.X.{method}", f"{module}.{name}.test_x", module):
            self.assertTrue(missing(wrong), wrong)
        with self.assertRaises(ValueError):
            rows("| one | two |")
