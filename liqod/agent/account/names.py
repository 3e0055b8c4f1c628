"""The names of the daemon's own objects in its namespace, and of the account that it works with."""

from __future__ import annotations

from typing import Final

LEASE: Final = "liqod"

ACCOUNT: Final = "liqod"
"""The daemon's ServiceAccount, its ClusterRole, its Roles and their bindings."""
TOKEN_SECRET: Final = "liqod-token"  # noqa: S105  # a name, not a secret
