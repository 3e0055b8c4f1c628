"""``[network] mode = "auto"`` on hosts in network namespaces, each with the fabric as a process of its own."""

from __future__ import annotations

import shutil
from itertools import permutations
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.netns.hosts import Hosts, eventually, missing

RECORDS = "/apis/net.liqo.io/v1alpha1/networkconfigs"
AUTO = {"policy": "open", "mode": "auto"}


class AutoModeTests(SynchronousTestCase):
    """Two clusters whose peering is new."""

    def setUp(self) -> None:
        require(missing())

    def hosts(self) -> Hosts:
        """Return two hosts, on which nothing was started."""
        hosts = Hosts("a", "b", options=AUTO)
        hosts.__enter__()
        self.addCleanup(hosts.__exit__, None, None, None)
        return hosts

    def decisions(self, hosts: Hosts) -> dict[str, tuple[str, str]]:
        """Return mode and reason at each cluster."""
        found = {}
        for at, peer in permutations(hosts.names, 2):
            decision: dict[str, Any] = hosts.kubectl_get(at, f"{RECORDS}/{peer}")["spec"].get("decision", {})
            found[at] = decision.get("mode", ""), decision.get("reason", "")
        return found

    def decided(self, hosts: Hosts, wanted: dict[str, tuple[str, str]]) -> None:
        """Wait until the decision is made at both clusters."""

        def both() -> bool:
            self.assertEqual(self.decisions(hosts), wanted)
            return True

        eventually("both decisions", both)

    def test_both_can(self) -> None:
        """Both kernels can hold a tunnel: it is made, and packets cross."""
        hosts = self.hosts()
        hosts.start()
        self.decided(hosts, {"a": ("wireguard", "BothCan"), "b": ("wireguard", "BothCan")})
        eventually("the tunnel", lambda: all(hosts.connected(pair) for pair in permutations(hosts.names, 2)))

    def test_one_lacks_wg(self) -> None:
        """Without ``wg`` on one host neither has a tunnel or anything else of one, and both records say what to do."""
        hosts = self.hosts()
        before = {name: hosts.dump(name) for name in hosts.names}
        hosts.hidden["b"] = shutil.which("wg") or ""
        hosts.start()
        self.decided(hosts, {"a": ("none", "PeerHasNone"), "b": ("none", "HostLacks")})
        for at, peer in permutations(hosts.names, 2):
            message = hosts.kubectl_get(at, f"{RECORDS}/{peer}")["spec"]["decision"]["message"]
            self.assertIn("wg is missing: install the package wireguard-tools", message)

        def untouched() -> bool:
            self.assertEqual({name: hosts.dump(name) for name in hosts.names}, before)
            return True

        eventually("hosts as they were", untouched)

    def test_a_closed_port(self) -> None:
        """Where the tunnel's packets are dropped it never comes up: an error that names the port, and no other mode."""
        hosts = self.hosts()
        for name in hosts.names:
            cut = "table inet cut { chain in { type filter hook input priority -300; udp dport 5871 drop; }; }"
            hosts.nft(name, cut)
        hosts.start()

        def named() -> bool:
            tunnel = hosts.tunnel("a", "b")
            self.assertEqual((tunnel["phase"], tunnel["reason"]), ("Error", "PortClosed"))
            self.assertIn(f"UDP port 5871 of {hosts.lan.addresses['b']}", tunnel["message"])
            return True

        eventually("the port by name", named, 100)
        self.assertEqual(self.decisions(hosts), {"a": ("wireguard", "BothCan"), "b": ("wireguard", "BothCan")})
        for name in hosts.names:
            hosts.nft(name, "delete table inet cut")
        eventually("the tunnel", lambda: all(hosts.connected(pair) for pair in permutations(hosts.names, 2)), 60)
