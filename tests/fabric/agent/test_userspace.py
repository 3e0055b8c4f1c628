"""wireguard-go in a pod of its own: made on request, left running, made again when it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel import userspace

PROGRAM = """\
#!{python}
import os, socket, sys
place = {place!r}
with open(os.path.join(place, "starts"), "a") as log:
    log.write(f"{{os.getpid()}} {{' '.join(sys.argv[1:])}}\\n")
if os.path.exists(os.path.join(place, "broken")):
    sys.exit(3)
path = os.path.join(place, sys.argv[2] + ".sock")
with socket.socket(socket.AF_UNIX) as made:
    made.bind(path)
    made.listen()
    made.accept()
os.unlink(path)
"""
"""Makes the socket of a device as wireguard-go does, and ends when somebody connects, as if the device was removed."""
SERVE = """\
import sys
from pathlib import Path
from liqod.fabric.agent.kernel.userspace import serve
serve("liqod", Path(sys.argv[1]), sys.argv[2])
"""
PATIENCE = 60.0


def wait_until(check: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)


class ServeTests(SynchronousTestCase):
    """The pod of the tunnel as a process."""

    def setUp(self) -> None:
        # The path of a socket has 107 bytes at most (unix(7)), which trial's directories may exceed.
        self.place = Path(tempfile.mkdtemp())
        program = self.place / "wireguard-go"
        program.write_text(PROGRAM.format(python=sys.executable, place=str(self.place)))
        program.chmod(0o755)
        self.serving = subprocess.Popen([sys.executable, "-c", SERVE, str(self.place), str(program)])
        self.addCleanup(self.end)
        wait_until(lambda: userspace.is_served("liqod", self.place))

    def end(self) -> None:
        """End the pod, and what it started."""
        self.serving.kill()
        self.serving.wait(PATIENCE)
        for line in self.starts():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)

    def starts(self) -> list[str]:
        """Return a line for each start of wireguard-go: its process, and its arguments."""
        log = self.place / "starts"
        return log.read_text().splitlines() if log.exists() else []

    def test_device(self) -> None:
        """Nothing runs before it is asked for; a second request finds what runs; a removed device is made again."""
        self.assertEqual(self.starts(), [])
        self.assertEqual(userspace.start("liqod", self.place), "")
        self.assertEqual(userspace.start("liqod", self.place), "")
        self.assertEqual([line.split()[1:] for line in self.starts()], [["-f", "liqod"]])
        with socket.socket(socket.AF_UNIX) as removed:
            removed.connect(str(self.place / "liqod.sock"))
        wait_until(lambda: not (self.place / "liqod.sock").exists())
        wait_until(lambda: userspace.start("liqod", self.place) == "" and len(self.starts()) == 2)

    def test_failure(self) -> None:
        """What ends without a device is said, and so is a pod that is gone."""
        (self.place / "broken").touch()
        self.assertIn("ended with status 3", userspace.start("liqod", self.place))
        self.serving.kill()
        self.serving.wait(PATIENCE)
        self.assertTrue(userspace.is_served("liqod", self.place))
        self.assertIn("the pod of the tunnel does not answer", userspace.start("liqod", self.place))

    def test_nobody(self) -> None:
        """Where there is no such pod there is no socket."""
        self.assertFalse(userspace.is_served("liqodx", self.place))
