"""The clock that runs while a command waits."""

from __future__ import annotations

import io
import sys
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console import terminal
from liqod.cli.console.progress import QUIET, TICK, Progress


class ProgressTests(SynchronousTestCase):
    """On a terminal."""

    def setUp(self) -> None:
        self.patch(terminal, "is_terminal", lambda stream: True)
        self.printed = io.StringIO()
        self.patch(sys, "stderr", self.printed)
        self.clock: Any = Clock()

    def rows(self) -> list[str]:
        """Return what stays on the terminal of what was printed: a line that was cleared does not."""
        return [line.rpartition("\x1b[K")[2] for line in self.printed.getvalue().split("\n")]

    def test_other_lines(self) -> None:
        """What others print meanwhile has rows of its own, and the clock goes on beneath it; at the end it is gone."""
        with Progress(self.clock, "rain") as progress:
            progress.clear()
            self.clock.advance(QUIET)
            self.assertEqual(self.rows(), ["... waiting for rain (1 s)"])
            progress.clear()
            print("leading", file=sys.stderr)
            self.assertEqual(self.rows(), ["leading", ""])
            self.clock.advance(TICK)
            self.assertEqual(self.rows(), ["leading", "... waiting for rain (2 s)"])
            progress.line("more")
            self.assertEqual(self.rows(), ["leading", "more", ""])
        self.assertEqual(self.rows(), ["leading", "more", ""])
