"""Hosts that boot: all that the kernel held is gone, and comes back from the cluster's records alone."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import permutations

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process

HELD = (
    ("ip", "rule"),
    ("ip", "route", "show", "table", "18952"),
    ("nft", "list", "table", "inet", "liqod"),
    ("wg", "show", "liqod", "public-key"),
    ("wg", "show", "liqod", "allowed-ips"),
    ("ip", "-brief", "address", "show", "dev", "liqod"),
)
"""What shows all that the fabric has on a host, but for what differs between two times."""


class RebootTests(FabricTests):
    """Two clusters with the same pod network."""

    def held(self, name: str) -> dict[str, str]:
        """Return what the fabric has on a host."""
        return {" ".join(command): self.hosts.output(self.hosts.inside(name, *command)) for command in HELD}

    def holds(self, held: dict[str, dict[str, str]]) -> bool:
        """Have each host hold what it held."""
        self.assertEqual({name: self.held(name) for name in self.names}, held)
        return True

    def boot(self, *names: str) -> None:
        """Have hosts go down at once and come up again, as a service manager and a kubelet bring them up."""
        for name in names:
            self.hosts.reboot(name)
            for word in (": liqod", "inet liqod", "18952"):
                self.assertNotIn(word, self.hosts.dump(name))
        for name in names:
            command = self.hosts.in_pod(name, sys.executable, TALK, "serve", PORT)
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            self._stack.callback(end_process, server)
            assert server.stdout is not None
            server.stdout.readline()
        self.hosts.start(*names)

    def test_reboot(self) -> None:
        """One host and then both boot: traffic flows again by the same addresses, and each host holds what it held."""
        pairs = list(permutations(self.names, 2))
        seen = {pair: self.hosts.seen(*pair) for pair in pairs}
        held = {name: self.held(name) for name in self.names}
        for booting in (("a",), self.names):
            self.boot(*booting)
            for at, peer in pairs:
                eventually(f"traffic from {at}", partial(self.ask, at, peer))
                self.assertTrue(self.ask(at, peer)["whole"])
                self.assertEqual(self.ask(at, peer)["seen"], seen[peer, at])
            self.connect()
            self.assertEqual({pair: self.hosts.seen(*pair) for pair in pairs}, seen)
            eventually("what there was", partial(self.holds, held))
