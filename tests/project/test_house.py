"""The rules of the house: rooms of a package, positional parameters, names of test classes, words.

Each list of exceptions only shrinks: an entry that is no longer needed fails the test until it is removed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.project.test_architecture import CHECKOUT, python_files

SOURCES: Final = ("liqod", "sandbox/kubesandbox")
EXCEPTIONS: Final = Path(__file__).with_name("house_exceptions.txt")
ROOMS: Final = 14
"""Modules and sub-packages that a package may have."""
FEWEST_ROOMS: Final = 3
"""Those that a package has at least: fewer are no place to look for something."""
POSITIONAL: Final = 5
"""Parameters that a function or constructor takes by position, besides ``self``."""
WORDS: Final = re.compile(
    r"(?<![A-Za-z])(told|heard|whoever|whereabouts|anew|keeper)s?(?![A-Za-z])|(?<=[a-z])(Keeper|Whereabouts)",
    re.IGNORECASE,
)
"""Words that are not plain modern English, alone or as a part of an identifier."""
FIELD: Final = '"told"'
"""The name of a field of the records about peerings that ended; it is stored and cannot change."""


def exceptions(rule: str) -> set[str]:
    """Return the exceptions of a rule, one per line of the section ``[rule]``."""
    section = ""
    found = set()
    for line in EXCEPTIONS.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#") and section == rule:
            found.add(line)
    return found


def packages() -> Iterator[Path]:
    """Yield every package of the sources and of the benchmarks."""
    for source in (*SOURCES, "benchmarks"):
        for file in (CHECKOUT / source).rglob("__init__.py"):
            yield file.parent


def rooms(package: Path) -> int:
    """Return the number of modules and sub-packages of a package; ``__main__`` is an entry point, not a room."""
    modules = [file for file in package.glob("*.py") if file.stem not in ("__init__", "__main__")]
    return len(modules) + len(list(package.glob("*/__init__.py")))


def functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, int]]:
    """Yield each function and each constructor made by attrs with the number of its positional parameters."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            count = attrs_fields(node)
            if count:
                yield f"{owner}{node.name}", count
            yield from functions(node, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            static = any(ast.unparse(one) == "staticmethod" for one in node.decorator_list)
            bound = isinstance(tree, ast.ClassDef) and not static
            yield f"{owner}{node.name}", len(node.args.posonlyargs) + len(node.args.args) - bound
            yield from functions(node, f"{owner}{node.name}.")
        else:
            yield from functions(node, owner)


def attrs_fields(node: ast.ClassDef) -> int:
    """Return how many positional parameters attrs generates for a class; 0 where it generates no constructor."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    if not any(one.startswith("attrs.") for one in decorators) or any("kw_only=True" in one for one in decorators):
        return 0
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    texts = [(ast.unparse(one.annotation), ast.unparse(one.value) if one.value else "") for one in fields]
    return sum(
        "ClassVar" not in kind and "init=False" not in value and "kw_only=True" not in value for kind, value in texts
    )


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text whatever its variables hold."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr")
    return is_call or isinstance(node, ast.JoinedStr)


def name(file: Path) -> str:
    """Return a file as it is named in the exceptions."""
    return str(file.relative_to(CHECKOUT))


class HouseTests(SynchronousTestCase):
    """The rules hold, and every exception is still needed."""

    def assert_exceptions(self, rule: str, found: set[str]) -> None:
        """Compare what violates a rule with its exceptions, in both directions."""
        allowed = exceptions(rule)
        self.assertEqual(sorted(found - allowed), [], f"these violate the rule [{rule}]")
        self.assertEqual(sorted(allowed - found), [], f"stale entries under [{rule}] in {EXCEPTIONS.name}: remove them")

    def test_rooms(self) -> None:
        """No package has more than 14 rooms at one level."""
        self.assert_exceptions("rooms", {name(one) for one in packages() if rooms(one) > ROOMS})

    def test_fewest_rooms(self) -> None:
        """No package has fewer than three."""
        self.assertEqual([name(one) for one in packages() if rooms(one) < FEWEST_ROOMS], [])

    def test_positional_parameters(self) -> None:
        """No function or constructor takes more than five parameters by position."""
        self.assert_exceptions(
            "positional",
            {
                f"{name(file)} {function}"
                for file in python_files(*SOURCES, "tests", "benchmarks")
                for function, count in functions(ast.parse(file.read_text()))
                if count > POSITIONAL
            },
        )

    def test_names_of_test_classes(self) -> None:
        """A class with test methods is called ``FooTests``, or ``FooCase`` where others derive from it."""
        self.assert_exceptions(
            "test classes",
            {
                name(file)
                for file in python_files("tests")
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.ClassDef)
                and not node.name.endswith(("Tests", "Case"))
                and any(getattr(one, "name", "").startswith("test_") for one in node.body)
            },
        )

    def test_messages_of_instances(self) -> None:
        """What Twisted's `assertIsInstance` says besides is a text: it is concatenated, all else hides the failure."""
        found = [
            f"{name(file)}:{node.lineno}"
            for file in python_files(*SOURCES, "tests", "benchmarks")
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if node.func.attr == "assertIsInstance" and len(node.args) > 2 and not is_text(node.args[2])
        ]
        self.assertEqual(found, [], "give an f-string, a constant or str(...)")

    def test_waiting_for_several(self) -> None:
        """Several things are awaited with ``together``: gatherResults hides a cancellation in a FirstError."""
        found = [
            name(file)
            for file in python_files(*SOURCES)
            if file != CHECKOUT / "liqod/flow/tasks.py"
            for node in ast.walk(ast.parse(file.read_text()))
            if "gatherResults" in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", ""))
        ]
        self.assertEqual(found, [], "use together or side_by_side of liqod.flow.tasks")

    def test_words(self) -> None:
        """Identifiers and prose are plain modern English, in sources, tests and benchmarks."""
        others = [file for file in python_files(*SOURCES, "tests", "benchmarks") if file != Path(__file__)]
        self.assert_exceptions(
            "words", {name(file) for file in others if WORDS.search(file.read_text().replace(FIELD, ""))}
        )
