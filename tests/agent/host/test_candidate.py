"""Whose name a daemon has as a candidate for the lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.host.leader_identity import LeaderIdentity

HOLD = """
import sys, time
from pathlib import Path
from liqod.agent.host.leader_identity import LeaderIdentity
kept = LeaderIdentity("host", {"STATE_DIRECTORY": sys.argv[1]}, Path(sys.argv[2]))
print(kept.name, flush=True)
time.sleep(60)
"""


class CandidateTests(SynchronousTestCase):
    """A state directory as systemd gives it, and a host with a boot ID."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.boot_id = self.directory / "boot_id"
        self.boot_id.write_text("11111111-2222\n")

    def candidate(self, hostname: str = "host", directory: str | None = None) -> LeaderIdentity:
        environ = {"STATE_DIRECTORY": directory or f"{self.directory}:/somewhere/else"}
        made = LeaderIdentity(hostname, environ, self.boot_id)
        self.addCleanup(made.close)
        return made

    def test_killed(self) -> None:
        """While a daemon lives no other has its name, and the one that is started after it was killed has it at
        once.
        """
        words = [sys.executable, "-c", HOLD, str(self.directory), str(self.boot_id)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as first:
            assert first.stdout is not None
            name = first.stdout.readline().strip()
            self.assertTrue(name.startswith("host-"), name)
            beside = self.candidate()
            self.assertNotEqual(beside.name, name)
            first.send_signal(signal.SIGKILL)
            first.wait()
        self.assertEqual(self.candidate().name, name)

    def test_once_more(self) -> None:
        """The name lasts through any number of starts."""
        names = set()
        for _ in range(3):
            candidate = self.candidate()
            names.add(candidate.name)
            candidate.close()
        self.assertEqual(len(names), 1)

    def test_another_host(self) -> None:
        """A host that was copied, or has another name now, is another candidate."""
        first = self.candidate()
        first.close()
        self.boot_id.write_text("33333333-4444\n")
        second = self.candidate()
        second.close()
        self.assertNotEqual(first.name, second.name)
        third = self.candidate("other")
        self.assertTrue(third.name.startswith("other-"))

    def test_without_a_place(self) -> None:
        """Without a state directory, or with one that cannot be written or read, the name is a new one each time."""
        self.assertNotEqual(LeaderIdentity("host", {}).name, LeaderIdentity("host", {}).name)
        self.assertTrue(self.candidate(directory="/nonexistent/state").name.startswith("host-"))
        for bad in (b"", b"\xff\xfe\n\n\n", b"host-1", b"host-1\n11111111-2222", b"x" * 10000):
            (self.directory / "candidate").write_bytes(bad)
            candidate = self.candidate()
            self.assertRegex(candidate.name, r"^host-[0-9a-f]{8}$")
            candidate.close()
