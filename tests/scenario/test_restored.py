"""Home's etcd goes back to a snapshot while the daemon runs: it notices, and what home forgot stays at the lender."""

from __future__ import annotations

from functools import partial

from kubesandbox.kinds.kinds import CONFIGMAPS, NODES, Key
from kubesandbox.store.state import Snapshot

from tests.scenario.case import SHADOWPODS, ScenarioCase, Scene, offloaded
from tests.scenario.side import Side
from tests.scenario.test_failures import VIRTUALNODES, Pair

MANY = 2000
"""Versions by which home goes back: more than it writes in the minutes in which the daemon has not noticed."""


def held(side: Side) -> str:
    """Return the reason of the condition DeletionsHeld where it is true."""
    conditions = [each for one in side.objects(VIRTUALNODES) for each in one["status"].get("conditions", [])]
    reasons = (each["reason"] for each in conditions if (each["type"], each["status"]) == ("DeletionsHeld", "True"))
    return next(reasons, "")


class RestoredTests(ScenarioCase):
    """Both sides share pods; home's API server is stopped for the restore."""

    def test_a_restore_under_a_running_daemon(self) -> None:
        """Though no watch gets an error, the daemon lists again, holds its deletions and says that home went back."""
        pair = Pair(self.scene())
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        store = rome.cluster.store
        snapshot = store.snapshot()
        scene.deploy(rome, "later", 2)
        scene.becomes("later runs", partial(offloaded, rome, milan, "later", 2))
        for number in range(MANY):
            store.put(CONFIGMAPS, Key("default", "count"), {"metadata": {"name": "count", "uid": str(number)}})
        scene.world.run(90)  # Bookmarks bring each kind's version up to the server's.
        shadows = {one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}
        self.restore(scene, rome, snapshot)
        scene.becomes("deletions are held", lambda: held(rome) == "HomeWentBack", 300)
        scene.world.run(60)
        self.assertEqual({one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}, shadows)

    def restore(self, scene: Scene, side: Side, snapshot: Snapshot) -> None:
        side.stop_api()
        scene.world.run(1)
        side.cluster.store.restore(snapshot)
        side.start_api()

    def test_a_kind_whose_watch_goes_on(self) -> None:
        """The versions of pods are reached again before their watch is silent; those of nodes, which are not, say that
        home went back, and pods are listed again as well."""
        pair = Pair(self.scene())
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        store = rome.cluster.store
        snapshot = store.snapshot()
        scene.deploy(rome, "later", 2)
        scene.becomes("later runs", partial(offloaded, rome, milan, "later", 2))
        shadows = {one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}
        store.version += MANY
        for node in store.items(NODES):
            store.put(NODES, Key("", node.object["metadata"]["name"]), node.object)
        scene.world.run(1)
        self.restore(scene, rome, snapshot)
        scene.becomes("deletions are held", lambda: held(rome) == "HomeWentBack", 300)
        self.assertEqual({one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}, shadows)
