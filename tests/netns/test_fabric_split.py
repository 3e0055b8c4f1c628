"""The fabric of each host as two processes: control without any capability, and the network agent."""

from __future__ import annotations

import re
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

from tests.netns.hosts import Hosts, eventually
from tests.netns.test_fabric import FabricTests


class SplitTests(FabricTests):
    """Two clusters, all with the same pod network, whose processes share records and nothing else."""

    options: ClassVar[dict[str, Any] | None] = {"policy": "open"}

    def make(self) -> Hosts:
        return Hosts(*self.names, options=self.options, split=True)

    def capabilities(self, pid: int) -> set[str]:
        """Return the capabilities that a process has or could get, as masks."""
        status = Path(f"/proc/{pid}/status").read_text()
        return set(re.findall(r"^Cap(?:Prm|Eff|Bnd|Amb):\s+([0-9a-f]+)$", status, re.MULTILINE))

    def test_pods_talk_and_control_may_nothing(self) -> None:
        """Packets cross by translated addresses; control has no capability; without it the tunnel stays as it is."""
        for at, peer in permutations(self.names, 2):
            answer = self.ask(at, peer)
            self.assertEqual((answer["seen"], answer["whole"]), (self.hosts.seen(peer, at), True))
            self.assertEqual(self.capabilities(self.hosts.controls[at].pid), {"0" * 16})
        routes = self.hosts.routes("a")
        for name in self.names:
            self.hosts.stop_control(name)
        # The agent alone goes on, also after a restart: everything it needs is in the records.
        self.hosts.stop("a")
        self.hosts.output(self.hosts.inside("a", "ip", "route", "flush", "table", "18952"))
        self.hosts.split = False
        self.hosts.options = {**self.hosts.options, "process": "network"}
        self.hosts.start("a")
        eventually("the routes", partial(self.has_routes, routes))
        self.assertTrue(self.ask("a", "b")["whole"])

    def has_routes(self, routes: str) -> bool:
        """Return whether the first host has these routes to its peer."""
        return self.hosts.routes("a") == routes

    def test_keys_rotate(self) -> None:
        """The agent makes the next key the current one when the peer has confirmed it; control never had it."""
        old = self.hosts.wireguard_peers("b")
        key = self.hosts.rotate_key("a")
        eventually("the new key", lambda: self.hosts.wireguard_peers("b") == [key], 60)
        self.assertNotEqual(old, [key])
        self.connect()
        self.assertTrue(self.ask("a", "b")["whole"])
