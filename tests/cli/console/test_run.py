"""Ctrl-C ends a command at once, whatever blocks just then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.fork_server import ROOT

CEILING: Final = 30.0
"""Seconds that a slow machine may need to end a process."""
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://slow.example:6443"}}]
users: [{name: a, user: {token: x}}]
"""


class InterruptTests(SynchronousTestCase):
    """A process that says when it may be interrupted."""

    def interrupted(self, script: str, *argv: str, again: bool = False) -> tuple[int, str]:
        """Run a script until it prints "begun" on standard error, press Ctrl-C; return its status and its errors.

        Nobody reads its output. With ``again`` it is pressed until the process ends: signals that come
        before it had its turn are one (signal(7)).
        """
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *argv]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        running = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None and running.stdout is not None
        try:
            self.assertEqual(running.stderr.readline(), "begun\n")
            deadline = time.monotonic() + CEILING
            is_pressed = False
            while running.poll() is None and time.monotonic() < deadline:
                if again or not is_pressed:
                    is_pressed = True
                    running.send_signal(signal.SIGINT)
                time.sleep(0.3)
            self.assertIsNotNone(running.poll(), "it still runs")
            return running.returncode, running.stderr.read()
        finally:
            running.kill()
            running.wait()
            running.stdout.close()
            running.stderr.close()

    def test_while_a_name_is_resolved(self) -> None:
        """The resolver may block for a minute; the command does not wait for what it asked of it meanwhile."""
        script = """
            import os, time
            import twisted.internet._resolver

            def blocks(*_):
                os.write(2, b"begun\\n")  # In one piece: names are asked for side by side.
                time.sleep(60)
                raise OSError

            twisted.internet._resolver.GAIResolver.__init__.__defaults__ = (None, blocks)
            from liqod.cli.main import main
            main()
        """
        file = Path(self.mktemp())
        file.write_text(KUBECONFIG)
        status, said = self.interrupted(script, "--kubeconfig", str(file.absolute()), "status")
        self.assertEqual((status, said.replace("begun\n", "")), (130, "interrupted\n"))

    def test_while_nobody_reads_the_output(self) -> None:
        """A write that blocks lets no reactor run: the second Ctrl-C ends the process."""
        script = """
            import sys
            from liqod.cli.console.run import run

            async def work(reactor):
                print("begun", file=sys.stderr, flush=True)
                print("x" * (1 << 20), flush=True)

            run(work)
        """
        self.assertEqual(self.interrupted(script, again=True), (130, ""))

    def test_a_cancellation_by_another_name(self) -> None:
        """What a library raises in place of a cancellation is no failure of the command."""
        script = """
            import sys, click
            from twisted.internet.defer import Deferred
            from twisted.internet.error import ConnectingCancelledError
            from liqod.cli.console.run import run

            async def work(reactor):
                waiting = Deferred(lambda waiting: waiting.errback(ConnectingCancelledError("there")))
                reactor.callLater(0, print, "begun", file=sys.stderr, flush=True)
                await waiting

            try:
                run(work)
            except click.Abort:
                sys.exit(130)
        """
        self.assertEqual(self.interrupted(script), (130, ""))
