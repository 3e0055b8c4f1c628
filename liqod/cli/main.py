"""``liqodctl``: the group of all commands; each acts on the own cluster only.

Exit status: 0 success, 1 failure, 2 wrong usage or configuration. A failure has a stable code (LQ...), message, hint.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from rich.text import Text

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import console

PROGRAM = "liqodctl"
_COMMANDS = {
    "demo": "liqod.cli.setup.demo:demo",
    "install": "liqod.cli.setup.install:install",
    "uninstall": "liqod.cli.setup.install:uninstall",
    "check": "liqod.cli.setup.check:check",
    "discover": "liqod.cli.status.status:discover",
    "trust": "liqod.cli.peering.trust:trust",
    "distrust": "liqod.cli.peering.trust:distrust",
    "rotate-key": "liqod.cli.peering.rotate_key:rotate_key",
    "unpeer": "liqod.cli.peering.unpeer:unpeer",
    "token": "liqod.cli.peering.token:token",
    "peer": "liqod.cli.peering.peer:peer",
    "dns-records": "liqod.cli.peering.dns_records:dns_records",
    "accept": "liqod.cli.peering.offers:accept",
    "refuse": "liqod.cli.peering.offers:refuse",
    "cordon": "liqod.cli.workloads.drain:cordon",
    "uncordon": "liqod.cli.workloads.drain:uncordon",
    "drain": "liqod.cli.workloads.drain:drain",
    "offload": "liqod.cli.workloads.offload:offload",
    "unoffload": "liqod.cli.workloads.offload:unoffload",
    "explain": "liqod.cli.status.explain:explain",
    "status": "liqod.cli.status.status:status",
    "plan": "liqod.cli.network.plan:plan",
    "netcheck": "liqod.cli.network.netcheck:netcheck",
    "test": "liqod.cli.network.e2e_test:test",
    "bench": "liqod.cli.network.e2e_test:bench",
    "rotate-tunnel-key": "liqod.cli.network.plan:rotate_tunnel_key",
}


class Commands(click.Group):
    """Imports a command when it is used: ``liqodctl version`` needs neither Twisted nor TLS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = _COMMANDS.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = where.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def _print_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {own_version()}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Peer this Kubernetes cluster with others; lend and borrow free resources.

    Every command acts on your own cluster only. The kubeconfig is that of --kubeconfig, else $KUBECONFIG, else the one
    in the daemon's configuration, else ~/.kube/config.
    """


@cli.command()
def version() -> None:
    """Show the version."""
    click.echo(f"{PROGRAM} {own_version()}")


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell completion script; to load it: eval "$(liqodctl completion bash)"."""
    kind = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(kind(cli, {}, PROGRAM, "_LIQODCTL_COMPLETE").source())


def own_version() -> str:
    """Return the installed version, or "(from a checkout)" where the distribution is not installed."""
    try:
        return installed_version("liqod")
    except PackageNotFoundError:
        return "(from a checkout)"


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        # standalone_mode=False makes click raise instead of printing and exiting, so that the codes and hints are ours.
        cli.main(prog_name=PROGRAM, standalone_mode=False)
    except CliError as error:
        terminal = console(stderr=True)
        terminal.print(Text(f"{error.code}: {error.message}", style="red"), soft_wrap=True)
        if error.hint:
            terminal.print(Text(f"  {error.hint}"), soft_wrap=True)
        sys.exit(error.status)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(errors.USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(errors.FAILED)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(errors.FAILED)
