"""Whether this host runs the process whose account and objects a command would write. Pure."""

from __future__ import annotations

from liqod.agent.account.names import ACCOUNT, account_of
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.setup.host.wanted import KUBECONFIGS
from liqod.config.schema import Settings


def may_lead(settings: Settings) -> bool:
    """Return whether a process with this role may lead the cluster; the account of such a one is ``ACCOUNT``."""
    return account_of(settings.daemon.role) == ACCOUNT


def refuse_role(settings: Settings) -> None:
    """Raise CliError where the role in the configuration is not for this host.

    A node's configuration needs few rights. The role all would give them to the account of the daemon that leads, which
    runs elsewhere, instead of its own.
    """
    if settings.network.role == "node" and settings.daemon.role == "all":
        raise CliError(
            errors.CONFIGURATION,
            'this host only leads its pods to the gateway ([network] role = "node"): what leads the cluster is set up '
            "with another configuration",
            f"LIQOD_DAEMON__ROLE=network liqodctl install --daemon-kubeconfig {KUBECONFIGS['network']}",
        )
