"""``kill -9`` at any moment of the path: what was asked for comes about all the same, and no pod pays for it."""

from __future__ import annotations

import os
import random
import threading
import time
from functools import partial

from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import (
    deployment,
    enabled_namespace,
    eventually,
    gone,
    live_pods,
    node_ready,
    offloaded,
    trust_each_other,
)

ROUNDS = int(os.environ.get("LIQOD_KILL_ROUNDS", "10"))


class Killer(threading.Thread):
    """Kills one of the daemons, chosen by chance, again and again at moments chosen by chance, and starts it anew."""

    def __init__(self, daemons: list[Daemon], seed: int) -> None:
        super().__init__(daemon=True)
        self._daemons = daemons
        self._random = random.Random(seed)
        self._end = threading.Event()
        self.kills: list[tuple[str, float]] = []

    def run(self) -> None:
        """Kill until told to end."""
        begin = time.monotonic()
        while not self._end.wait(self._random.uniform(0.05, 4.0)):
            victim = self._random.choice(self._daemons)
            victim.kill()
            self.kills.append((victim.name, time.monotonic() - begin))
            time.sleep(self._random.uniform(0.0, 0.5))
            victim.start()

    def end(self) -> None:
        """Kill no more."""
        self._end.set()
        self.join()


class KillTests(PairTests):
    """The path under fire; the first test walks it from the beginning, the others work on the peering it made."""

    def test_01_from_the_beginning(self) -> None:
        """Daemons that are killed while they discover, wait for trust and accept still end as peers."""
        home, lender = (self.rome.cluster, self.milan.cluster)
        for daemon in (self.rome, self.milan):
            daemon.start()
        killer = Killer([self.rome, self.milan], seed=1)
        killer.start()
        try:
            time.sleep(10)
            trust_each_other(self.rome, self.milan)
            time.sleep(10)
            home.apply(enabled_namespace(), deployment("first", 3))
            time.sleep(10)
        finally:
            killer.end()
        self.assertGreater(len(killer.kills), 3)
        for cluster in (home, lender):
            eventually("the virtual node is Ready", partial(node_ready, cluster), 60)
        eventually("three pods run", lambda: offloaded(home, lender, "first", 3), 60)
        for pod in live_pods(home, "first").values():
            self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0])

    def test_02_at_any_moment(self) -> None:
        """Pods survive, new ones come, deleted ones go; none is duplicated, restarted or lost by a kill."""
        home, lender = (self.rome.cluster, self.milan.cluster)
        steady = {name: pod["metadata"]["uid"] for name, pod in live_pods(lender, "first").items()}
        for number in range(ROUNDS):
            killer = Killer([self.rome, self.milan], seed=100 + number)
            name = f"round-{number}"
            killer.start()
            try:
                home.apply(deployment(name, 3))
                time.sleep(3)
                home.kubectl("scale", "-n", "shop", f"deployment/{name}", "--replicas=4")
                time.sleep(2)
                victim = sorted(live_pods(home, name))[0]
                home.kubectl("delete", "pod", "-n", "shop", victim, "--wait=false")
                time.sleep(2)
            finally:
                killer.end()
            pods = eventually(f"{name} converges after {killer.kills}", partial(offloaded, home, lender, name, 4), 60)
            for pod in pods.values():
                self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0], killer.kills)
            self.assertNotIn(victim, pods)
            home.kubectl("delete", "deployment", "-n", "shop", name)
            eventually(
                f"{name} is gone on both sides after {killer.kills}",
                partial(gone, home, lender, name),
                60,
            )
            now = {pod_name: pod["metadata"]["uid"] for pod_name, pod in live_pods(lender, "first").items()}
            self.assertEqual(now, steady, f"the steady pods were touched in {name} by {killer.kills}")
            for pod in live_pods(home, "first").values():
                self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0], killer.kills)
