"""Which test modules can reach a module of the daemon at all, by the imports of both: nearest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import grimp

from liqod.cli.main import COMMANDS

SCENARIO: Final = "tests.scenario."
_COMMAND_LINE: Final = "liqod.cli.main"
_NEAR: Final = 2
_ELSEWHERE: Final = ("tests.real.", "tests.netns.", "tests.contract.")
"""Tests on real clusters and in network namespaces: too slow for one mutant."""


class Imports:
    """The import graph of the daemon and its tests."""

    def __init__(self) -> None:
        self._graph = grimp.build_graph("liqod", "tests", cache_dir=None)
        # The command line imports a command by its name, when it is called.
        for place, _ in (command for section in COMMANDS.values() for command in section.values()):
            self._graph.add_import(importer=_COMMAND_LINE, imported=place.partition(":")[0])

    def tests_of(self, module: str, *, wide: bool) -> dict[str, float]:
        """Return the test modules that import a module, directly or not, and how near they are: less is nearer.

        Without ``wide`` those that are neither about its package nor few imports away are left out.
        """
        far = distances(module, self._graph.find_modules_that_directly_import)
        tests = [name for name in sorted(far) if is_test(name)]
        return {name: far[name] - 2.0 * kinship(name, module) for name in tests if wide or is_near(name, module, far)}


def is_test(name: str) -> bool:
    """Return whether a module holds tests that need nothing but this process."""
    return name.startswith("tests.") and name.rpartition(".")[2].startswith("test_") and not name.startswith(_ELSEWHERE)


def distances(start: str, importers: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """Return how many imports away each module is that imports ``start``, directly or not."""
    far = {start: 0}
    edge = [start]
    while edge:
        edge = [name for near in edge for name in importers(near) if far.setdefault(name, far[near] + 1) > far[near]]
        edge = list(dict.fromkeys(edge))
    return far


def is_near(test: str, module: str, far: Mapping[str, int]) -> bool:
    """Return whether a test is about the package of a module, or imports it almost directly."""
    return far[test] <= _NEAR or kinship(test, module) > 0


def kinship(test: str, module: str) -> int:
    """Return how many words the names of a test module and of a module share."""
    return len(set(re.split(r"[._]", test)) & set(re.split(r"[._]", module)))
