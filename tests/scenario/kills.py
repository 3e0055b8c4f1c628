"""``kill -9`` at any event of a daemon's life: what was asked for comes about all the same, and no pod pays for it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs
from hypothesis import strategies as st
from kubesandbox.kinds.kinds import PODS
from kubesandbox.store.state import Change
from twisted.internet.task import deferLater

from liqod.kube.resources import DEPLOYMENTS
from liqod.kube.resources import PODS as POD
from tests.scenario.case import SHOP, ScenarioCase, all_of, deployment, live, node_ready, offloaded
from tests.scenario.network import Process
from tests.scenario.side import Side

ROUNDS = 20
EVENTS_OF_BORROWER, EVENTS_OF_LENDER = 200, 65
"""A round without a kill has about as many events at each daemon."""


@attrs.frozen
class Point:
    """A kill: at which event of the round, whether the machine loses power with it, and the seconds until a restart."""

    event: int
    power: bool
    away: float


def points(last: int) -> st.SearchStrategy[list[Point]]:
    """Return kills at different events up to the last one."""
    one = st.builds(Point, st.integers(0, last), st.booleans(), st.sampled_from([0.0, 0.3, 3.0, 20.0, 60.0]))
    return st.lists(one, min_size=ROUNDS, max_size=ROUNDS, unique_by=lambda point: point.event)


class Ledger:
    """Remembers every pod that there ever was at a cluster, by namespace and name: its UIDs, and how it went on."""

    def __init__(self, side: Side) -> None:
        self.uids: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.phases: dict[str, list[str]] = defaultdict(list)
        self.restarts: dict[str, int] = defaultdict(int)
        side.cluster.store.subscribe(PODS, self._changed)

    def _changed(self, change: Change) -> None:
        if change.gone:
            return
        meta, status = change.new.object["metadata"], change.new.object.get("status", {})
        uids = self.uids[meta["namespace"], meta["name"]]
        if meta["uid"] not in uids:
            uids.append(meta["uid"])
        phases = self.phases[meta["uid"]]
        if not phases or phases[-1] != status.get("phase"):
            phases.append(status.get("phase", ""))
        for one in status.get("containerStatuses") or ():
            self.restarts[meta["uid"]] = max(self.restarts[meta["uid"]], one["restartCount"])

    def oddities(self) -> list[str]:
        """Tell what should not have happened: a second pod of a name, a restart, a step back."""
        found = [f"{name} was made {len(uids)} times" for name, uids in self.uids.items() if len(uids) > 1]
        found += [f"{uid} was restarted" for uid, count in self.restarts.items() if count]
        order = ["", "Pending", "Running", "Succeeded"]
        for uid, phases in self.phases.items():
            if phases != sorted(phases, key=lambda phase: order.index(phase) if phase in order else -1):
                found.append(f"{uid} went {phases}")
        return found


def finishing(name: str) -> dict[str, Any]:
    """Return a pod that does a little and is done."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "sleep 1; exit 0"],
        "resources": {"requests": {"cpu": "1"}},
    }
    return {
        "metadata": {"name": name, "namespace": SHOP, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


class KillCase(ScenarioCase):
    """Kills of one daemon, at each of many events of a round of work."""

    def setUp(self) -> None:
        self.points = 0
        self.landed = 0

    def begin(self) -> None:
        """Have a peering with a workload that is to be left alone."""
        scene = self.on = self.scene()
        self.rome, self.milan = scene.peered()
        self.ledgers = Ledger(self.rome), Ledger(self.milan)
        scene.deploy(self.rome, "steady", 3)
        scene.becomes("the steady ones run", lambda: offloaded(self.rome, self.milan, "steady", 3))
        self.steady = [
            {name: pod["metadata"]["uid"] for name, pod in live(side, "steady").items()} for side in scene.sides
        ]

    async def work(self, number: int) -> None:
        """Create, scale, delete: the administrator's part of a round."""
        client, clock = self.rome.client, self.rome.desk
        name = f"round-{number}"
        await client.create(POD, finishing(f"job-{number}"), SHOP, view=None)
        await client.create(DEPLOYMENTS, deployment(name, 2), SHOP, view=None)
        if number:
            await client.delete(DEPLOYMENTS, f"round-{number - 1}", SHOP, propagation="Background")
            await client.delete(POD, f"job-{number - 1}", SHOP)
        await deferLater(clock, 0.05)
        await client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 4}}, SHOP, view=None)
        await deferLater(clock, 0.05)
        await client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 3}}, SHOP, view=None)
        await deferLater(clock, 1.5)
        for pod in sorted(live(self.rome, name))[:1]:
            await client.delete(POD, pod, SHOP)

    def round(self, number: int, victim: Side, point: Point) -> None:
        """Let the administrator work while one daemon is killed, and see that all comes about."""
        scene, process = self.on, victim.process
        assert process is not None
        begin = process.steps

        def look() -> None:
            if process.steps - begin >= point.event and not process.dead:
                self.landed += 1
                self._kill(victim, point, process)

        process.watcher = look
        scene.do(self.work(number))
        scene.world.run(1.0)
        process.watcher = None
        if not process.dead:
            self._kill(victim, point, process)
        scene.becomes("the daemon is started again", lambda: victim.agent is not None, 120)
        self.converged(number)
        self.points += 1

    def _kill(self, victim: Side, point: Point, process: Process) -> None:
        process.watcher = None
        victim.kill(power=point.power)
        self.on.world.call(point.away, None, victim.start)

    def converged(self, number: int) -> None:
        rome, milan, scene = self.rome, self.milan, self.on
        name, job = f"round-{number}", f"job-{number}"

        def finished() -> bool:
            pods = [all_of(side, job) for side in (rome, milan)]
            return all(len(found) == 1 and found[0]["status"].get("phase") == "Succeeded" for found in pods)

        def left() -> bool:
            before = f"round-{number - 1}", f"job-{number - 1}"
            return any(all_of(side, app) for side in scene.sides for app in before)

        scene.becomes(f"{name} runs", lambda: offloaded(rome, milan, name, 3), 300)
        scene.becomes(f"{job} is done", finished, 300)
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 300)
        if number:
            scene.becomes("the former is gone", lambda: not left(), 300)
        for side, uids in zip(scene.sides, self.steady, strict=True):
            self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(side, "steady").items()}, uids)
        for ledger in self.ledgers:
            self.assertEqual(ledger.oddities(), [])

    def run_points(self, points: list[Point], which: int) -> None:
        """Kill the daemon of one side at each point, a round of work each."""
        self.begin()
        for number, point in enumerate(points):
            try:
                self.round(number, self.on.sides[which], point)
            except AssertionError as error:
                raise self.failureException(f"kill {self.points}, round {number}, {point}: {error}") from error
