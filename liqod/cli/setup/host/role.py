"""Whether this host runs the process whose account and objects a command would write. Pure."""

from __future__ import annotations

from collections.abc import Collection

from liqod.agent.account.names import ACCOUNT, account_of, liqodctl_as
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.setup.host.wanted import KUBECONFIGS, ROLES
from liqod.config.schema import Settings


def may_lead(settings: Settings) -> bool:
    """Return whether a process with this role may lead the cluster; the account of such a one is ``ACCOUNT``."""
    return account_of(settings.daemon.role) == ACCOUNT


def refuse_role(settings: Settings, units: Collection[str]) -> None:
    """Raise CliError where the role in the configuration is not for this host, which uses some units.

    The rights of the role all would replace those of the account that the process which leads works with: by fewer
    where the configuration is a node's, by others where control is a process of its own.
    """
    if settings.daemon.role != "all":
        return
    if settings.network.role == "node":
        raise CliError(
            errors.CONFIGURATION,
            'this host only leads its pods to the gateway ([network] role = "node"): what leads the cluster is set up '
            "with another configuration",
            f"{liqodctl_as('network')} install --daemon-kubeconfig {KUBECONFIGS['network']}",
        )
    used = {role: ROLES[role] for role in ("control", "network") if ROLES[role] in units}
    if used:
        names = " and ".join(used.values())
        raise CliError(
            errors.CONFIGURATION,
            f"this host uses {names} instead of {ROLES['all']}, and no role is given",
            f"{' and '.join(f'`{liqodctl_as(role)} install`' for role in used)}; or end what is no longer used: "
            f"systemctl disable --now {' '.join(used.values())}",
        )
