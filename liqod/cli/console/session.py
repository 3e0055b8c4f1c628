"""What every command has: options for the cluster and the output, and a client of one's own API server."""

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
    """Where the cluster and the configuration are, and how to show things."""

    kubeconfig: str = ""
    context: str = ""
    config: str = ""
    output: Format = "table"

    def settings(self, *, look_at_files: bool = True) -> Settings:
        """Return the settings; a file that was not named and does not exist means the defaults."""
        path = self.config or (DEFAULT_PATH if Path(DEFAULT_PATH).exists() else "")
        try:
            return load(path, os.environ, look_at_files=look_at_files)
        except ConfigError as error:
            hint = "correct it; every setting is explained in etc/liqod.toml"
            raise CliError(errors.CONFIGURATION, "\n  ".join(error.problems), hint, errors.USAGE) from None


@attrs.frozen
class Session:
    """A command at work: its reactor, its cluster, its settings."""

    reactor: Reactor
    client: Client
    settings: Settings
    options: Options

    def show(self, rows: list[dict[str, Any]], columns: dict[str, str], *, title: str = "", empty: str = "") -> None:
        """Print rows in the wanted format; ``empty`` is the sentence for people when there are none."""
        show(self.options.output, rows, columns, title=title, empty=empty)

    async def within(self, seconds: float, waiting: Deferred[T], what: str) -> T:
        """Return what a Deferred brings; raises CliError when it takes longer than ``seconds``."""
        waiting.addTimeout(seconds, self.reactor)
        try:
            return await waiting
        except DeferTimeout:
            raise CliError(
                errors.TIMED_OUT,
                f"{what} did not happen within {seconds:g} s",
                "`liqodctl status` says what it waits for; --timeout waits longer",
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
    """Return the terminal; coloured and as wide as it is, plain and wide when it is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "160"))
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def in_cluster(
    options: Options, work: Callable[[Session], Coroutine[Any, Any, T]], settings: Settings | None = None
) -> T:
    """Run a command against one's own cluster; failures of the API become sentences with a code.

    Files that the settings name are the daemon's: whoever runs a command need not be able to read them.
    """
    settings = settings or options.settings(look_at_files=False)
    config = client_config(options, settings)

    async def command(reactor: Reactor) -> T:
        client = Client(config, reactor, user_agent="liqodctl")
        try:
            return await work(Session(reactor, client, settings, options))
        except KubeError as error:
            raise errors.of_kube(error, config.server) from error
        finally:
            await client.close()

    return run(command)


def client_config(options: Options, settings: Settings, *, as_daemon: bool = False) -> kube_config.ClientConfig:
    """Return how to reach the cluster that the options, else the environment, else the settings name.

    ``as_daemon`` asks the settings before the environment: with the daemon's credentials, not with a person's.
    """
    kubernetes = settings.kubernetes
    person = "" if as_daemon and kubernetes.kubeconfig else os.environ.get("KUBECONFIG", "")
    named = options.kubeconfig or person
    context = options.context or ("" if named else kubernetes.context)
    try:
        return kube_config.load(named or kubernetes.kubeconfig, context)
    except kube_config.ConfigError as error:
        raise CliError(errors.KUBECONFIG, str(error), "name a kubeconfig with --kubeconfig") from None


def cluster_options(command: Command) -> Command:
    """Give a command the options that all of them have, as one argument ``options``."""

    @functools.wraps(command)
    def gather(kubeconfig: str, context: str, config: str, output: Format, **others: Any) -> Any:
        return command(options=Options(kubeconfig, context, config, output), **others)

    wrapped: Any = gather
    for option in (
        click.option(
            "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="The format."
        ),
        click.option("--config", default="", metavar="FILE", help=f"The daemon's configuration [{DEFAULT_PATH}]."),
        click.option("--context", default="", metavar="NAME", help="The context in the kubeconfig."),
        click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig of one's own cluster."),
    ):
        wrapped = option(wrapped)
    decorated: Command = wrapped
    return decorated


def wait_options(default: bool, seconds: float) -> Callable[[Command], Command]:
    """Give a command --wait/--no-wait and --timeout."""

    def decorate(command: Command) -> Command:
        length = click.FloatRange(min=0, min_open=True)
        timeout = click.option(
            "--timeout", type=length, default=seconds, show_default=True, metavar="SECONDS", help="How long to wait."
        )
        wait = click.option("--wait/--no-wait", default=default, show_default=True, help="Wait until it is done.")
        return wait(timeout(command))

    return decorate
