"""``demo``: two simulated clusters in this process discover each other and offload pods."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from twisted.logger import globalLogBeginner, textFileLogObserver

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, output_options
from liqod.cli.console.run import run
from liqod.cli.console.session import Output
from liqod.flow.clocks import Reactor


@click.command()
@click.option("--stay", is_flag=True, help="Keep both clusters running until Ctrl-C, to try kubectl on them.")
@click.option("--web", is_flag=True, help="Give each cluster a page in the browser, and keep both running.")
@output_options
def demo(options: Options, stay: bool, web: bool) -> None:
    """Show two clusters that discover each other, and run pods of one in the other.

    Everything runs in this process and on 127.0.0.1: nothing is installed, no other cluster is changed.

    \b
    Examples:
      liqodctl demo
      liqodctl demo --stay
      liqodctl demo --web
    """
    try:
        from liqod.cli.setup.narrator import Narrator
        from liqod.demo.story import Demo, DemoFailed
    except ModuleNotFoundError as error:
        if error.name != "kubesandbox":
            raise
        hint = "install them: pip install 'liqod[demo]'; in a checkout run `make demo`"
        raise CliError(errors.DEMO, "the simulated clusters (kubesandbox) are not installed", hint) from None

    async def show(reactor: Reactor) -> None:
        narrator = Narrator(reactor, output, directory, steps, web=web)
        try:
            await Demo(reactor, narrator, stay=stay or web).run()
        finally:
            await narrator.close()

    with _log_directory() as directory:
        try:
            output = Output(options)
            steps: list[dict[str, Any]] = []
            run(show)
            output.publish({"steps": steps})
        except DemoFailed as error:
            # Under a name of its own: what has a known name there may be somebody else's, or lead elsewhere.
            descriptor, kept = tempfile.mkstemp(prefix="liqod-demo-", suffix=".log")
            os.close(descriptor)
            shutil.copyfile(directory / "liqod.log", kept)
            hint = f"the daemons' log is {kept}; a machine under heavy load may be too slow: try again"
            raise CliError(errors.DEMO, str(error), hint) from None


@contextmanager
def _log_directory() -> Iterator[Path]:
    """Provide a private temporary directory with the log in it."""
    with tempfile.TemporaryDirectory(prefix="liqod-demo-") as name:
        directory = Path(name)
        with (directory / "liqod.log").open("w") as log:
            globalLogBeginner.beginLoggingTo([textFileLogObserver(log)], redirectStandardIO=False)
            sys.stdout.flush()
            yield directory
