"""Programs of the testbed are stopped with all that they started, and nothing of them is there afterwards."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.testbed.process import Process, spawn

# The first process ends as soon as it is asked to, like one that only entered a namespace for the other.
FIRST = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
SECOND = """
import pathlib, signal, sys, time
def end(*_):
    time.sleep(float(sys.argv[2]))
    pathlib.Path(sys.argv[1]).write_text("in order")
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1]).write_text("runs")
time.sleep(600)
"""


class StoppingTests(SynchronousTestCase):
    """A process whose child takes its time."""

    def begin(self, seconds: float) -> tuple[Process, Path]:
        """Start two processes, the second of which needs some seconds to end; returns the file that it writes."""
        directory = Path(self.mktemp())
        directory.mkdir()
        said = directory.resolve() / "said"
        argv = [sys.executable, "-c", FIRST, "-c", SECOND, str(said), str(seconds)]
        process = spawn(argv, log=directory / "log")
        self.addCleanup(process.stop, 0.0)
        deadline = time.monotonic() + 60
        while not said.exists() or said.read_text() != "runs":
            self.assertLess(time.monotonic(), deadline, process.tail())
            time.sleep(0.02)
        return process, said

    def test_in_order(self) -> None:
        """What was started by a program that has ended already has the whole time of grace, and is waited for."""
        process, said = self.begin(0.5)
        process.stop(60.0)
        self.assertEqual(said.read_text(), "in order")
        self.assertRaises(ProcessLookupError, os.killpg, process.pid, 0)

    def test_by_force(self) -> None:
        """What does not end in time is ended, and is gone when the call returns."""
        process, said = self.begin(600.0)
        process.stop(0.2)
        self.assertEqual(said.read_text(), "runs")
        self.assertRaises(ProcessLookupError, os.killpg, process.pid, 0)
