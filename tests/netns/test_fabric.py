"""Pods of three clusters with the same pod network, on hosts in network namespaces, through the fabric of each."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.netns.hosts import Hosts, eventually, missing

TALK = str(Path(__file__).with_name("talk.py"))
PORT = "7000"
STILL = 4.0
"""Seconds that a busy machine may stand still. A handshake that is not answered takes longer (WireGuard's rekey timeout
is five), so that what really breaks is not taken for it.
"""


class FabricTests(SynchronousTestCase):
    """A fresh set of hosts, with a server in every pod and all tunnels up."""

    names: ClassVar[tuple[str, ...]] = ("a", "b")
    nodes: ClassVar[dict[str, str]] = {}
    dual: ClassVar[bool] = False
    under_six: ClassVar[bool] = False
    mtu: ClassVar[int] = 1500
    options: ClassVar[dict[str, Any] | None] = None

    def setUp(self) -> None:
        require(missing())
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self.hosts = self._stack.enter_context(self.make())
        everywhere = (*self.names, *self.nodes)
        self.before = {name: self.hosts.dump(name) for name in everywhere}
        for name in everywhere:
            server = subprocess.Popen(
                self.hosts.in_pod(name, sys.executable, TALK, "serve", PORT), stdout=subprocess.PIPE
            )
            self._stack.callback(end_process, server)
            assert server.stdout is not None
            server.stdout.readline()
        self.hosts.start()
        self.connect()

    def make(self) -> Hosts:
        """Return the hosts of this class."""
        return Hosts(
            *self.names,
            options=self.options,
            nodes=self.nodes,
            dual=self.dual,
            under_six=self.under_six,
            mtu=self.mtu,
        )

    def connect(self) -> None:
        """Wait until every tunnel is Connected; a failure tells what the others say."""

        def all_connected() -> bool:
            tunnels = {(at, peer): self.hosts.tunnel(at, peer) for at, peer in permutations(self.names, 2)}
            others = {pair: one.get("message") for pair, one in tunnels.items() if one.get("phase") != "Connected"}
            self.assertEqual(others, {})
            return True

        eventually("all tunnels", all_connected)

    def ask(self, at: str, peer: str, count: int = 1000) -> dict[str, Any]:
        """Have the pod of one cluster talk with that of another."""
        address = self.hosts.seen(at, peer)
        words = (sys.executable, TALK, "ask", address, PORT, str(count))
        return dict(json.loads(self.hosts.output(self.hosts.in_pod(at, *words))))

    def keep(self, at: str, peer: str, seconds: float) -> subprocess.Popen[str]:
        """Begin a connection that is watched; its output ends with the longest silence."""
        words = (sys.executable, TALK, "keep", self.hosts.seen(self.nodes.get(at, at), peer), PORT, str(seconds))
        process = subprocess.Popen(self.hosts.in_pod(at, *words), stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def silence(self, process: subprocess.Popen[str]) -> float:
        """Return the longest silence of a watched connection, which must not have broken."""
        said, _ = process.communicate(timeout=150)
        self.assertEqual(process.returncode, 0, "the connection broke")
        return float(json.loads(said)["longest"])


class ThreeAlikeTests(FabricTests):
    """Three clusters, all with the same pod network, in a full mesh."""

    names = ("a", "b", "c")

    def test_every_pod_reaches_every_pod_by_the_address_seen_there(self) -> None:
        """In all six directions the server sees the client's address as its own cluster sees it, and all bytes pass."""
        for at, peer in permutations(self.names, 2):
            with self.subTest(at=at, peer=peer):
                answer = self.ask(at, peer)
                self.assertEqual(answer["seen"], self.hosts.seen(peer, at))
                self.assertTrue(answer["whole"])

    def test_a_peer_that_is_removed_leaves_the_others_flowing(self) -> None:
        """Removing a third peer breaks no connection of the two others; its route and its networks are gone."""
        seen = self.hosts.seen("a", "c")
        watched = self.keep("a", "b", 6)
        self.hosts.unpeer("a", "c")
        eventually("the route's end", lambda: seen.rpartition(".")[0] not in self.hosts.routes("a"))
        self.assertLess(self.silence(watched), STILL)


class TwoAlikeTests(FabricTests):
    """Two clusters with the same pod network."""

    def test_large_transfers_pass_both_ways(self) -> None:
        """Twenty megabytes pass unharmed in each direction."""
        for at, peer in (("a", "b"), ("b", "a")):
            answer = self.ask(at, peer, 20_000_000)
            self.assertTrue(answer["whole"])
            print(f"\n{at} -> {peer}: 2 x 20 MB in {answer['seconds']:.2f} s")

    def test_packets_that_may_not_be_fragmented_are_refused_by_size_not_lost(self) -> None:
        """The pod learns the path's MTU: what fits the tunnel can be sent, what does not is refused to the sender."""
        address = self.hosts.seen("a", "b")
        sizes = [str(size) for size in (576, 1280, 1400, 1420, 1421, 1480, 1500, 1501, 4000, 9000)]
        words = (sys.executable, TALK, "datagrams", address, PORT, *sizes)
        passed = json.loads(self.hosts.output(self.hosts.in_pod("a", *words)))
        self.assertEqual(passed, [576, 1280, 1400, 1420])

    def test_a_crash_and_a_restart_do_not_disturb_traffic(self) -> None:
        """A connection lives through kill -9 of both fabrics, a time without any, and their return."""
        watched = self.keep("a", "b", 9)
        for name in self.names:
            self.hosts.kill(name)
        time.sleep(1.0)
        routes = self.hosts.routes("a")
        self.hosts.start()
        time.sleep(4.0)
        self.connect()
        self.assertEqual(self.hosts.routes("a"), routes)
        longest = self.silence(watched)
        print(f"\nlongest silence {longest * 1000:.0f} ms")
        self.assertLess(longest, STILL)

    def test_a_rule_of_an_earlier_release_is_replaced(self) -> None:
        """A rule that does not say that the kernel made it, which networkd removes, is replaced while bytes pass."""
        old = "ip rule del pref 18952 lookup 18952 && ip rule add pref 18952 lookup 18952"
        self.hosts.output(self.hosts.inside("a", "sh", "-c", old))
        watched = self.keep("a", "b", 15)

        def origins() -> list[str]:
            shown = json.loads(self.hosts.output(self.hosts.inside("a", "ip", "-j", "-d", "rule")))
            return [str(one.get("protocol")) for one in shown if str(one.get("table")) == "18952"]

        eventually("a rule that is the kernel's", lambda: origins() == ["kernel"])
        self.assertLess(self.silence(watched), STILL)

    def test_nothing_is_left_after_removal(self) -> None:
        """Links, addresses, rules, routes, nftables and kernel parameters are as before, byte for byte."""
        for name in self.names:
            self.hosts.kill(name)
            self.hosts.remove_all(name)
            self.assertEqual(self.hosts.dump(name), self.before[name])

    def test_the_last_peers_end_leaves_nothing(self) -> None:
        """Unpeering alone, without uninstalling, brings the host back to what it was."""
        self.hosts.unpeer("a", "b")

        def clean() -> bool:
            self.assertEqual(self.hosts.dump("a"), self.before["a"])
            return True

        eventually("a clean host", clean)

    def test_a_cut_is_seen_within_ten_seconds_and_its_end_as_well(self) -> None:
        """Dropping the tunnel's packets turns the tunnel red with a reason; letting them pass turns it green."""
        self.hosts.nft(
            "b", "table inet cut { chain in { type filter hook input priority -300; udp dport 5871 drop; }; }"
        )
        started = time.monotonic()
        eventually("red", lambda: self.hosts.tunnel("a", "b").get("phase") == "Error")
        took = time.monotonic() - started
        print(f"\nred after {took:.1f} s: {self.hosts.tunnel('a', 'b')['message']}")
        self.assertLess(took, 10)
        self.hosts.nft("b", "delete table inet cut")
        self.connect()

    def test_a_cut_behind_the_gateway_is_seen_and_named(self) -> None:
        """With a healthy gateway, pods that stop answering turn it red within ten seconds, naming the place."""
        pod = self.hosts.seen("a", "b")
        received = f"icmp type echo-reply ip saddr {pod} counter"
        self.hosts.nft("a", f"table inet ear {{ chain in {{ type filter hook input priority 0; {received}; }}; }}")
        self.hosts.add_pod("a", "offloaded", pod)
        ear = self.hosts.inside("a", "nft", "list", "table", "inet", "ear")
        eventually("answers of the pod", lambda: "packets 0 " not in self.hosts.output(ear))
        eventually("the tunnel", lambda: self.hosts.connected(("a", "b")))
        self.hosts.nft(
            "b", 'table inet cut { chain on { type filter hook forward priority 0; iifname "liqod" drop; }; }'
        )
        started = time.monotonic()
        eventually("red", lambda: self.hosts.tunnel("a", "b").get("phase") == "Error")
        took = time.monotonic() - started
        status = self.hosts.tunnel("a", "b")
        print(f"\nred after {took:.1f} s: {status['message']}")
        self.assertLess(took, 10)
        self.assertEqual((status["reason"], status["cut"]), ("PodPathCut", "remote pods"))
        self.hosts.nft("b", "delete table inet cut")
        self.connect()

    def test_what_somebody_else_removed_comes_back(self) -> None:
        """Rules and routes that were deleted by hand are there again after the next look."""
        self.hosts.nft("a", "delete table inet liqod")
        self.hosts.output(self.hosts.inside("a", "ip", "route", "flush", "table", "18952"))
        eventually("traffic again", lambda: self.ask("a", "b")["whole"])

    def test_a_flow_of_datagrams_goes_on_when_the_peer_sees_us_otherwise(self) -> None:
        """Between the same two ports packets arrive by the new address, and the tunnel's probes do as well."""
        server = self.pipe("b", "answers", "7002")
        self.assertEqual(self.line(server), "ready")
        client = self.pipe("a", "questions", self.hosts.seen("a", "b"), "7002")
        self.assertEqual(self.line(client), "ready")
        eventually("an answer", partial(self.question, client))
        self.hosts.remap("b", "a", "10.140.0.0/16", "10.141.0.0/20")
        eventually("the new view", lambda: self.ask("a", "b")["seen"] == "10.140.0.2")
        # Asking goes on all the time: what the kernel remembers of the flow does not end by itself.
        eventually("an answer", partial(self.question, client))

        def received() -> bool:
            tunnels = self.hosts.tunnel("a", "b"), self.hosts.tunnel("b", "a")
            return all(one["phase"] == "Connected" for one in tunnels)

        # What was received before holds for five seconds: longer than those, it is about the new view.
        for _ in range(8):
            eventually("an answer", partial(self.question, client))
            time.sleep(1)
        eventually("both tunnels", received)

    def pipe(self, at: str, *words: str) -> subprocess.Popen[str]:
        """Begin something in the pod of a cluster that is spoken with by lines."""
        command = self.hosts.in_pod(at, sys.executable, TALK, *words)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        return process

    def line(self, process: subprocess.Popen[str]) -> str:
        """Return the next line that a process says."""
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def question(self, process: subprocess.Popen[str]) -> bool:
        """Send one datagram; tell whether it came back within a second."""
        assert process.stdin is not None
        process.stdin.write(f"{time.monotonic()}\n")
        process.stdin.flush()
        return self.line(process) == "yes"

    def test_a_peer_reaches_nothing_but_pods(self) -> None:
        """From a peer's pod neither the host's services nor the networks behind it answer through the tunnel."""
        gateway = self.hosts.gateway("a", "b")
        server = subprocess.Popen(self.hosts.inside("b", sys.executable, TALK, "serve", "7001"), stdout=subprocess.PIPE)
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()
        with self.assertRaises(AssertionError):
            self.hosts.output(self.hosts.in_pod("a", sys.executable, TALK, "ask", gateway, "7001", "1"))


def end_process(process: subprocess.Popen[Any]) -> None:
    """End a process that runs in a pod."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
