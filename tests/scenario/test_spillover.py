"""Home first: home fills, pods leave, and come home when there is room, at a bounded rate and with each daemon."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import msgspec
from kubesandbox.nodes.node import SandboxNode

from liqod.config import schema
from liqod.config.schema import Settings
from liqod.kube.resources import NAMESPACEOFFLOADINGS
from tests.scenario.case import SHOP, ScenarioCase, Scene, live, node_ready, runs
from tests.scenario.side import Side

FOUR = SandboxNode("node", cpu="4", memory="64Gi")
INTERVAL, AFTER = 20.0, 60.0


def returning(settings: Settings) -> Settings:
    """Have pods of all enabled namespaces come home."""
    offloading = schema.OffloadingSettings(spillover="Return", return_interval=INTERVAL, return_after=AFTER)
    return msgspec.structs.replace(settings, offloading=offloading)


class SpilloverTests(ScenarioCase):
    def pair(self) -> tuple[Scene, Side]:
        """Return a scene with a home that has room for four pods, and a lender with room for all."""
        scene = self.scene()
        rome = scene.side("rome", nodes=(FOUR,), peers=(2,), change=returning)
        milan = scene.side("milan")
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        scene.enable(rome)
        return scene, rome

    def placed(self, side: Side, app: str) -> tuple[int, int]:
        """Return how many pods of an application run here and elsewhere."""
        nodes = [pod["spec"].get("nodeName") for pod in live(side, app).values() if runs(pod)]
        here = sum(node == "node" for node in nodes)
        return here, len(nodes) - here

    def are_here(self, side: Side, home: int) -> bool:
        """Tell whether so many of four pods run here, and the others elsewhere."""
        return self.placed(side, "web") == (home, 4 - home)

    def want(self, scene: Scene, side: Side, **spillover: object) -> None:
        body = {"metadata": {"name": "offloading"}, "spec": {"spillover": spillover}}
        scene.do(side.client.create(NAMESPACEOFFLOADINGS, body, SHOP, view=None))

    def test_there_and_back(self) -> None:
        """Pods leave when home is full, stay while it is, and come home one in an interval when it is not."""
        scene, rome = self.pair()
        scene.deploy(rome, "other", 3)
        scene.becomes("they are here", lambda: self.placed(rome, "other") == (3, 0))
        scene.deploy(rome, "web", 4)
        scene.becomes("three leave", lambda: self.placed(rome, "web") == (1, 3))
        before = live(rome, "web")
        scene.world.run(3 * AFTER)
        self.assertEqual(live(rome, "web").keys(), before.keys())
        scene.scale(rome, "other", 0)
        moments = []
        for home in (2, 3, 4):
            scene.becomes(f"{home} are here", partial(self.are_here, rome, home), 2 * AFTER)
            moments.append(scene.world.now)
        self.assertGreaterEqual(min(later - earlier for earlier, later in pairwise(moments)), 15)
        stayed = {name for name, pod in before.items() if pod["spec"]["nodeName"] == "node"}
        self.assertLessEqual(stayed, live(rome, "web").keys())
        after = live(rome, "web")
        scene.world.run(3 * AFTER)
        self.assertEqual(live(rome, "web").keys(), after.keys())

    def test_date_set_meanwhile(self) -> None:
        """A date that is set forward makes no pod old enough to come home."""
        scene, rome = self.pair()
        scene.deploy(rome, "other", 3)
        scene.becomes("they are here", lambda: self.placed(rome, "other") == (3, 0))
        scene.world.run(2 * INTERVAL)
        scene.deploy(rome, "web", 4)
        scene.becomes("three leave", lambda: self.placed(rome, "web") == (1, 3))
        begun = scene.world.now
        scene.world.run(INTERVAL + 2)
        assert rome.process is not None
        rome.process.skew += 3600
        scene.scale(rome, "other", 0)
        scene.world.run(AFTER - (scene.world.now - begun) - 5)
        self.assertEqual(self.placed(rome, "web"), (1, 3))
        scene.becomes("one is here", lambda: self.are_here(rome, 2), 2 * INTERVAL)

    def test_killed_in_between(self) -> None:
        """A daemon that is killed again and again evicts nothing at its starts; the one that stays brings all home."""
        scene, rome = self.pair()
        scene.deploy(rome, "other", 4)
        scene.becomes("they are here", lambda: self.placed(rome, "other") == (4, 0))
        scene.deploy(rome, "web", 2)
        scene.becomes("both leave", lambda: self.placed(rome, "web") == (0, 2))
        before = live(rome, "web")
        scene.world.run(AFTER)
        scene.scale(rome, "other", 0)
        for _ in range(4):
            rome.kill()
            rome.start()
            scene.becomes("it leads", lambda: rome.daemon.ready.is_open)
            self.assertEqual(live(rome, "web").keys(), before.keys())
        scene.becomes("both are here", lambda: self.placed(rome, "web") == (2, 0), 4 * AFTER)

    def test_home_first_alone(self) -> None:
        """A namespace that wants HomeFirst keeps its pods where they are, whatever the configuration says."""
        scene, rome = self.pair()
        self.want(scene, rome, mode="HomeFirst")
        scene.world.run(2)
        scene.deploy(rome, "other", 4)
        scene.becomes("they are here", lambda: self.placed(rome, "other") == (4, 0))
        scene.deploy(rome, "web", 2)
        scene.becomes("both leave", lambda: self.placed(rome, "web") == (0, 2))
        before = live(rome, "web")
        scene.scale(rome, "other", 0)
        scene.world.run(3 * AFTER)
        self.assertEqual(live(rome, "web").keys(), before.keys())
