"""What happens to clusters while their pods talk: no connection breaks, and no new one fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import permutations
from typing import ClassVar

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process


class SteadyTests(FabricTests):
    """Three clusters with the same pod network; pods of a and b talk all the time."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    longest = 0.0
    """Seconds of the longest silence while the last thing happened."""

    def setUp(self) -> None:
        super().setUp()
        # The peering with the third begins anew below, and the third sees the others as it saw the other of them.
        held = {name: self.hosts.seen("c", name) for name in ("a", "b")}
        self.order = sorted(held, key=lambda name: tuple(map(int, held[name].split("."))), reverse=True)
        self.hosts.unpeer("c", "a")
        self.hosts.unpeer("c", "b")
        for name in ("a", "b"):
            self.hosts.unpeer(name, "c")

    def is_taken(self, key: str, other: str) -> bool:
        """Tell whether a host's tunnel takes a key, and no other one any more."""
        return self.hosts.wireguard_peers(other) == [key]

    def stream(self, at: str, peer: str, seconds: float) -> subprocess.Popen[str]:
        """Begin to make connections, one after the other."""
        words = (sys.executable, TALK, "stream", self.hosts.seen(at, peer), PORT, str(seconds))
        process = subprocess.Popen(self.hosts.in_pod(at, *words), stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    @contextmanager
    def steady(self, what: str, seconds: float) -> Iterator[None]:
        """Keep connections in both directions, and make new ones, while something happens; none may fail."""
        kept = [self.keep(at, peer, seconds) for at, peer in (("a", "b"), ("b", "a"))]
        streams = [self.stream(at, peer, seconds) for at, peer in (("a", "b"), ("b", "a"))]
        yield
        self.longest = max(self.silence(one) for one in kept)
        made = 0
        for one in streams:
            said = json.loads(one.communicate(timeout=150)[0])
            self.assertEqual(said["failed"], 0, f"{what}: {said}")
            made += said["made"]
        print(f"\n{what}: {made} connections made, none failed; longest silence {self.longest * 1000:.0f} ms")

    def test_no_connection_is_lost(self) -> None:
        """Restart of the daemons, a third peer that comes and goes, new keys, another address: nothing breaks."""
        with self.steady("daemons restart", 8):
            for name in ("a", "b"):
                self.hosts.stop(name)
            time.sleep(1)
            self.hosts.start("a", "b")
        with self.steady("a third peer comes and goes", 14):
            for name in self.order:
                self.hosts.peer(name, "c")
                self.hosts.peer("c", name)
                eventually(f"networks for {name}", partial(self.hosts.seen, "c", name), 40)
            eventually("the third peer", lambda: self.hosts.connected(("a", "c"), ("c", "a")), 40)
            for one, two in permutations(self.names, 2):
                if "c" in (one, two):
                    self.hosts.unpeer(one, two)
            eventually("only one peer", lambda: len(self.hosts.wireguard_peers("a")) == 1, 30)
        with self.steady("keys rotate", 10):
            for name, other in (("a", "b"), ("b", "a")):
                key = self.hosts.rotate_key(name)
                eventually("the new key", partial(self.is_taken, key, other), 30)
        with self.steady("the endpoint roams", 15):
            self.hosts.readdress("b", "10.98.0.77")
            eventually(
                "the learned endpoint",
                lambda: "10.98.0.77:" in self.hosts.output(self.hosts.inside("a", "wg", "show", "liqod", "endpoints")),
                40,
            )
            time.sleep(11)  # a look of the daemon's at the kernel lies in between
            endpoints = self.hosts.output(self.hosts.inside("a", "wg", "show", "liqod", "endpoints"))
            self.assertIn("10.98.0.77:", endpoints)
        # wireguard-go alone goes on sending from the address that is gone until it has heard nothing for 15 seconds.
        self.assertLess(self.longest, 12)
        eventually("still Connected", lambda: self.hosts.connected(("a", "b"), ("b", "a")), 30)
