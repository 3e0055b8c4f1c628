"""What a test does when the machine lacks something: it is skipped, and where ``CI`` is set it fails."""

from __future__ import annotations

import os

from twisted.trial.unittest import FailTest, SkipTest


def on_ci() -> bool:
    """Return whether this is continuous integration, where nothing may be left out."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def require(reason: str) -> None:
    """Skip the running test for a reason, if there is one: SkipTest, or FailTest on continuous integration."""
    if reason:
        raise FailTest(f"{reason}, and CI must not skip this") if on_ci() else SkipTest(reason)
