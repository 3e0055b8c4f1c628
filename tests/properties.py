"""How hypothesis runs in all tests: the same cases on continuous integration, other ones elsewhere, no deadline.

A case may take any time, because a busy machine would fail a deadline that the code keeps. Elsewhere a case that failed
is kept in the checkout, and the next run begins with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.environment import on_ci

KEPT: Final = Path(__file__).resolve().parents[1] / ".hypothesis" / "examples"


def load() -> None:
    """Make these settings the default of every property test that is defined from now on."""
    settings.register_profile(
        "liqod",
        derandomize=on_ci(),
        # trial changes the working directory, in which hypothesis would keep its cases.
        database=None if on_ci() else DirectoryBasedExampleDatabase(KEPT),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.load_profile("liqod")
