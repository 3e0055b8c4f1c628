"""A cluster with two hosts: the pod on the one that is no gateway talks with a peer's, over the overlay."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, ClassVar

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, STILL, TALK, FabricTests, end_process

SECOND = "a2"


class TwoHostsTests(FabricTests):
    """Cluster a has the hosts a (the gateway) and a2; cluster b has one. All pods have addresses of one network."""

    nodes: ClassVar[dict[str, str]] = {SECOND: "a"}
    dual: ClassVar[bool] = True

    def seen_second(self) -> str:
        """Return the address at which b reaches the pod on a2."""
        first = self.hosts.seen("b", "a").split(".")
        return ".".join([*first[:2], str(int(first[2]) + 1), "2"])

    def talk(self, at: str, address: str, count: int = 100_000) -> dict[str, Any]:
        """Have the pod on a host talk with an address."""
        words = (sys.executable, TALK, "ask", address, PORT, str(count))
        return dict(json.loads(self.hosts.output(self.hosts.in_pod(at, *words))))

    def test_a_walk_of_the_second_host(self) -> None:
        """Its pod calls and is called by the address seen there, also when hosts take no foreign addresses directly.

        Packets are of every size that the tunnel takes; the host's own end is gone without a trace after removal.
        """
        # Networks between hosts often refuse packets with addresses that are not their own.
        for host in ("a", SECOND):
            self.hosts.nft(
                host,
                'table inet strict { chain in { type filter hook prerouting priority -300; iifname "eth0" '
                "ip saddr != { 10.98.0.0/24, 10.201.0.0/16 } drop; }; }",
            )
        eventually("the second host's way", lambda: self.talk(SECOND, self.hosts.seen("a", "b"))["whole"])
        there = self.talk(SECOND, self.hosts.seen("a", "b"))
        self.assertEqual((there["whole"], there["seen"]), (True, self.seen_second()))
        back = self.talk("b", self.seen_second(), 2_000_000)
        self.assertEqual((back["whole"], back["seen"]), (True, self.hosts.seen("a", "b")))
        self.assertTrue(self.ask("a", "b")["whole"])

        # The same by IPv6, the next hops of which are no host's own addresses.
        self.assertNotEqual(self.hosts.seen_six("a", "b"), "fd00:201::2")
        for host, where in (
            ("a", self.hosts.seen_six("a", "b")),
            (SECOND, self.hosts.seen_six("a", "b")),
            ("b", self.hosts.seen_six("b", "a")),
            ("b", self.hosts.seen_six("b", "a", 1)),
        ):
            self.assertTrue(self.talk(host, where)["whole"])

        address = self.hosts.seen("a", "b")
        sizes = [str(size) for size in (576, 1280, 1400, 1420, 1421, 1450, 1500, 4000, 9000)]
        words = (sys.executable, TALK, "datagrams", address, PORT, *sizes)
        passed = json.loads(self.hosts.output(self.hosts.in_pod(SECOND, *words)))
        self.assertEqual(passed, [576, 1280, 1400, 1420])

        # The other host's own services answer nobody who comes through the tunnel.
        gateway_of_pods = self.seen_second().rpartition(".")[0] + ".1"
        server = subprocess.Popen(
            self.hosts.inside(SECOND, sys.executable, TALK, "serve", "7001"), stdout=subprocess.PIPE
        )
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()
        with self.assertRaises(AssertionError):
            self.hosts.output(self.hosts.in_pod("b", sys.executable, TALK, "ask", gateway_of_pods, "7001", "1"))

        # But for those that are exported, at the ports that were named.
        here = self.hosts.lan.addresses[SECOND]
        self.hosts.request_exports("a", {"b": [(here, "TCP/7001")]})
        eventually("the export", lambda: self.hosts.exported("a", "b", here))
        exported = self.hosts.exported("a", "b", here)

        def answer() -> dict[str, Any]:
            words = (sys.executable, TALK, "ask", exported, "7001", "100000")
            return dict(json.loads(self.hosts.output(self.hosts.in_pod("b", *words))))

        eventually("an answer of the second host", lambda: answer()["whole"])
        self.assertEqual(answer()["seen"], self.hosts.seen("a", "b"))
        with self.assertRaises(AssertionError):
            self.talk("b", exported, 1)

        for host in ("a", SECOND):
            self.hosts.nft(host, "delete table inet strict")
        # A crash of both daemons of the cluster: traffic goes on, and they find what they left.
        watched = self.keep(SECOND, "b", 6)
        for name in ("a", SECOND):
            self.hosts.kill(name)
        self.hosts.start("a", SECOND)
        self.assertLess(self.silence(watched), STILL)
        self.connect()

        for name in (SECOND, "a"):
            self.hosts.kill(name)
            self.hosts.remove_all(name)
            self.assertEqual(self.hosts.dump(name), self.before[name])
