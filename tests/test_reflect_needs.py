"""What offloaded pods need besides what is reflected one to one, between two sandboxes."""

from __future__ import annotations

from tests import needs_cases, reflect_sandboxes


class TokensOnSandboxes(reflect_sandboxes.Sandboxes, needs_cases.TokenCases):
    """The cases of tokens, each with two clusters of its own."""


class ClaimsOnSandboxes(reflect_sandboxes.Sandboxes, needs_cases.ClaimCases):
    """The cases of storage, each with two clusters of its own."""
