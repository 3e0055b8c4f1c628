"""Addresses that are no pods of a cluster, reached by its peers' pods: machines outside, the host, pods at a peer."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import permutations
from typing import Any, ClassVar

from tests.netns.hosts import API, eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process

OPEN, SHUT = "7003", "7004"


class ExportSteps(FabricTests):
    """Three clusters with the same pod network and the closed policy, each the peer of the two others."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    options: ClassVar[dict[str, Any] | None] = {"policy": "closed"}

    def setUp(self) -> None:
        super().setUp()
        for at, peer in permutations(self.names, 2):
            self.hosts.offload(at, peer)

    def serve(self, command: Sequence[str], port: str) -> None:
        """Have something answer at a port of a host or of the machine outside."""
        server = subprocess.Popen([*command, sys.executable, TALK, "serve", port], stdout=subprocess.PIPE)
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()

    def call(self, at: str, address: str, port: str, count: int = 1000) -> dict[str, Any]:
        """Have the pod of a cluster talk with an address."""
        words = (sys.executable, TALK, "ask", address, port, str(count))
        return dict(json.loads(self.hosts.output(self.hosts.in_pod(at, *words))))

    def refused(self, *calls: tuple[str, str, str]) -> None:
        """Make sure that pods of clusters get no answer from addresses and ports where something does answer."""
        asked = []
        for at, address, port in calls:
            words = self.hosts.in_pod(at, sys.executable, TALK, "ask", address, port, "1")
            asked.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            self._stack.callback(end_process, asked[-1])
        for call, process in zip(calls, asked, strict=True):
            self.assertNotEqual(process.wait(60), 0, call)

    def rules_of(self, name: str, table: str) -> str:
        """Return a table of nftables on a host."""
        return self.hosts.output(self.hosts.inside(name, "nft", "list", "table", "inet", table))

    def tried(self, at: str, peer: str, address: str, *, of: str) -> str:
        """Return what ``at`` would call for what ``of`` exported to another peer, if it were exported to it as well."""
        config = self.hosts.kubectl_get(of, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{peer}")
        seen = ipaddress.ip_network(config["status"]["ack"]["externalCIDR"])
        inside = int(ipaddress.ip_address(address)) - int(seen.network_address)
        mine = self.hosts.kubectl_get(at, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{of}")
        return str(ipaddress.ip_network(mine["spec"]["remap"]["externalCIDR"])[inside])

    def reached(self, at: str, peer: str, address: str, port: str) -> dict[str, Any]:
        """Wait until a peer's pod is answered by what a cluster exported to it; returns that address."""
        eventually("the export", partial(self.hosts.exported, at, peer, address))
        said: list[dict[str, Any]] = []

        def answered() -> bool:
            said.append(self.call(peer, self.hosts.exported(at, peer, address), port))
            return True

        eventually(f"an answer from {address}", answered)
        return said[-1]


class ExportTests(ExportSteps):
    """By IPv4."""

    def test_a_machine_outside_and_the_host(self) -> None:
        """A peer's pod reaches exactly the ports that were exported to it: no other one, and no other peer does."""
        host = self.hosts.lan.addresses["a"]
        for port in (OPEN, SHUT):
            self.serve(self.hosts.lan.inside("lan"), port)
            self.serve(self.hosts.inside("a"), port)
        self.hosts.request_exports("a", {"b": [(API, f"TCP/{OPEN}"), (host, f"TCP/{OPEN}"), ("169.254.169.254", "")]})
        # The machine knows no pod of a peer: it answers the host.
        self.assertEqual(self.reached("a", "b", API, OPEN)["seen"], host)
        self.assertEqual(self.reached("a", "b", host, OPEN)["seen"], self.hosts.seen("a", "b"))
        outside, inside = (self.hosts.exported("a", "b", address) for address in (API, host))
        self.assertTrue(self.call("b", outside, OPEN, 5_000_000)["whole"])
        with self.assertRaises(LookupError):
            self.hosts.exported("a", "b", "169.254.169.254")
        third = self.tried("c", "b", outside, of="a")
        self.refused(("b", outside, SHUT), ("b", inside, SHUT), ("c", third, OPEN))
        kept = self.keep_single("b", outside, 8)
        # Until all is known again after a crash nothing is released.
        self.hosts.kill("a")
        self.hosts.request_exports("a", None)
        self.hosts.start("a")
        self.assertLess(self.silence(kept), 5)
        self.assertEqual(self.hosts.exported("a", "b", API), outside)
        self.hosts.request_exports("a", {"b": []})
        eventually("the end of it", lambda: "real_" not in self.rules("a"))
        self.refused(("b", outside, OPEN), ("b", inside, OPEN))

    def rules(self, name: str) -> str:
        """Return our table on a host."""
        return self.rules_of(name, "liqod")

    def keep_single(self, at: str, address: str, seconds: float) -> subprocess.Popen[str]:
        """Begin a connection to an exported address that is watched."""
        words = (sys.executable, TALK, "keep", address, OPEN, str(seconds))
        process = subprocess.Popen(self.hosts.in_pod(at, *words), stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def test_a_pod_at_one_peer_is_reached_from_another_through_here(self) -> None:
        """By an address of this cluster; the pod sees this cluster's, and what was not exported does not pass."""
        pod = self.hosts.seen("a", "b")
        self.hosts.request_exports("a", {"c": [(pod, f"TCP/{PORT}")]})
        answer = self.reached("a", "c", pod, PORT)
        self.assertEqual(answer["seen"], self.hosts.gateway("b", "a"))
        address = self.hosts.exported("a", "c", pod)
        self.assertTrue(self.call("c", address, PORT, 5_000_000)["whole"])
        # The way back is no way in: b got nothing of c's.
        self.refused(("b", self.tried("b", "c", address, of="a"), PORT))
        self.hosts.request_exports("a", {})
        eventually("the end of it", lambda: "real_" not in self.rules("a"))
        self.refused(("c", address, PORT))


class SixTests(ExportSteps):
    """Three clusters whose pods have addresses of both IP versions, and whose tunnels go from host to host by IPv6."""

    dual: ClassVar[bool] = True
    under_six: ClassVar[bool] = True

    def test_both_versions(self) -> None:
        """Pods reach pods, a host, a machine outside and a pod at another peer, by addresses of either version."""
        ends = self.hosts.output(self.hosts.inside("a", "wg", "show", "liqod", "endpoints"))
        self.assertEqual(ends.count("\t[fd98::"), 2, ends)
        for at, peer in (("a", "b"), ("b", "a")):
            self.assertTrue(self.ask(at, peer)["whole"])
            answer = self.call(at, self.hosts.seen_six(at, peer), PORT, 5_000_000)
            self.assertEqual((answer["whole"], answer["seen"]), (True, self.hosts.seen_six(peer, at)))
        host, port = self.hosts.six_of("a"), f"TCP/{OPEN}"
        for address in (OPEN, SHUT):
            self.serve(self.hosts.inside("a"), address)
        self.serve(self.hosts.lan.inside("lan"), OPEN)
        pod = self.hosts.seen_six("a", "b")
        unnamed = "fd98::77"
        self.hosts.request_exports(
            "a", {"b": [(host, port), (API, port), (unnamed, "")], "c": [(pod, ""), (API, port)]}
        )
        self.assertEqual(self.reached("a", "b", host, OPEN)["seen"], self.hosts.seen_six("a", "b"))
        self.assertEqual(self.reached("a", "b", API, OPEN)["seen"], self.hosts.lan.addresses["a"])
        self.assertTrue(self.reached("a", "c", API, OPEN)["whole"])
        self.assertTrue(self.reached("a", "c", pod, PORT)["whole"])
        # What would be open as a whole is not exported at all where it is no pod.
        self.assertRaises(LookupError, self.hosts.exported, "a", "b", unnamed)
        self.refused(("b", self.hosts.exported("a", "b", host), SHUT), ("c", self.hosts.exported("a", "c", API), SHUT))
        # The one pod of b that a knows has an address of IPv6 alone: it is pinged, and missed when it is cut off.
        self.hosts.add_pod("a", "offloaded", pod)
        received = f"icmpv6 type echo-reply ip6 saddr {pod} counter"
        self.hosts.nft("a", f"table inet ear {{ chain in {{ type filter hook input priority 0; {received}; }}; }}")
        eventually("answers of the pod", lambda: "packets 0 " not in self.rules_of("a", "ear"))
        self.assertTrue(self.hosts.connected(("a", "b")))
        rule = 'iifname "liqod" meta nfproto ipv6 drop'
        self.hosts.nft("b", f"table inet cut {{ chain on {{ type filter hook forward priority 0; {rule}; }}; }}")
        eventually("red", lambda: self.hosts.tunnel("a", "b").get("reason") == "PodPathCut")
        self.hosts.nft("b", "delete table inet cut")
        self.hosts.nft("a", "delete table inet ear")
        self.connect()
        for name in self.names:
            self.hosts.kill(name)
            self.hosts.remove_all(name)
            self.assertEqual(self.hosts.dump(name), self.before[name])
