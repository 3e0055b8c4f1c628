"""The pages for people name files and tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PATHS: Final = re.compile(r"`((?!liqod/\d)(?:liqod|sandbox|tests|docs|etc|systemd|benchmarks)/[\w./-]*)`")
NOW: Final = re.compile(r"`([\w.-]+/[\w./-]*)`")
LINKS: Final = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
NAMES: Final = re.compile(r"`([A-Za-z_0-9]+(?:\.[A-Za-z_0-9]+)*)`")


def pages() -> Iterator[Path]:
    """Yield the pages that speak of the checkout as it is; docs/moved.md also has what was."""
    yield CHECKOUT / "CONTRIBUTING.md"
    yield CHECKOUT / "README.md"
    yield from (page for page in sorted((CHECKOUT / "docs").rglob("*.md")) if page.name != "moved.md")


@cache
def modules() -> dict[str, dict[str, set[str]]]:
    """Return the classes and functions of each module below ``tests``, and the methods of the classes."""
    found = {}
    for file in (CHECKOUT / "tests").rglob("*.py"):
        body = ast.parse(file.read_text()).body
        found[".".join(file.relative_to(CHECKOUT / "tests").with_suffix("").parts)] = {
            node.name: {
                each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return found


def is_there(name: str) -> bool:
    """Tell whether ``module.Class.test``, or the end of such a name, is in the tests."""
    parts = name.removeprefix("tests.").split(".")
    known = modules()
    for count in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:count]), parts[count:]
        named = [each for each in known if each == module or each.endswith(f".{module}")]
        if named:
            return not rest or any(_has(known[each], rest) for each in named)
    return any(_has(each, parts) for each in known.values())


def _has(module: dict[str, set[str]], parts: list[str]) -> bool:
    first, *rest = parts
    if len(parts) == 1 and any(first in methods for methods in module.values()):
        return True
    return first in module and (not rest or rest[0] in module[first])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class ReferenceTests(SynchronousTestCase):
    """What a page names in backticks can be opened."""

    def test_paths_exist(self) -> None:
        """Every path of the checkout that a page names exists."""
        absent = [
            f"{page.name}: {path}"
            for page in pages()
            for path in PATHS.findall(page.read_text())
            if not (CHECKOUT / path).exists()
        ]
        self.assertEqual(absent, [])

    def test_links_hold(self) -> None:
        """Every link to a file of the checkout, and to a heading in it, leads there."""
        absent = []
        for page in pages():
            for path, anchor in LINKS.findall(page.read_text()):
                there = (page.parent / path).resolve() if path else page
                if not there.exists() or (anchor and anchor[1:] not in anchors(there)):
                    absent.append(f"{page.name}: {path}{anchor}")
        self.assertEqual(absent, [])

    def test_guides_are_linked(self) -> None:
        """Every guide is in the list of guides, and that list in the README."""
        guides = CHECKOUT / "docs" / "guides"
        listed = {path for path, _ in LINKS.findall((guides / "README.md").read_text())}
        self.assertEqual({page.name for page in guides.glob("*.md")} - listed, {"README.md"})
        self.assertIn(
            "docs/guides/README.md", {path for path, _ in LINKS.findall((CHECKOUT / "README.md").read_text())}
        )

    def test_moved_files_are_where_they_are_said_to_be(self) -> None:
        """Every path in the last column of docs/moved.md exists."""
        absent = []
        for line in (CHECKOUT / "docs" / "moved.md").read_text().splitlines():
            if line.startswith("| `"):
                now = line.rstrip(" |").rpartition(" | ")[2]
                absent += [path for path in NOW.findall(now) if not (CHECKOUT / path).exists()]
        self.assertEqual(absent, [])

    def test_tests_exist(self) -> None:
        """Every test that a page names is a test, in the module and the class that it says."""
        absent = [
            f"{page.name}: {name}"
            for page in pages()
            for name in NAMES.findall(page.read_text())
            if re.search(r"\btest_\w|[a-z]Tests\b", name) and not is_there(name)
        ]
        self.assertEqual(absent, [])

    def test_what_is_not_there(self) -> None:
        """A module, class or test that was renamed is noticed; the end of a name is enough where one says so."""
        here = "project.test_references.ReferenceTests"
        self.assertTrue(is_there(f"{here}.test_paths_exist"))
        self.assertTrue(is_there("tests.project.test_references"))
        self.assertTrue(is_there("test_what_is_not_there"))
        for name in (
            f"{here}.test_gone",
            "project.test_references.Gone",
            "project.test_gone.ReferenceTests",
            "test_gone",
        ):
            self.assertFalse(is_there(name), name)
