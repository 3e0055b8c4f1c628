"""The rows of docs/attacks.md, and the tests that each of them names.

The page is the list: the last column of each row names modules, classes or tests. Cases that are written once for the
sandbox and for real clusters run on both.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.runner.steps import CHECKOUT, is_unit, modules

PAGE: Final = CHECKOUT / "docs" / "attacks.md"
_NAME: Final = re.compile(r"`([a-z_0-9]+(?:\.\w+)+)`")


@frozen
class Attack:
    """A row of the page: the attack, and what its last column names."""

    text: str
    names: tuple[str, ...]


def attacks() -> Iterator[Attack]:
    """Yield the rows of the page."""
    for line in PAGE.read_text().splitlines():
        cells = line.strip("| ").split(" | ")
        if (
            line.startswith("| ")
            and len(cells) == 3
            and cells != ["attack", "what stops it", "test"]
            and "---" not in line
        ):
            yield Attack(cells[0], tuple(_NAME.findall(cells[2])))


def tests_of(name: str) -> list[str]:
    """Return the tests that a name of the page stands for, as ``tests.run --only`` takes them; none for other code."""
    parts = name.removeprefix("tests.").split(".")
    for count in range(len(parts), 0, -1):
        if (CHECKOUT / "tests").joinpath(*parts[:count]).with_suffix(".py").is_file():
            break
    else:
        return []
    module, rest = ".".join(["tests", *parts[:count]]), parts[count:]
    if parts[count - 1].startswith("test_"):
        return [".".join([module, *rest]) if is_unit(module) else module]
    return [one if is_unit(one) else ".".join(one.split(".")[:3]) for one in _using(module, rest)]


def _using(module: str, rest: Sequence[str]) -> Iterator[str]:
    """Yield the tests of the modules that have a class of cases in them."""
    if not rest:
        return
    cases = getattr(importlib.import_module(module), rest[0])
    for user in modules():
        if "cases" in Path(CHECKOUT, *user.split(".")).with_suffix(".py").read_text():
            for thing in vars(importlib.import_module(user)).values():
                if isinstance(thing, type) and issubclass(thing, cases) and thing.__module__ == user:
                    yield ".".join([user, thing.__name__, *rest[1:]])


def selected(*, unit: bool) -> list[str]:
    """Return the tests of all attacks, each once, without those that are in another one of them."""
    every = {test for attack in attacks() for name in attack.names for test in tests_of(name)}
    return [
        test
        for test in sorted(every)
        if (is_unit(test) or not unit) and not any(test.startswith(f"{other}.") for other in every)
    ]
