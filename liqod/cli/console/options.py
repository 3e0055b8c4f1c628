"""The options that commands share; given before or after the command. Imports neither Twisted nor the API client."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import click

from liqod.cli.console import complete, errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.render import Format

if TYPE_CHECKING:
    from liqod.config.schema import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
FORMATS: Final = ("table", "wide", "json", "yaml")
CONFIGURATION_FILE: Final = "/etc/liqod/liqod.toml"
_POSITIVE: Final = click.FloatRange(min=0, min_open=True)


@attrs.frozen
class Options:
    """The common options: which cluster, which configuration, which output format."""

    kubeconfig: str = ""
    context: str = ""
    config: str = ""
    output: Format = "table"
    dry_run: bool = False

    @property
    def is_document(self) -> bool:
        """Whether the output is for programs."""
        return self.output in ("json", "yaml")

    def settings(self, *, look_at_files: bool = True) -> Settings:
        """Return the settings; without --config, a missing default file means default settings. Raises CliError."""
        from liqod.config.load import DEFAULT_PATH, SettingsError, load

        path = self.config or DEFAULT_PATH
        if not self.config:
            # A file that cannot be looked at is there, or may be; ``load`` says why it cannot be read.
            with contextlib.suppress(OSError):
                path = DEFAULT_PATH if Path(DEFAULT_PATH).exists() else ""
        try:
            return load(path, os.environ, look_at_files=look_at_files)
        except SettingsError as error:
            hint = "correct the configuration; etc/liqod.toml documents every setting"
            raise CliError(errors.CONFIGURATION, "\n  ".join(error.problems), hint, errors.USAGE) from None


def cluster_options(command: Command) -> Command:
    """Add the options of commands that use a cluster; they arrive as one argument ``options``."""
    decorated: Command = _with(command, _CLUSTER + _OUTPUT)
    return decorated


def record_options(command: Command) -> Command:
    """Add the options of commands that write records: those of ``cluster_options``, and --dry-run."""
    decorated: Command = _with(command, (_DRY_RUN, *_CLUSTER, *_OUTPUT))
    return decorated


def output_options(command: Command) -> Command:
    """Add the options of commands that use no cluster; they arrive as one argument ``options``."""
    decorated: Command = _with(command, _OUTPUT)
    return decorated


def group_options(command: Command) -> Command:
    """Add the common options to a group: its commands inherit them."""

    def accept(options: Options, **others: Any) -> Any:
        return command(**others)

    decorated: Command = _with(functools.wraps(command)(accept), _CLUSTER + _OUTPUT)
    return decorated


def _with(command: Any, options: tuple[Any, ...]) -> Any:
    @functools.wraps(command)
    def gather(**given: Any) -> Any:
        context = click.get_current_context()
        inherited = context.find_object(Options) or Options()
        own: dict[str, Any] = {"dry_run": given.pop("records", False)}
        own |= {name: given.pop(name) for name in ("kubeconfig", "context", "config", "output") if name in given}
        context.obj = attrs.evolve(inherited, **{name: value for name, value in own.items() if value})
        terminal.AWAITED.form = context.obj.output if context.obj.is_document else None
        return command(options=context.obj, **given)

    wrapped: Any = gather
    for option in options:
        wrapped = option(wrapped)
    return wrapped


# click lists options in the order of decoration from the inside out, so the last one here is shown first.
_OUTPUT = (
    click.option(
        "-o", "--output", type=click.Choice(FORMATS), help="Output format; wide is a table with more columns [table]."
    ),
)
_DRY_RUN = click.option(
    "--dry-run", "records", is_flag=True, help="Change nothing; with -o yaml or json print the records to apply."
)
_CLUSTER = (
    click.option("--config", metavar="FILE", help=f"Configuration of the daemon [{CONFIGURATION_FILE}]."),
    click.option("--context", metavar="NAME", shell_complete=complete.contexts, help="Context in the kubeconfig."),
    click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of your own cluster."),
)


def watch_option(command: Command) -> Command:
    """Add --watch, an argument ``watch``; ``refuse_watch`` and ``Session.again`` go with it."""
    help_text = "Show it again every two seconds, until Ctrl-C."
    wrapped: Any = command
    return cast("Command", click.option("-w", "--watch", is_flag=True, help=help_text)(wrapped))


def refuse_watch(options: Options, watch: bool) -> None:
    """Refuse --watch where one document is asked for. Raises UsageError."""
    if watch and options.is_document:
        raise click.UsageError("--watch is for people; it goes with -o table and -o wide only")


def wait_options(default: bool, seconds: float) -> Callable[[Command], Command]:
    """Add --wait/--no-wait and --timeout to a command."""

    def decorate(command: Command) -> Command:
        wait = click.option("--wait/--no-wait", default=default, show_default=True, help="Wait for completion.")
        return wait(timeout_option(seconds, "Timeout of --wait.")(command))

    return decorate


def timeout_option(seconds: float, text: str, allowed: click.FloatRange = _POSITIVE) -> Callable[[Command], Command]:
    """Add --timeout, a number of seconds; ``allowed`` limits it."""
    return click.option(
        "--timeout",
        type=allowed,
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def yes_option(command: Command) -> Command:
    """Add --yes."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def namespace_option(what: str) -> Callable[[Command], Command]:
    """Add -n/--namespace to a command about one namespaced object; ``what`` names the object."""
    return click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        metavar="NAME",
        shell_complete=complete.namespaces,
        help=f"Namespace of the {what}.",
    )
