"""The session of a command: its options for cluster and output, and a client of the own API server."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from rich.console import Console
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.render import Format, Row, as_table, as_text
from liqod.cli.console.run import run
from liqod.config.load import DEFAULT_PATH, ConfigError, load
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.kube.client import Client
from liqod.kube.connection import config as kube_config
from liqod.kube.errors import KubeError

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@attrs.frozen
class Options:
    """The common options: which cluster, which configuration, which output format."""

    kubeconfig: str = ""
    context: str = ""
    config: str = ""
    output: Format = "table"

    def settings(self, *, look_at_files: bool = True) -> Settings:
        """Return the settings; without --config, a missing default file means default settings. Raises CliError."""
        path = self.config or (DEFAULT_PATH if Path(DEFAULT_PATH).exists() else "")
        try:
            return load(path, os.environ, look_at_files=look_at_files)
        except ConfigError as error:
            hint = "correct the configuration; etc/liqod.toml documents every setting"
            raise CliError(errors.CONFIGURATION, "\n  ".join(error.problems), hint, errors.USAGE) from None


@attrs.frozen
class Session:
    """What a running command works with: reactor, client, settings, options."""

    reactor: Reactor
    client: Client
    settings: Settings
    options: Options

    def show(self, rows: list[dict[str, Any]], columns: dict[str, str], *, title: str = "", empty: str = "") -> None:
        """Print rows in the selected format; ``empty`` is printed instead of an empty table."""
        show(self.options.output, rows, columns, title=title, empty=empty)

    async def within(self, seconds: float, waiting: Deferred[T], what: str) -> T:
        """Return the result of a Deferred; raises CliError when it takes longer than ``seconds``."""
        waiting.addTimeout(seconds, self.reactor)
        try:
            return await waiting
        except DeferTimeout:
            raise CliError(
                errors.TIMED_OUT,
                f"timed out after {seconds:g} s waiting for {what}",
                "`liqodctl status` shows the reason; --timeout waits longer",
            ) from None


def show(
    output: Format, rows: list[dict[str, Any]], columns: dict[str, str], *, title: str = "", empty: str = ""
) -> None:
    """Print rows as a table, JSON or YAML."""
    if output != "table":
        click.echo(as_text(rows, output), nl=False)
    elif rows:
        plain: list[Row] = list(rows)
        console().print(as_table(plain, columns, title))
    elif empty:
        click.echo(empty)


def console(*, stderr: bool = False) -> Console:
    """Return the terminal; a stream that is none gets no colours and 160 columns, or $COLUMNS."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "160"))
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def in_cluster(
    options: Options, work: Callable[[Session], Coroutine[Any, Any, T]], settings: Settings | None = None
) -> T:
    """Run a command against the own cluster; a KubeError becomes a CliError.

    Files named in the settings are not opened: they are the daemon's, and the user may have no permission for them.
    """
    settings = settings or options.settings(look_at_files=False)
    config = client_config(options, settings)

    async def command(reactor: Reactor) -> T:
        client = Client(config, reactor, user_agent="liqodctl")
        try:
            return await work(Session(reactor, client, settings, options))
        except KubeError as error:
            raise errors.from_kube(error, config.server) from error
        finally:
            await client.close()

    return run(command)


def client_config(options: Options, settings: Settings, *, as_daemon: bool = False) -> kube_config.ClientConfig:
    """Return the connection of the selected cluster: by the options, else the environment, else the settings.

    ``as_daemon`` prefers the settings to the environment, to use the daemon's credentials instead of the user's.
    Raises CliError.
    """
    kubernetes = settings.kubernetes
    of_user = "" if as_daemon and kubernetes.kubeconfig else os.environ.get("KUBECONFIG", "")
    named = options.kubeconfig or of_user
    context = options.context or ("" if named else kubernetes.context)
    try:
        return kube_config.load(named or kubernetes.kubeconfig, context)
    except kube_config.ConfigError as error:
        raise CliError(errors.KUBECONFIG, str(error), "select a kubeconfig with --kubeconfig") from None


def cluster_options(command: Command) -> Command:
    """Add the common options to a command; they arrive as one argument ``options``."""

    @functools.wraps(command)
    def gather(kubeconfig: str, context: str, config: str, output: Format, **others: Any) -> Any:
        return command(options=Options(kubeconfig, context, config, output), **others)

    wrapped: Any = gather
    # click lists options in the order of decoration from the inside out, so the last one here is shown first.
    for option in (
        click.option(
            "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Output format."
        ),
        click.option("--config", default="", metavar="FILE", help=f"Configuration of the daemon [{DEFAULT_PATH}]."),
        click.option("--context", default="", metavar="NAME", help="Context in the kubeconfig."),
        click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of your own cluster."),
    ):
        wrapped = option(wrapped)
    decorated: Command = wrapped
    return decorated


def wait_options(default: bool, seconds: float) -> Callable[[Command], Command]:
    """Add --wait/--no-wait and --timeout to a command."""

    def decorate(command: Command) -> Command:
        length = click.FloatRange(min=0, min_open=True)
        timeout = click.option(
            "--timeout", type=length, default=seconds, show_default=True, metavar="SECONDS", help="Timeout of --wait."
        )
        wait = click.option("--wait/--no-wait", default=default, show_default=True, help="Wait for completion.")
        return wait(timeout(command))

    return decorate
