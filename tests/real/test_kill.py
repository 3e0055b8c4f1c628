"""``kill -9`` at any moment of the path: what was asked for comes about all the same, and no pod pays for it."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from liqod.model.names import ORIGIN_LABEL, remote_namespace
from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    gone,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.testbed import versions
from tests.testbed.cluster import Cluster
from tests.testbed.process import Process

ROUNDS = int(os.environ.get("LIQOD_KILL_ROUNDS", "5"))
FEWEST = 20
EACH = 3
"""Kills in a round at least."""
CHECKOUT = Path(__file__).resolve().parents[2]
COUNT = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done"


class Killer(threading.Thread):
    """Kills one of the daemons, chosen by chance, again and again at moments chosen by chance, and starts it again."""

    def __init__(self, daemons: list[Daemon], seed: int) -> None:
        super().__init__(daemon=True)
        self._daemons = daemons
        self._random = random.Random(seed)
        self._end = threading.Event()
        self.kills: list[tuple[str, float]] = []

    def run(self) -> None:
        """Kill until asked to end."""
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


class Witness:
    """Writes down every pod that a cluster ever has: its name, its UID, and how often its containers restarted."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.directory / "witness.log"
        self._log.unlink(missing_ok=True)
        shown = '{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\\n"}'
        kubectl = [str(versions.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
        self.process = cluster.spawn("witness", [*kubectl, "get", "pods", "-A", "-w", "-o", f"jsonpath={shown}"])

    def check(self) -> dict[str, str]:
        """Return the pods that were there; each was made once, and no container of any was restarted."""
        uids: dict[str, set[str]] = defaultdict(set)
        restarts: set[str] = set()
        for line in self._log.read_text().splitlines():
            name, uid, *counts = line.split()
            uids[name].add(uid)
            restarts.update(f"{name} {count}" for count in counts if count != "0")
        twice = {name: found for name, found in uids.items() if len(found) > 1}
        assert not twice, f"made more than once: {twice}"
        assert not restarts, f"restarted: {restarts}"
        return {name: uid for name, (uid,) in uids.items()}


class KillTests(PairTests):
    """The path under fire; the first test walks it from the beginning, the others work on the peering it made."""

    kills: ClassVar[list[tuple[str, float]]] = []
    witnesses: ClassVar[list[Witness]] = []
    writer: ClassVar[Process]

    def test_01_from_the_beginning(self) -> None:
        """Daemons that are killed while they discover, wait for trust and accept still end as peers."""
        home, lender = (self.rome.cluster, self.milan.cluster)
        self.witnesses.extend([Witness(home), Witness(lender)])
        for daemon in (self.rome, self.milan):
            daemon.start()
        killer = Killer([self.rome, self.milan], seed=1)
        killer.start()
        try:
            time.sleep(10)
            trust_each_other(self.rome, self.milan)
            time.sleep(8)
            home.apply(enabled_namespace(), self._counting())
            time.sleep(8)
            eventually("some kills", lambda: len(killer.kills) > 3)
        finally:
            killer.end()
        self.kills.extend(killer.kills)
        for cluster in (home, lender):
            eventually("the virtual node is Ready", partial(node_ready, cluster))
        eventually("three pods run", lambda: offloaded(home, lender, "first", 3))
        for pod in live_pods(home, "first").values():
            self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0])

    def _counting(self) -> dict[str, Any]:
        """Return three pods that write numbers, one after the other."""
        body = deployment("first", 3)
        body["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", COUNT]
        return body

    def test_02_at_any_moment(self) -> None:
        """Under a workload that writes, pods survive, new ones come, deleted ones go, and jobs run once."""
        home, lender = (self.rome.cluster, self.milan.cluster)
        argv = [sys.executable, "-m", "tests.real.writer", home.address, str(home.directory), NAMESPACE]
        type(self).writer = home.spawn("writer", ["env", f"PYTHONPATH={CHECKOUT}", *argv])
        self.addCleanup(self.writer.stop, 10.0)
        steady = {name: pod["metadata"]["uid"] for name, pod in live_pods(lender, "first").items()}
        for number in range(ROUNDS):
            killer = Killer([self.rome, self.milan], seed=100 + number)
            name = f"round-{number}"
            killer.start()
            try:
                home.apply(deployment(name, 3), self._job(f"job-{number}"))
                time.sleep(3)
                home.kubectl("scale", "-n", NAMESPACE, f"deployment/{name}", "--replicas=4")
                time.sleep(2)
                victim = eventually(f"pods of {name}", lambda name=name: sorted(live_pods(home, name)))[0]  # type: ignore[misc]
                home.kubectl("delete", "pod", "-n", NAMESPACE, victim, "--wait=false")
                time.sleep(2)
                eventually("some kills", lambda killer=killer: len(killer.kills) >= EACH)  # type: ignore[misc]
            finally:
                killer.end()
            self.kills.extend(killer.kills)
            pods = eventually(f"{name} converges after {killer.kills}", partial(offloaded, home, lender, name, 4))
            for pod in pods.values():
                self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0], killer.kills)
            self.assertNotIn(victim, pods)
            home.kubectl("delete", "deployment", "-n", NAMESPACE, name)
            eventually(
                f"{name} is gone on both sides after {killer.kills}",
                partial(gone, home, lender, name),
            )
            now = {pod_name: pod["metadata"]["uid"] for pod_name, pod in live_pods(lender, "first").items()}
            self.assertEqual(now, steady, f"the steady pods were touched in {name} by {killer.kills}")
            for pod in live_pods(home, "first").values():
                self.assertEqual([c["restartCount"] for c in pod["status"]["containerStatuses"]], [0], killer.kills)
            done = partial(home.get, "job", f"job-{number}", "-n", NAMESPACE)
            eventually(f"job-{number} is complete", lambda done=done: condition(done(), "Complete") == "True")  # type: ignore[misc]

    def _job(self, name: str) -> dict[str, Any]:
        """Return a job whose pod may run once and only there."""
        template = deployment(name, 1)["spec"]["template"]
        template["spec"]["restartPolicy"] = "Never"
        template["spec"]["containers"][0]["command"] = ["sh", "-c", "echo begun; sleep 2; echo done"]
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}}
        return {**body, "spec": {"backoffLimit": 3, "template": template}}

    def test_03_same_end(self) -> None:
        """After all kills everything is as without them: no pod made or run twice, no number and no object missing."""
        home, lender = (self.rome.cluster, self.milan.cluster)
        self.writer.stop(10.0)
        changes = int(self.writer.tail(1))
        self.assertGreater(changes, 100)
        remote = remote_namespace(NAMESPACE, peer_of(lender, "rome")["metadata"]["name"])
        eventually("the objects are the same", lambda: self._same(home, lender, remote, changes))
        for witness in self.witnesses:
            seen = witness.check()
            for number in range(ROUNDS):
                pods = [name for name in seen if name.startswith(f"job-{number}-")]
                self.assertEqual(len(pods), 1, pods)
            witness.process.stop(2.0)
        for name in live_pods(lender, "first"):
            written = [int(line) for line in lender.kubectl("logs", "-n", remote, name).split()]
            self.assertEqual(written, list(range(1, len(written) + 1)))
            self.assertGreater(len(written), 100)
        for number in range(ROUNDS):
            status = home.get("job", f"job-{number}", "-n", NAMESPACE)["status"]
            self.assertEqual((status.get("succeeded"), status.get("failed", 0)), (1, 0))
        print(f"\n{len(self.kills)} kills, {changes} changes meanwhile")
        self.assertGreaterEqual(len(self.kills), FEWEST)

    def _same(self, home: Cluster, lender: Cluster, remote: str, changes: int) -> bool:
        """Have what is reflected, and the pods, be the same in both clusters."""
        for kind in ("configmaps", "secrets"):
            here = {one["metadata"]["name"]: one.get("data") for one in home.get(kind, "-n", NAMESPACE)["items"]}
            here.pop("kube-root-ca.crt", None)
            found = lender.get(kind, "-n", remote, "-l", ORIGIN_LABEL)["items"]
            there = {one["metadata"]["name"]: one.get("data") for one in found}
            self.assertEqual({name: there.get(name) for name in here}, here)
            self.assertFalse([name for name in there.keys() - here.keys() if name.startswith("page-")])
            if kind == "configmaps":
                self.assertEqual(json.dumps(there["ledger"]), json.dumps({"n": str(changes)}))
        pods = [cluster.get("pods", "-n", space)["items"] for cluster, space in ((home, NAMESPACE), (lender, remote))]
        self.assertEqual(*(sorted(one["metadata"]["name"] for one in each) for each in pods))
        return True
