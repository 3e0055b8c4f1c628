"""Reflection between two sandboxes."""

from __future__ import annotations

from tests import reflect_cases, reflect_sandboxes


class ReflectionOnSandboxes(reflect_sandboxes.Sandboxes, reflect_cases.ReflectionCases):
    """The cases of reflection, each with two clusters of its own."""
