"""Prints the demonstration on a terminal, step by step."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from twisted.internet.defer import CancelledError, Deferred

from liqod.cli.console.render import as_table
from liqod.cli.console.session import Options, Session
from liqod.cli.status.peers import DISCOVER_COLUMNS, STATUS_COLUMNS, discover_rows
from liqod.cli.status.status import gather
from liqod.demo.side import Side
from liqod.demo.story import shop_pods
from liqod.flow.clocks import Reactor

POD_COLUMNS = {"cluster": "CLUSTER", "namespace": "NAMESPACE", "name": "POD", "phase": "STATUS", "node": "NODE"}


class Narrator:
    """The Audience of the demonstration that prints to a terminal."""

    def __init__(self, reactor: Reactor, terminal: Console, directory: Path) -> None:
        self._reactor = reactor
        self._terminal = terminal
        self._directory = directory

    def begin(self, text: str) -> None:
        self._terminal.print(f"[bold]{escape(text)}[/]")

    def done(self, text: str, seconds: float) -> None:
        self._terminal.print(f"  [green]✓[/] {escape(text)} [dim]({seconds:.2f} s)[/]")

    def note(self, text: str) -> None:
        self._terminal.print(f"  {escape(text)}")

    async def discovered(self, side: Side) -> None:
        self._command(side, "liqodctl discover")
        self._terminal.print(as_table(discover_rows(side.peers.items()), DISCOVER_COLUMNS))

    async def status(self, side: Side) -> None:
        self._command(side, "liqodctl status")
        rows = await gather(Session(self._reactor, side.client, side.settings, Options()))
        self._terminal.print(as_table(rows, STATUS_COLUMNS))

    async def pods(self, home: Side, lender: Side) -> None:
        self._command(home, "kubectl get pods -o wide", lender)
        rows = [
            {
                "cluster": side.name,
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "phase": pod.status.phase,
                "node": pod.spec.node_name,
            }
            for side in (home, lender)
            for pod in shop_pods(side)
        ]
        self._terminal.print(as_table(rows, POD_COLUMNS))

    async def keep_running(self, sides: tuple[Side, Side]) -> None:
        self._terminal.print("\nBoth clusters keep running until Ctrl-C. In another terminal:\n")
        for side in sides:
            path = self._directory / f"{side.name}.kubeconfig"
            path.touch(mode=0o600)
            path.write_text(side.cluster.kubeconfig())
            click.echo(f"  export KUBECONFIG={path}     # {side.name}")
        click.echo("  kubectl get nodes; kubectl get pods -A -o wide; kubectl get foreignclusters; liqodctl status")
        click.echo(f"\nThe daemons' log: {self._directory / 'liqod.log'}")
        forever: Deferred[None] = Deferred()
        try:
            await forever
        except CancelledError:
            click.echo("\nBoth clusters are stopped.")

    def _command(self, side: Side, command: str, other: Side | None = None) -> None:
        where = f"{side.name} and {other.name}" if other is not None else side.name
        self._terminal.print(f"  [dim]{where}$ {command}[/]")
