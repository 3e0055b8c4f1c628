"""The shape of the source: who imports whom, how long files are, and words that do not belong in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

CHECKOUT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("liqod", "sandbox", "tests", "benchmarks", "twisted")
TEXTS: Final = (".py", ".md", ".toml", ".cfg", ".yaml", ".service", ".socket", "Makefile", "run")
SKIPPED: Final = {".git", ".venv", "build", "dist", "__pycache__", "gomod"}
LONGEST: Final = 600

# Names that say nothing about the thing that they name.
VAGUE: Final = re.compile(r"manager|handler|helper|util|processor|engine", re.IGNORECASE)
# Names given by others: Twisted's and zope's interfaces, and fields of Kubernetes objects.
GIVEN: Final = re.compile(
    r"IHandshakeListener|managed_?fields|field_?manager|reflection_manager|managed_by|^manager$", re.IGNORECASE
)
# Places on one developer's machine; each is written in two pieces so that this file does not contain it.
PRIVATE_PLACES: Final = tuple("/" + place for place in ("work/main", "work/shared", "home/", "Users/", "root/"))
PURE: Final = re.compile(r"\bpure\b", re.IGNORECASE)
PURE_ALL_THE_SAME: Final = {
    ("liqod/agent/log/json_lines.py", "twisted"),  # types of log events, and their text
    ("liqod/cli/setup/host/plan.py", "pathlib"),  # PurePosixPath
}
UNFINISHED: Final = tuple(
    first + last for first, last in (("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("NotImplemented", "Error"))
)


def python_files(*folders: str) -> Iterator[Path]:
    """Yield the Python files below the folders."""
    for folder in folders:
        for file in sorted((CHECKOUT / folder).rglob("*.py")):
            if not SKIPPED & set(file.relative_to(CHECKOUT).parts):
                yield file


def text_files() -> Iterator[Path]:
    """Yield all files of the project that people write."""
    for file in sorted(CHECKOUT.rglob("*")):
        parts = file.relative_to(CHECKOUT).parts
        # What twisted.trial leaves of tests that unittest runs is tests.NAME/.
        hidden = parts[0].startswith("tests.") or any(part.startswith(".") and part != ".ci" for part in parts)
        if file.is_file() and file.name.endswith(TEXTS) and not hidden and not SKIPPED & set(parts):
            yield file


def defined_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of classes, functions, arguments and module constants, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def contract(name: str, field: str) -> list[str]:
    """Return the modules in a field of a contract of ``setup.cfg``."""
    config = ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    return config[f"importlinter:contract:{name}"][field].split()


def place(file: Path, line: int) -> str:
    """Return how a finding is written."""
    return f"{file.relative_to(CHECKOUT)}:{line}"


class ImportsTests(SynchronousTestCase):
    """The contracts of ``setup.cfg`` hold."""

    def test_contracts(self) -> None:
        """Layers are kept, deciding code imports no I/O, each outside library has one door."""
        program = Path(sys.executable).with_name("lint-imports")
        done = subprocess.run([program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_calls_itself_pure(self) -> None:
        """A module whose docstring says that it is pure imports nothing that deciding code may not import."""
        forbidden = contract("pure", "forbidden_modules")
        trees = {file: ast.parse(file.read_text()) for file in python_files("liqod")}
        pure = {file: tree for file, tree in trees.items() if PURE.search(ast.get_docstring(tree) or "")}
        self.assertGreater(len(pure), 150)
        found = {
            (str(file.relative_to(CHECKOUT)), name)
            for file, tree in pure.items()
            for name in forbidden
            if any(f"{module}.".startswith(f"{name}.") for module in imported(tree))
        }
        self.assertEqual(found - PURE_ALL_THE_SAME, set())
        self.assertEqual(PURE_ALL_THE_SAME - found, set(), "these exceptions are needed no longer")

    def test_what_the_network_agent_may_not_import(self) -> None:
        """Its contract names every package of the daemon but those that its title allows, new ones as well."""
        packages = {f"liqod.{path.stem}" for path in (CHECKOUT / "liqod").iterdir() if path.stem[0] not in "_."}
        allowed = {f"liqod.{name}" for name in ("config", "fabric", "flow", "kube", "model")}
        named = contract("network-agent", "forbidden_modules")
        self.assertEqual(packages - {"liqod.py"} - allowed, set(named))


class FilesTests(SynchronousTestCase):
    """Every file has one subject and is finished."""

    def test_length(self) -> None:
        """No Python file has more than 600 lines."""
        long = [place(file, LONGEST) for file in python_files(*FOLDERS) if len(file.read_text().splitlines()) > LONGEST]
        self.assertEqual(long, [])

    def test_package_files(self) -> None:
        """An ``__init__.py`` holds a docstring and no code, but that of all tests, which loads hypothesis' profile."""
        files = [file for file in python_files(*FOLDERS) if file.name == "__init__.py"]
        trees = {file: ast.parse(file.read_text()) for file in files if file != CHECKOUT / "tests" / "__init__.py"}
        found = [place(file, 1) for file, tree in trees.items() if len(tree.body) != 1 or not ast.get_docstring(tree)]
        self.assertEqual(found, [])

    def test_plugin_folders(self) -> None:
        """The folders of the twistd plugin are no packages, or the plugins of others would vanish."""
        self.assertEqual(list((CHECKOUT / "twisted").rglob("__init__.py")), [])

    def test_docstrings(self) -> None:
        """Every module of the daemon says what it is."""
        silent = [str(file) for file in python_files("liqod") if not ast.get_docstring(ast.parse(file.read_text()))]
        self.assertEqual(silent, [])

    def test_test_sentences(self) -> None:
        """Every test method says in a sentence which behaviour it shows."""
        silent = [
            f"{place(file, node.lineno)} {node.name}"
            for file in python_files("tests")
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and not ast.get_docstring(node)
        ]
        self.assertEqual(silent, [])

    def test_finished(self) -> None:
        """Nothing is left to be done in the source."""
        words = re.compile(rf"\b({'|'.join(UNFINISHED)})\b")
        found = [
            place(file, number)
            for file in python_files(*FOLDERS)
            for number, line in enumerate(file.read_text().splitlines(), 1)
            if words.search(line)
        ]
        self.assertEqual(found, [])


class WordsTests(SynchronousTestCase):
    """Names say the thing, and the text speaks of the software alone."""

    def test_names(self) -> None:
        """No class, function, argument or variable of the daemon has a name that says nothing."""
        found = [
            f"{place(file, line)} {name}"
            for file in python_files("liqod")
            for name, line in defined_names(ast.parse(file.read_text()))
            if VAGUE.search(name) and not GIVEN.search(name)
        ]
        self.assertEqual(found, [])

    def test_file_names(self) -> None:
        """No file of the daemon has a name that says nothing."""
        found = [str(file) for file in python_files("liqod") if VAGUE.search(file.stem)]
        self.assertEqual(found, [])

    def test_places(self) -> None:
        """No file names a place that only one machine has."""
        found = [
            f"{place(file, number)} {private}"
            for file in text_files()
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
            for private in PRIVATE_PLACES
            if re.search(rf"(?<![\w.-]){private}", line)
        ]
        self.assertEqual(found, [])

    def test_relative_imports(self) -> None:
        """Imports are absolute."""
        found = [
            place(file, node.lineno)
            for file in python_files(*FOLDERS)
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and node.level
        ]
        self.assertEqual(found, [])
