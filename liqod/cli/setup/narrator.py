"""Prints the demonstration on a terminal, step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort

from liqod.cli.console import terminal
from liqod.cli.console.options import Options
from liqod.cli.console.session import Output, Session
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.first_screen import pods_by_node
from liqod.cli.status.peers import DISCOVER_COLUMNS, discover_rows, status_rows
from liqod.cli.status.status import show_peers
from liqod.cli.web.command import serve
from liqod.demo.side import DemoCluster
from liqod.demo.story import shop_pods
from liqod.flow.clocks import Reactor

POD_COLUMNS = {"cluster": "CLUSTER", "namespace": "NAMESPACE", "name": "POD", "phase": "STATUS", "node": "NODE"}


class Narrator:
    """The Audience of the demonstration that prints to a terminal; each step is added to ``steps`` as well.

    With ``web`` each cluster has a page in the browser, until ``close``.
    """

    def __init__(
        self, reactor: Reactor, output: Output, directory: Path, steps: list[dict[str, Any]], *, web: bool = False
    ) -> None:
        self._reactor = reactor
        self._output = output
        self._directory = directory
        self._steps = steps
        self._step = ""
        self._web = web
        self._pages: list[IListeningPort] = []

    def begin(self, text: str) -> None:
        self._step = text
        self._output.say(text, "bold")

    def done(self, text: str, seconds: float) -> None:
        self._steps.append({"step": self._step, "outcome": text, "seconds": round(seconds, 2)})
        self._output.say(f"  ✓ {text} ({seconds:.2f} s)", "green")

    def note(self, text: str) -> None:
        self._output.say(f"  {text}")

    async def started(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        if not self._web:
            return
        self._output.say("  each has a page; open one to watch:")
        for side in sides:
            page, url = serve(self._session(side))
            self._pages.append(page)
            self._output.print_line(f"  {side.name}  {url}")

    async def close(self) -> None:
        """End the pages."""
        for page in self._pages:
            await maybeDeferred(page.stopListening)

    def _session(self, side: DemoCluster) -> Session:
        return Session(Options(), reactor=self._reactor, client=side.client, settings=side.settings)

    async def discovered(self, side: DemoCluster) -> None:
        self._command(side, "liqodctl discover")
        rows = discover_rows(side.peers.items())
        self._output.table(rows, DISCOVER_COLUMNS, beneath=["words"])

    async def status(self, side: DemoCluster) -> None:
        self._command(side, "liqodctl status")
        session = self._session(side)
        facts = await cluster_records(session)
        show_peers(self._output, facts, status_rows(facts, await pods_by_node(session, facts)))

    async def pods(self, home: DemoCluster, lender: DemoCluster) -> None:
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
        self._output.table(rows, POD_COLUMNS)

    async def keep_running(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        self._output.print_line("\nBoth clusters keep running until Ctrl-C. In another terminal:\n")
        for side in sides:
            path = self._directory / f"{side.name}.kubeconfig"
            path.touch(mode=0o600)
            path.write_text(side.cluster.kubeconfig())
            self._output.print_line(f"  export KUBECONFIG={path}     # {side.name}")
        # A demonstration from a checkout runs in a virtual environment that is not on the path of the user.
        command = sys.argv[0] if sys.argv[0].endswith("/liqodctl") else "liqodctl"
        self._output.print_line("  kubectl get nodes; kubectl get pods -A -o wide; kubectl get foreignclusters")
        self._output.print_line(f"  {command} status")
        self._output.print_line(f"\nThe daemons' log: {self._directory / 'liqod.log'}")
        forever: Deferred[None] = Deferred()
        try:
            await forever
        except CancelledError:
            terminal.echo("\nBoth clusters are stopped.", err=self._output.options.is_document)

    def _command(self, side: DemoCluster, command: str, other: DemoCluster | None = None) -> None:
        where = f"{side.name} and {other.name}" if other is not None else side.name
        self._output.say(f"  {where}$ {command}", "dim")
