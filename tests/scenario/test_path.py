"""The whole path from discovery to deletion, and what it takes in seconds of the simulated clock."""

from __future__ import annotations

from liqod.kube.resources import DEPLOYMENTS
from tests.scenario.case import SHOP, SMALL, ScenarioCase, Scene, all_of, node_ready, offloaded, phase

LIMITS = {
    "ready": 1.0,
    "acquainted": 1.0,
    "node": 2.0,
    "record": 2.0,
    "running": 1.0,
    "scaled up": 1.0,
    "scaled down": 1.0,
    "deleted": 1.0,
}
"""Seconds on the simulated clock, where computing takes no time: what is left is waiting, and the network."""


class PathTests(ScenarioCase):
    def walk(self, scene: Scene) -> dict[str, float]:
        rome, milan = scene.side("rome", nodes=(SMALL,), peers=(2,)), scene.side("milan")
        rome.start()
        milan.start()
        took = {"ready": scene.becomes("both lead", lambda: rome.daemon.ready.is_open and milan.daemon.ready.is_open)}
        begin = scene.world.now
        scene.acquaint((rome, milan))
        took["acquainted"] = scene.world.now - begin
        took["node"] = scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        took["record"] = scene.becomes("the record is Ready", lambda: phase(rome, milan) == "Ready")
        scene.enable(rome)
        scene.deploy(rome, "web", 3)
        took["running"] = scene.becomes("three run", lambda: offloaded(rome, milan, "web", 3))
        scene.scale(rome, "web", 5)
        took["scaled up"] = scene.becomes("five run", lambda: offloaded(rome, milan, "web", 5))
        scene.scale(rome, "web", 2)
        took["scaled down"] = scene.becomes("two are left", lambda: offloaded(rome, milan, "web", 2))
        scene.do(rome.client.delete(DEPLOYMENTS, "web", SHOP, propagation="Background"))
        took["deleted"] = scene.becomes("none is left", lambda: not all_of(rome, "web") + all_of(milan, "web"))
        return took

    def test_whole_path(self) -> None:
        """Two daemons meet, are trusted, share pods and give them back, each step within its time."""
        took = self.walk(self.scene())
        print({what: round(seconds, 3) for what, seconds in took.items()})
        self.assertEqual({what: took[what] for what, limit in LIMITS.items() if took[what] > limit}, {})

    def test_same_again(self) -> None:
        """The same path is walked the same way: as many events, as many requests, in the same time."""
        runs = []
        for _ in range(2):
            scene = self.scene()
            took = self.walk(scene)
            runs.append((took, scene.world.steps, *(side.door.requests for side in scene.sides)))
        self.assertEqual(runs[0], runs[1])
