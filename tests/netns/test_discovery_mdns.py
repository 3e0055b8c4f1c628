"""mDNS between real hosts: processes in network namespaces on a bridge."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.netns.lan import Lan, missing

ROOT = Path(__file__).parents[2]


class Peer:
    """A process that runs discovery in a namespace; its lines are read by a thread."""

    def __init__(self, lan: Lan, where: str, cluster_id: str, name: str, interval: float = 30.0) -> None:
        command = lan.inside(where, sys.executable, "-m", "tests.netns.mdns_peer", cluster_id, name, str(interval))
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def wait(self, what: Callable[[dict[str, Any]], bool], timeout: float = 180.0) -> dict[str, Any]:
        """Return the first line that fits; fails after a while."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nothing that fits was said in {timeout} s") from None
            if what(line):
                return line

    def wait_for(self, *expected: tuple[str, str, bool], timeout: float = 180.0) -> float:
        """Wait until the candidates are exactly these (cluster ID, host, stale); return when that was."""

        def fits(line: dict[str, Any]) -> bool:
            found = line.get("candidates")
            return found is not None and {
                (one["cluster_id"], one["host"], one["stale"]) for one in found if ":" not in one["host"]
            } == set(expected)

        return float(self.wait(fits, timeout)["at"])

    def stop(self) -> None:
        """End the process in order and wait for it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


class LanTests(SynchronousTestCase):
    """Two clusters, or three, on one LAN."""

    def setUp(self) -> None:
        require(missing())
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self.lan = self._stack.enter_context(Lan("a", "b", "c"))

    def peer(self, where: str, cluster_id: str, name: str = "turin", interval: float = 30.0) -> Peer:
        peer = Peer(self.lan, where, cluster_id, name, interval)
        self._stack.callback(peer.stop)
        return peer

    def test_two_of_the_same_name_see_each_other_within_a_second(self) -> None:
        """Started together, each knows ID and address of the other less than a second after both run."""

        def together() -> float:
            a, b = self.peer("a", "alpha"), self.peer("b", "beta")
            started = max(float(peer.wait(lambda line: "started" in line)["at"]) for peer in (a, b))
            at_a, at_b = a.wait_for(("beta", "10.98.0.2", False)), b.wait_for(("alpha", "10.98.0.1", False))
            print(f"\nseen after {at_a - started:.3f} s and {at_b - started:.3f} s")
            for peer in (a, b):
                peer.stop()
            return max(at_a, at_b) - started

        self.within(1.0, together)

    def within(self, seconds: float, took: Callable[[], float]) -> None:
        """Have something take less than some seconds, at the latest when it is tried again: machines stand still."""
        tries = [took()]
        while tries[-1] >= seconds and len(tries) < 4:
            tries.append(took())
        self.assertLess(tries[-1], seconds, tries)

    def test_a_late_one_is_seen_and_sees_at_once(self) -> None:
        """A cluster that comes later finds the one that is there, and is found, within a second."""

        def late() -> float:
            a = self.peer("a", "alpha")
            a.wait(lambda line: "started" in line)
            time.sleep(1.5)
            b = self.peer("b", "beta", "milan")
            started = float(b.wait(lambda line: "started" in line)["at"])
            at_a, at_b = a.wait_for(("beta", "10.98.0.2", False)), b.wait_for(("alpha", "10.98.0.1", False))
            print(f"\nlate: seen after {at_a - started:.3f} s and {at_b - started:.3f} s")
            for peer in (a, b):
                peer.stop()
            return max(at_a, at_b) - started

        self.within(1.0, late)

    def test_goodbye_makes_stale_and_return_makes_fresh(self) -> None:
        """An orderly stop is seen within two seconds, and forgotten as soon as the cluster is back."""
        a, b = self.peer("a", "alpha"), [self.peer("b", "beta")]
        a.wait_for(("beta", "10.98.0.2", False))

        def goodbye() -> float:
            b[-1].stop()
            stopped = time.monotonic()
            seen = a.wait_for(("beta", "10.98.0.2", True))
            b.append(self.peer("b", "beta"))
            a.wait_for(("beta", "10.98.0.2", False))
            return seen - stopped

        self.within(2.0, goodbye)

    def test_sudden_death_loses_nothing(self) -> None:
        """A cluster that vanishes without goodbye stays a candidate: only its session can tell more."""
        a, b = self.peer("a", "alpha"), self.peer("b", "beta")
        a.wait_for(("beta", "10.98.0.2", False))
        b.process.kill()

        def lost(line: dict[str, Any]) -> bool:
            """Tell whether a line shows it no more, or as one that has gone."""
            fresh = {one["cluster_id"] for one in line.get("candidates", ()) if not one["stale"]}
            return "candidates" in line and "beta" not in fresh

        with self.assertRaises(AssertionError):
            a.wait(lost, timeout=2.0)

    def test_changed_address_is_announced(self) -> None:
        """A new address replaces the old one at the peers, without a restart."""
        a, b = self.peer("a", "alpha"), self.peer("b", "beta", interval=0.5)
        a.wait_for(("beta", "10.98.0.2", False))
        b.wait_for(("alpha", "10.98.0.1", False))
        self.lan.ip("b", "address", "delete", "10.98.0.2/24", "dev", "eth0")
        self.lan.ip("b", "address", "add", "10.98.0.77/24", "dev", "eth0")
        a.wait_for(("beta", "10.98.0.77", False))

    def test_interface_that_comes_later_is_used(self) -> None:
        """Started without a network, discovery waits for one and then finds the others."""
        self.lan.ip("b", "link", "set", "eth0", "down")
        a, b = self.peer("a", "alpha"), self.peer("b", "beta", interval=0.5)
        b.wait(lambda line: "started" in line)
        time.sleep(1.0)
        self.lan.ip("b", "link", "set", "eth0", "up")
        b.wait_for(("alpha", "10.98.0.1", False))
        a.wait_for(("beta", "10.98.0.2", False))

    def test_flood_is_contained(self) -> None:
        """Twenty thousand invented clusters: the table stays bounded, a known peer stays, the reactor goes on."""
        a, b = self.peer("a", "alpha"), self.peer("b", "beta")
        a.wait_for(("beta", "10.98.0.2", False))
        b.wait_for(("alpha", "10.98.0.1", False))
        before = a.wait(lambda line: "rss" in line)
        flood = self.lan.inside("c", sys.executable, "-m", "tests.netns.mdns_flood", "10.98.0.3", "20000")
        subprocess.run(flood, cwd=ROOT, check=True, timeout=300)
        largest, last, end = 0, [], time.monotonic() + 4.0
        after = before
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):
                line = a.wait(lambda line: True, timeout=0.5)
                if "candidates" in line:
                    last = line["candidates"]
                    largest = max(largest, len(last))
                elif "rss" in line:
                    after = line
        grown = (after["rss"] - before["rss"]) / 1024
        lag, turn = (round(after[name] * 1000) for name in ("lag", "turn"))
        print(f"\nflood: {largest} candidates, {grown:.1f} MB more, worst lag {lag} ms, worst turn {turn} ms of CPU")
        self.assertGreater(largest, 100, "the flood did not arrive")
        self.assertLessEqual(largest, 256)
        self.assertIn("beta", {one["cluster_id"] for one in last})
        self.assertLess(grown, 64)
        self.assertLess(after["lag"], 5.0)
        self.assertLess(after["turn"], 0.1)
