"""The names of the daemon's own objects in its namespace, and of the account that it works with."""

from __future__ import annotations

from typing import Final

LEASE: Final = "liqod"

NETWORK_LEASE: Final = "liqod-network"
"""The lease of the gateway's network agent, where it is a process of its own."""

ACCOUNT: Final = "liqod"
"""The daemon's ServiceAccount, its ClusterRole, its Roles and their bindings."""
NETWORK_ACCOUNT: Final = "liqod-network"
"""The same of a network agent that is a process of its own."""
ACCOUNTS: Final = (ACCOUNT, NETWORK_ACCOUNT)


def account_of(role: str) -> str:
    """Return the name of the account of a process with a role (``[daemon] role``)."""
    return NETWORK_ACCOUNT if role == "network" else ACCOUNT


def token_secret_of(account: str) -> str:
    """Return the name of the Secret that holds an account's token."""
    return f"{account}-token"
