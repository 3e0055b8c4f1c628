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

from tests.netns.hosts import API, eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process


class SteadyTests(FabricTests):
    """Three clusters with the same pod network; pods of a and b talk all the time."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    longest = 0.0
    """Seconds of the longest silence while the last thing happened."""

    def setUp(self) -> None:
        super().setUp()
        # The peering with the third begins again below, and the third sees the others as it saw the other of them.
        held = {name: self.hosts.seen("c", name) for name in ("a", "b")}
        self.order = sorted(held, key=lambda name: tuple(map(int, held[name].split("."))), reverse=True)
        machine = subprocess.Popen(
            [*self.hosts.lan.inside("lan"), sys.executable, TALK, "serve", PORT], stdout=subprocess.PIPE
        )
        self._stack.callback(end_process, machine)
        assert machine.stdout is not None
        machine.stdout.readline()
        self.hosts.unpeer("c", "a")
        self.hosts.unpeer("c", "b")
        for name in ("a", "b"):
            self.hosts.unpeer(name, "c")
        for name in ("a", "b"):
            eventually("only one peer", partial(self.has_one_peer, name))

    def own_key(self, name: str) -> str:
        """Return the public key of a host's tunnel."""
        return self.hosts.output(self.hosts.inside(name, "wg", "show", "liqod", "public-key")).strip()

    def is_announced(self, name: str, other: str, key: str) -> bool:
        """Tell whether a host has dealt with a key that is planned: it is in what its peer is to get."""
        config = self.hosts.kubectl_get(name, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{other}")
        return key in (config["spec"]["local"].get("nextKey"), config["spec"]["local"]["publicKey"])

    def has_one_peer(self, name: str) -> bool:
        """Tell whether a host's tunnel takes one peer alone."""
        return len(self.hosts.wireguard_peers(name)) == 1

    def all_accept(self, key: str, other: str) -> bool:
        """Tell whether a host's tunnel takes a key, and no other one any more."""
        return self.hosts.wireguard_peers(other) == [key]

    def held(self, name: str) -> tuple[str, ...]:
        """Return what a host's kernel has for its peers: it carries traffic without any daemon."""
        return (
            self.hosts.dump(name),
            *(
                self.hosts.output(self.hosts.inside(name, "wg", "show", "liqod", what))
                for what in ("peers", "allowed-ips")
            ),
        )

    def begin(self, what: str, at: str, peer: str, seconds: float) -> subprocess.Popen[str]:
        """Have the pod of one cluster begin something with that of another."""
        words = (sys.executable, TALK, what, self.hosts.seen(at, peer), PORT, str(seconds))
        process = subprocess.Popen(self.hosts.in_pod(at, *words), stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def beside(self, seconds: float) -> subprocess.Popen[str]:
        """Begin a watched connection from a pod to the network between the hosts: no tunnel is in its way."""
        words = (sys.executable, TALK, "keep", API, PORT, str(seconds))
        process = subprocess.Popen(self.hosts.in_pod("a", *words), stdout=subprocess.PIPE, text=True)
        self._stack.callback(end_process, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    @contextmanager
    def steady(self, what: str, seconds: float, *, still: bool = True) -> Iterator[None]:
        """Keep connections in both directions, make new ones and move bytes, while something happens; none may fail.

        Where it is ``still``, what is watched is silent for no longer than it takes to stand a stopping machine, which
        a connection without a tunnel tells: a handshake that is not answered takes five seconds (WireGuard's rekey
        timeout), and what the network repairs by itself ten.
        """
        ways = ("a", "b"), ("b", "a")
        kept = [self.keep(at, peer, seconds) for at, peer in ways]
        streams = [self.begin("stream", at, peer, seconds) for at, peer in ways]
        pumps = [self.begin("pump", at, peer, seconds) for at, peer in ways]
        plain = self.beside(seconds) if still else None
        yield
        self.longest = max(self.silence(one) for one in kept)
        made = moved = 0
        for one in streams:
            said = json.loads(one.communicate(timeout=150)[0])
            self.assertEqual(said["failed"], 0, f"{what}: {said}")
            made += said["made"]
        for one in pumps:
            said, _ = one.communicate(timeout=150)
            self.assertEqual(one.returncode, 0, f"{what}: a busy connection broke")
            moved += json.loads(said)["bytes"]
        print(
            f"\n{what}: {made} connections made, none failed; {moved / 1e6:.0f} MB there and back; longest silence "
            f"{self.longest * 1000:.0f} ms"
        )
        self.assertGreater(made, 10)
        self.assertGreater(moved, 3e5)
        if plain is not None:
            self.assertLess(self.longest, 4 + self.silence(plain), what)

    def test_no_connection_is_lost(self) -> None:
        """Restart of the daemons, a third peer that comes and goes, new keys, another address: nothing breaks."""
        with self.steady("daemons restart", 8):
            held = {name: self.held(name) for name in ("a", "b")}
            for name in ("a", "b"):
                self.hosts.stop(name)
            self.assertEqual({name: self.held(name) for name in ("a", "b")}, held)
            time.sleep(1)
            self.hosts.start("a", "b")
        with self.steady("a third peer comes and goes", 14):
            for name in self.order:
                self.hosts.peer(name, "c")
                self.hosts.peer("c", name)
                eventually(f"networks for {name}", partial(self.hosts.seen, "c", name))
            eventually("the third peer", lambda: self.hosts.connected(("a", "c"), ("c", "a")))
            for one, two in permutations(self.names, 2):
                if "c" in (one, two):
                    self.hosts.unpeer(one, two)
            eventually("only one peer", lambda: len(self.hosts.wireguard_peers("a")) == 1)
        with self.steady("keys rotate", 10):
            for name, other in (("a", "b"), ("b", "a")):
                with self.hosts.silent():
                    before = self.own_key(name)
                    key = self.hosts.rotate_key(name)
                    eventually("the next key is announced", partial(self.is_announced, name, other, key))
                    # The peer does not know of it: nothing would come from there any more.
                    self.assertEqual(self.own_key(name), before)
                eventually("the new key", partial(self.all_accept, key, other))
        with self.steady("the endpoint roams", 15, still=False):
            self.hosts.readdress("b", "10.98.0.77")
            eventually(
                "the learned endpoint",
                lambda: "10.98.0.77:" in self.hosts.output(self.hosts.inside("a", "wg", "show", "liqod", "endpoints")),
            )
            time.sleep(11)  # a look of the daemon's at the kernel lies in between
            endpoints = self.hosts.output(self.hosts.inside("a", "wg", "show", "liqod", "endpoints"))
            self.assertIn("10.98.0.77:", endpoints)
        # wireguard-go alone goes on sending from the address that is gone until it has received nothing for 15 seconds.
        self.assertLess(self.longest, 12)
        eventually("still Connected", lambda: self.hosts.connected(("a", "b"), ("b", "a")))
