"""Secrets of pairing tokens: names and labels shared by command line and daemon. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from liqod.model.ids import ClusterID

TOKEN_LABEL: Final = "discovery.liqo.io/pairing-token"  # noqa: S105 -- a label, nothing secret
"""On the Secrets of tokens that this cluster issued."""
INVITATION_LABEL: Final = "discovery.liqo.io/invitation"
"""On the Secrets of tokens that this cluster received."""

VERIFIER: Final = "verifier"
EXPIRES: Final = "expires-at"
ATTEMPTS: Final = "attempts"
USED_BY: Final = "used-by"
SPENT: Final = "spent"
"""Set when the token's session is established, or when its key is no longer trusted."""
INVITATION: Final = "token"

MAX_LIFE: Final = timedelta(days=30)
"""The longest life of a pairing token."""
MAX_ATTEMPTS: Final = 5
"""Number of wrong proofs after which a token is invalid."""


def token_name(token_id: str) -> str:
    """Return the name of the Secret of an issued token."""
    return f"liqod-token-{token_id}"


def invitation_name(issuer: ClusterID) -> str:
    """Return the name of the Secret of a token that a cluster gave us."""
    return f"liqod-invitation-{issuer}"
