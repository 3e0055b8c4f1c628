"""``demo``: two clusters in this process find each other and share pods, narrated."""

from __future__ import annotations

import click

from liqod.cli import errors
from liqod.cli.errors import CliError
from liqod.cli.run import run
from liqod.cli.session import console


@click.command()
@click.option(
    "--stay", is_flag=True, help="Keep both clusters up until Ctrl-C, and say how to look around with kubectl."
)
def demo(stay: bool) -> None:
    """Watch two clusters find each other and run pods of one in the other.

    Everything happens in this process and on 127.0.0.1: nothing is installed, no other cluster is touched.
    """
    from liqod.sandbox.demo import Demo, DemoFailed

    terminal = console()
    try:
        run(lambda reactor: Demo(reactor, terminal, stay=stay).run())
    except DemoFailed as error:
        raise CliError(
            errors.DEMO, str(error), "run it again with a quiet machine; if it fails again, it is a defect"
        ) from None
