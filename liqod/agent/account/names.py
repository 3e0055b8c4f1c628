"""The names of the daemon's own objects in its namespace, and of the account that it works with."""

from __future__ import annotations

from typing import Final

LEASE: Final = "liqod"

ACCOUNT: Final = "liqod"
"""The daemon's ServiceAccount, its ClusterRole, its Roles and their bindings."""
NETWORK_ACCOUNT: Final = "liqod-network"
"""The same of a network agent that is a process of its own."""
NAMES_ACCOUNT: Final = "liqod-names"
"""The same of a process that answers for names."""
ACCOUNTS: Final = (ACCOUNT, NETWORK_ACCOUNT, NAMES_ACCOUNT)


def account_of(role: str) -> str:
    """Return the name of the account of a process with a role (``[daemon] role``)."""
    return {"network": NETWORK_ACCOUNT, "names": NAMES_ACCOUNT}.get(role, ACCOUNT)


def liqodctl_as(role: str) -> str:
    """Return how ``liqodctl`` is called for a process with a role, which the configuration of several cannot name."""
    return "liqodctl" if role == "all" else f"LIQOD_DAEMON__ROLE={role} liqodctl"


def bound_secret_of(account: str) -> str:
    """Return the name of the Secret that an account's tokens are bound to: they end with it."""
    return f"{account}-account"


def token_secret_of(account: str) -> str:
    """Return the name of the Secret in which earlier versions had a token without end made for an account."""
    return f"{account}-token"
