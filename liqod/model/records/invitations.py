"""Where pairing tokens lie: what the command line and the daemon agree on. Pure."""

from __future__ import annotations

from typing import Final

from liqod.model.ids import ClusterID

TOKEN_LABEL: Final = "discovery.liqo.io/pairing-token"  # noqa: S105 -- a label, nothing secret
"""On the Secrets of tokens that this cluster issued."""
INVITATION_LABEL: Final = "discovery.liqo.io/invitation"
"""On the Secrets of tokens that this cluster was given."""

VERIFIER: Final = "verifier"
EXPIRES: Final = "expires-at"
ATTEMPTS: Final = "attempts"
USED_BY: Final = "used-by"
SPENT: Final = "spent"
"""Set when the session that a token was for is established, or when its key is trusted no more."""
INVITATION: Final = "token"

MAX_ATTEMPTS: Final = 5
"""Wrong proofs after which a token is dead."""


def token_name(token_id: str) -> str:
    """Return the name of the Secret of an issued token."""
    return f"liqod-token-{token_id}"


def invitation_name(issuer: ClusterID) -> str:
    """Return the name of the Secret of a token that a cluster gave us."""
    return f"liqod-invitation-{issuer}"
