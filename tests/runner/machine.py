"""Prepares the machine for what is about to run: system packages and the programs of the test clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.runner.steps import CONTRACT, NETNS, REAL
from tests.testbed import build, process, system


def prepare(names: Iterable[str]) -> Iterator[str]:
    """Install and build what these tests need, as far as this machine allows; yield why something was not possible."""
    needed = {folder for folder in (REAL, NETNS, CONTRACT) if any(f"{name}.".startswith(folder) for name in names)}
    if needed & {REAL, NETNS}:
        try:
            system.require()
        except system.Missing as error:
            yield str(error)
    if needed & {REAL, CONTRACT}:
        try:
            build.ensure()
        except (process.CommandFailed, OSError) as error:
            yield f"the programs of the test clusters cannot be built: {error}"
