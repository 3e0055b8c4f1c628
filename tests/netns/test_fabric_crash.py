"""kill -9 at fifty random points of changing a real host's network: what is left is completed, or removed, wholly."""

from __future__ import annotations

import json
import random
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.netns.hosts import ROOT, Hosts, missing

TIMES = 50


class CrashTests(SynchronousTestCase):
    """One host, no traffic."""

    def test_fifty_crashes(self) -> None:
        """Links, addresses, routes, rules, nftables and sysctls are as before, however far a crash let it come.

        There is a crash before each operation on the kernel, of those that change and of those that remove; the others
        are while one is under way.
        """
        require(missing())
        seed = random.randrange(1 << 32)
        with Hosts("a") as hosts:
            command = [
                sys.executable,
                "-m",
                "tests.netns.crash_points",
                str(TIMES),
                str(seed),
                hosts.lan.namespace("a"),
            ]
            said = hosts.output(["sh", "-c", 'cd "$0" && exec "$@"', str(ROOT), *hosts.inside("a", *command)], 600)
        found = json.loads(said)
        print(
            f"\nseed {seed}: {TIMES} crashes, before each of {found['operations']} operations and in the midst of some"
        )
        self.assertEqual(found["bad"], [], f"seed {seed}")
        self.assertEqual(found["settled"], 0)
        self.assertTrue(found["changed"])
        self.assertGreater(found["operations"], 10)
        self.assertLess(found["operations"], TIMES)
