"""The session of a command: a client of the own API server, and its output."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import click
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout
from twisted.internet.task import deferLater

from liqod.cli.console import errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, lines
from liqod.cli.console.options import Options
from liqod.cli.console.progress import Progress
from liqod.cli.console.records import EndOfDryRun, RecordingClient, print_records
from liqod.cli.console.render import Row, as_text
from liqod.cli.console.run import run
from liqod.cli.console.table import layout
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.kube.client import Client
from liqod.kube.connection import config as kube_config
from liqod.kube.errors import KubeError

T = TypeVar("T")
WATCH_INTERVAL: Final = 2.0
"""Seconds between two looks of --watch."""


@attrs.frozen
class Output:
    """What a command prints: lines and tables for people, or one document for programs."""

    options: Options

    @property
    def _for_people(self) -> bool:
        return not (self.options.is_document or self.options.dry_run)

    def say(self, text: str, style: str = "") -> None:
        """Print a line for people."""
        if self._for_people:
            terminal.echo_wrapped(text, style, hanging="  ")

    def print_line(self, text: str) -> None:
        """Print a line for people as it is, to be copied or piped; in a dry run only beside printed records."""
        if self.options.is_document == self.options.dry_run:
            terminal.echo(text, err=self.options.dry_run)

    def table(
        self, rows: Sequence[Row], columns: Mapping[str, str], *, beneath: Sequence[str] = (), empty: str = ""
    ) -> None:
        """Print rows for people; ``empty`` is printed instead of an empty table, ``beneath`` as in ``layout``."""
        if not self._for_people:
            return
        if not rows:
            if empty:
                self.say(empty)
            return
        for line in layout(rows, columns, terminal.width(), beneath):
            terminal.echo_parts(line)

    def report(self, findings: Sequence[Finding]) -> None:
        """Print findings: grouped with marks for people, as plain values for programs."""
        if self._for_people:
            for text, style in lines(findings):
                stripped = text.lstrip()
                indent = " " * (len(text) - len(stripped))
                terminal.echo_wrapped(stripped, style, indent=indent, hanging=indent + "  ")
        self.publish([finding.as_row() for finding in findings])

    def publish(self, result: Any) -> None:
        """Print the result of the command for programs; called once by every command."""
        if self.options.is_document and not self.options.dry_run:
            ascii_only = not terminal.is_unicode(sys.stdout)
            terminal.echo_document(as_text(result, self.options.output, ascii_only=ascii_only))

    def show(
        self,
        rows: list[dict[str, Any]],
        columns: Mapping[str, str],
        *,
        beneath: Sequence[str] = (),
        empty: str = "",
    ) -> None:
        """Print rows as a table, or publish them."""
        self.table(rows, columns, beneath=beneath, empty=empty)
        self.publish(rows)


@attrs.frozen
class Session(Output):
    """What a running command works with: reactor, client, settings, options."""

    reactor: Reactor = attrs.field(kw_only=True)
    client: Client = attrs.field(kw_only=True)
    settings: Settings = attrs.field(kw_only=True)

    async def again(self, watch: bool, read: Callable[[], Awaitable[Callable[[], object]]]) -> None:
        """Read and show once, or with ``watch`` every two seconds until Ctrl-C, each time in the place of the last.

        What ``read`` returns shows what was read. Only then what was shown before goes: without an answer it stays.
        """
        while True:
            show = await read()
            if watch and terminal.width() is not None:
                terminal.clear_screen()
            show()
            if not watch:
                return
            await deferLater(self.reactor, WATCH_INTERVAL)

    def confirm(self, question: str) -> None:
        """Ask for confirmation; not in a dry run. Raises CliError as ``terminal.confirm``."""
        if not self.options.dry_run:
            terminal.confirm(question)

    def to_be_waited_for(self) -> None:
        """Say that the command waits now for what it wrote: a dry run ends here."""
        if self.options.dry_run:
            raise EndOfDryRun

    async def within(
        self, seconds: float, waiting: Deferred[T], what: str, why: Callable[[], Awaitable[str]] | None = None
    ) -> T:
        """Return the result of a Deferred; raises CliError when it takes longer than ``seconds``.

        A terminal shows what is waited for, and how long. ``why`` finds the hint of the error.
        """
        waiting.addTimeout(seconds, self.reactor)
        with Progress(self.reactor, what, quiet=self.options.is_document):
            try:
                return await waiting
            except DeferTimeout:
                pass
        hint = await why() if why is not None else ""
        raise CliError(
            errors.TIMED_OUT,
            f"timed out after {seconds:g} s waiting for {what}",
            hint or "`liqodctl status` shows the reason; --timeout waits longer",
        )


def in_cluster(
    options: Options, work: Callable[[Session], Coroutine[Any, Any, T]], settings: Settings | None = None
) -> T:
    """Run a command against the own cluster; a KubeError becomes a CliError.

    With --dry-run nothing is written: what would be is printed.

    Files named in the settings are not opened: they are the daemon's, and the user may have no permission for them.
    """
    settings = settings or options.settings(look_at_files=False)
    config = client_config(options, settings)

    async def command(reactor: Reactor) -> T:
        recorded = RecordingClient(config, reactor, user_agent="liqodctl") if options.dry_run else None
        client = recorded or Client(config, reactor, user_agent="liqodctl")
        try:
            result = await work(Session(options, reactor=reactor, client=client, settings=settings))
        except EndOfDryRun:
            if recorded is not None:
                print_records(options, recorded)
            raise click.exceptions.Exit(0) from None
        except KubeError as error:
            raise errors.from_kube(error, config.server) from error
        finally:
            await client.close()
        if recorded is not None:
            print_records(options, recorded)
        return result

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
