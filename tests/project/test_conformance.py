"""The page of conformance has every sentence of the documents, and names tests that exist."""

from __future__ import annotations

import hashlib
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
SENTENCES: Final = {
    "000": (20, "8124e8289cf7abef"),
    "001": (31, "3c2422a879434081"),
    "002": (22, "a35536ceb930ab81"),
    "003": (18, "cc46c7ba09db421b"),
    "004": (65, "4ad3558e1773e6dd"),
}
"""How many sentences of each document are on the page, and the digest of their letters.

They were taken when all sentences had been compared with the documents, which are not a part of the checkout.
"""
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


def digest(group: Iterable[str]) -> str:
    """Return a digest of the letters of sentences, in any order; what is in brackets before one is a heading."""
    bare = sorted(re.sub(r"[^a-z0-9]", "", re.sub(r"^\([^)]*\) ", "", one).lower()) for one in group)
    return hashlib.sha256("\n".join(bare).encode()).hexdigest()[:16]


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
        found = {document: (len(group), digest(group)) for document, group in sentences(text).items()}
        self.assertEqual(found, SENTENCES)
        for group in sentences(text).values():
            self.assertEqual(len(set(group)), len(group))
        (first, *_), *_ = sentences(text).values()
        without = {document: digest(group) for document, group in sentences(text.replace(first, "Other.")).items()}
        self.assertNotEqual(without, {document: known for document, (_, known) in SENTENCES.items()})

    def test_what_is_missing_is_found(self) -> None:
        """A module, a class, a test or a form that does not exist is reported."""
        there = rows(PAGE.read_text())[0].tests.split(",")[0].strip("`")
        module, name, method = there.split(".")
        self.assertEqual(missing(there), "")
        for wrong in (f"test_x.{name}.{method}", f"{module}.X.{method}", f"{module}.{name}.test_x", module):
            self.assertTrue(missing(wrong), wrong)
        with self.assertRaises(ValueError):
            rows("| one | two |")
